"""How long each stage took, and how much memory the process needed at most."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CREDIT_STAGES", "STAGES", "Clock", "peak_memory"]

CREDIT_STAGES = ("arrange", "build", "solve", "coverage", "combine")
"""Stages between reading and writing: credit construction."""

STAGES: dict[str, str] = {
    "import": "interpreter start and imports",
    "read": "scan the input, canonicalise and key inside the scan",
    "arrange": "groups, rollouts, order, outcomes",
    "build": "dense ids, merged process",
    "solve": "state and action values",
    "uncertainty": "resampled closures (with --uncertainty)",
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

    def add(self, other: "Clock") -> None:
        """Adds seconds and rows that another clock measured, in another thread perhaps."""
        for stage, seconds in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.rows += other.rows


def peak_memory() -> int:
    """Largest resident size of this process so far, bytes.

    Linux keeps the larger of a program's own peak and that of the process it was started from in
    `ru_maxrss`, so the high-water mark of the address space is asked first.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text("ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
