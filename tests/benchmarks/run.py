"""The benchmark suite.

    python tests/benchmarks/run.py [--quick | --full] [--only PART]… [--json FILE]

Writes synthetic logs (synthetic.py) into a temporary folder and prints, as it goes along:

* whole: `crbc annotate` as a process against the floor (whole.py), Parquet and JSON Lines, and how
  its time and memory grow with the number of groups;
* start: CPU of one training update's worth (16 groups), beyond importing polars;
* plain: the credit stages against straightforward implementations (baselines.py);
* growth: the credit stages as groups, group size, rollout length or anchors grow;
* shapes: logs of extreme shapes through `crbc_cli.credit`.

Runs that are compared take turns and medians count; only ratios carry over to other machines.
Needs about two minutes with --quick, ten by default, and with --full, which goes up to 20,000
groups (some 6 million steps), an hour and 5 GB of disk.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy; children get their own (measure.py)
sys.path.insert(0, str(Path(__file__).parents[2]))

import measure
import numpy as np
import polars as pl
import stages
import whole

import crbc_cli

_GROUPS = {"quick": (100, 400), "default": (200, 1000), "full": (200, 2000, 20_000)}


def whole_runs(size: str, repeat: int, folder: Path, options: list[str]) -> dict[str, Any]:
    """annotate against the floor; the largest log also as JSON Lines."""
    found: dict[str, Any] = {"parquet": [], "jsonl": []}
    plan = [("parquet", groups) for groups in _GROUPS[size]] + [("jsonl", _GROUPS[size][-1])]
    for suffix, groups in plan:
        log = whole.Log(folder, groups, suffix)
        found[suffix].append(whole.against_the_floor(log, repeat, options))
        log.path.unlink()
    for suffix in ("parquet", "jsonl"):
        header = list(found[suffix][0])
        rows = [[run[name] for name in header] for run in found[suffix]]
        measure.show(f"annotate, {suffix}: seconds", header, rows)
    steps, times = ([run[n] for run in found["parquet"]] for n in ("rows", "annotate"))
    found["slope"] = measure.slope(steps, times)
    print(f"  time grows as steps to the power {found['slope']:.2f}")
    return found


def start(size: str, repeat: int, folder: Path, options: list[str]) -> dict[str, Any]:
    """One training update."""
    found = whole.starting(whole.Log(folder, 16), max(repeat, 5))
    measure.show("16 groups: seconds", ["", "seconds"], list(found.items()))
    return found


def plain(size: str, repeat: int, folder: Path, options: list[str]) -> dict[str, Any]:
    """Credit stages against plain code."""
    groups, few = {"quick": (100, 10), "default": (1000, 50), "full": (1000, 1000)}[size]
    found = stages.against_plain_code(groups, max(repeat, 5), few)
    measure.show("keys to credit", ["", "seconds or ratio"], list(found.items()))
    return found


def growth(size: str, repeat: int, folder: Path, options: list[str]) -> dict[str, Any]:
    """Credit stages as one dimension grows."""
    found = stages.growth(size == "quick", repeat)
    for dimension, grown in found.items():
        header = ["", *map(str, grown["sizes"]), "slope"]
        rows = [[name, *grown["seconds"][name], grown["slopes"][name]] for name in grown["seconds"]]
        measure.show(f"{dimension}: seconds", header, [["steps", *grown["rows"], ""], *rows])
    return found


def shapes(size: str, repeat: int, folder: Path, options: list[str]) -> dict[str, Any]:
    """Extreme shapes."""
    scale = 10 if size == "quick" else 1
    rng = np.random.default_rng(0)
    logs = {
        "group of 10,000 rollouts": _log(rng, rollouts=10_000 // scale, steps=10),
        "rollout of 100,000 steps": _log(rng, rollouts=2, steps=100_000 // scale),
        "anchor with 50,000 actions": _log(rng, rollouts=50, steps=1000 // scale, anchors=1),
    }
    found = {}
    for name, frame in logs.items():
        table = frame.to_arrow()
        times = [measure.seconds(lambda t=table: crbc_cli.credit(t)) for _ in range(repeat)]
        found[name] = {"steps": frame.height, "seconds": statistics.median(times)}
    rows = [[name, run["steps"], run["seconds"]] for name, run in found.items()]
    measure.show(
        f"extreme shapes{', a tenth in size' if scale > 1 else ''}", ["", "steps", "seconds"], rows
    )
    return found


def _log(rng: np.random.Generator, rollouts: int, steps: int, anchors: int = 500) -> pl.DataFrame:
    """One group; every action at every anchor is new where there is one anchor."""
    n = rollouts * steps
    step = np.tile(np.arange(steps), rollouts)
    actions = np.arange(n) if anchors == 1 else rng.integers(0, 5, n)
    return pl.DataFrame(
        {
            "group_id": np.zeros(n, np.int64),
            "rollout_id": np.repeat(np.arange(rollouts), steps),
            "step": step,
            "observation": pl.Series(rng.integers(0, anchors, n)).cast(pl.String),
            "action": pl.Series(actions).cast(pl.String),
            "success": (step == steps - 1) & np.repeat(rng.random(rollouts) < 0.5, steps),
        }
    )


PARTS = {"whole": whole_runs, "start": start, "plain": plain, "growth": growth, "shapes": shapes}


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios of crbc to its floor and to plain code.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick")
    size.add_argument("--full", dest="size", action="store_const", const="full")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part; repeatable")
    parser.add_argument("--repeat", type=int, help="runs behind each median")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--annotate", default="", help='options of annotate: "--memory 500MB"')
    given = parser.parse_args()
    chosen = given.size or "default"
    repeat = given.repeat or (2 if chosen == "quick" else 3 if chosen == "full" else 5)
    found: dict[str, Any] = {"version": crbc_cli.__version__, "size": chosen, "repeat": repeat}
    with tempfile.TemporaryDirectory(prefix="crbc-benchmark-") as folder:
        for name in given.only or PARTS:
            found[name] = PARTS[name](chosen, repeat, Path(folder), given.annotate.split())
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
