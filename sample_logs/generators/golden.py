"""The golden group: four rollouts small enough to solve by hand.

    t0: S -a-> M -p-> success
    t1: S -a-> M -q-> failure
    t2: S -b-> N -c-> M -p-> success
    t3: S -b-> N -d-> failure

With discount 0.98 the closure gives V(M) = 0.98 · 2/3 = 0.653333, V(N) = (0.98 · V(M) + 0)/2 =
0.320133 and V(S) = 0.98 · (V(M) + V(N))/2 = 0.476999.

Needs pyarrow (for module `truth_log`), numpy and scipy. Write the log, from the root of the
repository:

    python -m sample_logs.generators.golden --out sample_logs/golden.jsonl
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .truth_log import Row, write_jsonl

ROLLOUTS: dict[str, tuple[str, bool]] = {
    "t0": ("S a M p", True),
    "t1": ("S a M q", False),
    "t2": ("S b N c M p", True),
    "t3": ("S b N d", False),
}
"""Per rollout its observations and actions in turn, and whether it succeeded."""


def golden_rows(group_id: str = "golden") -> list[Row]:
    """The nine rows, sorted by rollout and step."""
    rows: list[Row] = []
    for rollout_id, (path, succeeded) in ROLLOUTS.items():
        observations, actions = path.split()[::2], path.split()[1::2]
        for step, (observation, action) in enumerate(zip(observations, actions, strict=True)):
            last = step == len(actions) - 1
            rows.append(
                {
                    "group_id": group_id,
                    "rollout_id": rollout_id,
                    "step": step,
                    "observation": observation,
                    "action": action,
                    "reward": 1.0 if last and succeeded else 0.0,
                    "done": last,
                    "success": last and succeeded,
                    "truncated": False,
                }
            )
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON lines file to write")
    write_jsonl(golden_rows(), parser.parse_args().out)


if __name__ == "__main__":
    main()
