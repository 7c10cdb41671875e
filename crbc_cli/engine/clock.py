"""How long each stage took, and how much memory the process needed at most."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["STAGES", "Clock", "peak_memory"]

STAGES: dict[str, str] = {
    "import": "interpreter start and imports",
    "read": "scan the input, canonicalise and key inside the scan",
    "arrange": "groups, rollouts, order, outcomes",
    "build": "dense ids, merged process",
    "solve": "state and action values",
    "coverage": "reachable rollouts",
    "combine": "step credit, group advantage, columns back to rows",
    "write": "encode and write the output",
}
"""Stage -> what it covers, in the order they run."""


@dataclass
class Clock:
    """Seconds per stage; `with clock("read"): …` adds to one. Stages do not nest."""

    seconds: dict[str, float] = field(default_factory=dict)
    rows: int = 0

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[stage] = self.seconds.get(stage, 0.0) + elapsed


def peak_memory() -> int:
    """Largest resident size of this process so far, bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
