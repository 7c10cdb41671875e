"""How close is each credit to what the action was worth? Every method, on logs with exact values.

    python tests/learning/fidelity.py --quick      # minutes: 60 rooms
    python tests/learning/fidelity.py --full --out tests/learning/results/fidelity.json

Makes Sokoban logs whose behaviour policy's values are known exactly
(`sample_logs.generators.sokoban_fidelity`), runs `crbc compare --truth` on them for every method,
closure depths 0 to 8 and inf, and groups of 4, 8 and 16 rollouts, and prints two tables: the
cosine of the estimated with the true tabular policy gradient, and paired differences, both with
95 % intervals clustered by room. The commands are printed on stderr as they run.

Needs gym-sokoban beside the package's own requirements; see tests/learning/requirements.txt.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fidelity_tables
import polars as pl
from kept import versions, write

sys.path.insert(0, str(Path(__file__).parents[2]))

from sample_logs.generators import sokoban_fidelity
from sample_logs.generators.truth_log import write_parquet

CRBC = (sys.executable, "-m", "crbc_cli")
SIZES = (4, 8, 16)
SEED = 3


@dataclass(frozen=True)
class Setting:
    """One way to look at a log.

    Attributes:
      name: in the tables.
      skill: of the log; see `sokoban_fidelity`.
      truth: column of the true advantage.
      arguments: further arguments of `crbc compare`.
    """

    name: str
    skill: float = 0.0
    truth: str = "true_advantage"
    arguments: tuple[str, ...] = ()


SETTINGS = (
    Setting("exact"),
    Setting("untimed", truth="true_advantage_untimed"),
    Setting(
        "view",
        arguments=("--map", "observation=view", "--map", "next_observation=next_view"),
    ),
    Setting("skill 0.75", skill=0.75),
    Setting("skill 1.5", skill=1.5),
)

STEP_TERMS = (
    "grpo",
    "rloo",
    "gigpo=gigpo:norm=mean",
    "gigpo_98=gigpo:norm=mean:gamma=0.98",
    "gigpo_std=gigpo",
    "g2po=g2po:norm=mean",
    "g2po_std=g2po",
    "graphgpo_1=graphgpo",
    "graphgpo_8=graphgpo:omega=0.8",
    "bepo=gated-bepo",
    "hgpo",
    "rtmc",
    "rewardflow",
    *(f"k{depth}=crbc:floor=1:depth={depth}" for depth in (*range(9), "inf")),
    "as3=crbc:depth=3",
    "as=crbc",
    "sigma=crbc:floor=1e-9",
)
"""Step terms alone. σ never exceeds 1/2, so a floor of 1 leaves the credit undivided."""

ENDINGS = ("k8=crbc:floor=1:depth=8", "kinf=crbc:floor=1", "as=crbc")
"""Under `--truncated fail` and `bootstrap`; only these depend on it."""

MIXTURES = ("grpo", "as=crbc:w_g=0", "mix=crbc", "graph_mix=graphgpo")
"""Whole advantages: the group's term, the step term, both."""


def compare(log: Path, setting: Setting, methods: Sequence[str], *arguments: str) -> dict[str, Any]:
    """The report of one `crbc compare`."""
    command = [
        *("compare", str(log), "--truth", setting.truth, "--group-size", ",".join(map(str, SIZES))),
        *("--methods", ",".join(methods), *setting.arguments, *arguments),
        *("--disagreements", "0", "--json"),
    ]
    print("crbc", shlex.join([command[0], log.name, *command[2:]]), file=sys.stderr)
    done = subprocess.run([*CRBC, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"crbc compare ended with {done.returncode}: {done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def reports(log: Path, setting: Setting) -> Iterator[dict[str, Any]]:
    """All comparisons under one setting."""
    yield compare(log, setting, STEP_TERMS)
    yield compare(log, setting, ENDINGS, "--sweep", "truncated=fail,bootstrap")
    yield compare(log, setting, MIXTURES, "--score", "advantage")


def row_name(name: str) -> str:
    """Name of an entry in the tables: its label, and ` boot` with bootstrapped ends."""
    return name.replace(" truncated=fail", "").replace(" truncated=bootstrap", " boot")


def cells(setting: str, report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a report says of each entry, as flat rows."""
    for result in report["results"]:
        metrics = result["metrics"]
        yield {
            "setting": setting,
            "size": result["group_size"],
            "row": row_name(result["name"]),
            "groups": metrics["cosine"]["groups"],
            "cosine_se": round(metrics["cosine"]["se"], 4),
            **{metric: round(interval["mean"], 4) for metric, interval in metrics.items()},
            "signs": round(result["errors"]["signs"], 4),
        }


def differences(setting: str, report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Paired differences of the cosine for `fidelity_tables.PAIRS`, as flat rows."""
    for found in report["differences"]:
        pair = row_name(found["a"]), row_name(found["b"])
        sign = (
            1 if pair in fidelity_tables.PAIRS else -1 if pair[::-1] in fidelity_tables.PAIRS else 0
        )
        if sign:
            a, b = pair[::sign]
            cosine = found["metrics"]["cosine"]
            mean, se = round(sign * cosine["mean"], 4), round(cosine["se"], 4)
            yield {"setting": setting, "size": found["group_size"], "a": a, "b": b} | {
                "cosine": mean,
                "cosine_se": se,
            }


def aliased(log: pl.DataFrame, anchor: str) -> float:
    """Share of steps whose anchor stands for several true states of the room."""
    states = log.select(pl.col("true_state").n_unique().over("group_id", anchor)).to_series()
    return float((states > 1).to_numpy().mean())


def study(rooms: int, rollouts: int, seed: int, jobs: int) -> dict[str, Any]:
    """Makes the logs and compares; everything that the tables need."""
    logs: dict[str, Any] = {}
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    pairs: dict[tuple[Any, ...], dict[str, Any]] = {}
    made = 0.0
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for setting in SETTINGS:
            log = Path(folder) / f"skill-{setting.skill:g}.parquet"
            if not log.exists():
                begin = time.perf_counter()
                table = sokoban_fidelity.make_log(rooms, rollouts, seed, setting.skill, jobs=jobs)
                write_parquet(table, log)
                made += time.perf_counter() - begin
                frame = pl.DataFrame(table)
                ends = frame.filter("done")
                logs[log.stem] = {
                    "rows": frame.height,
                    "success": round(float(ends["success"].to_numpy().mean()), 4),
                    "aliased": round(aliased(frame, "observation"), 4),
                    "aliased_view": round(aliased(frame, "view"), 4),
                }
            for report in reports(log, setting):
                for row in cells(setting.name, report):
                    rows.setdefault((setting.name, row["size"], row["row"]), row)
                for pair in differences(setting.name, report):
                    pairs.setdefault(tuple(pair.values())[:4], pair)
    return {
        "rooms": rooms,
        "rollouts": rollouts,
        "seed": seed,
        "versions": versions(CRBC),
        "seconds": {
            "making the logs": round(made, 1),
            "in all": round(time.perf_counter() - started, 1),
            "processor": round(processor_seconds(), 1),
        },
        "logs": logs,
        "cells": list(rows.values()),
        "differences": list(pairs.values()),
    }


def processor_seconds() -> float:
    """Processor time of this program and of the programs that it waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="60 rooms (the default)")
    size.add_argument("--full", action="store_true", help="400 rooms")
    size.add_argument("--rooms", type=int, default=60)
    parser.add_argument("--rollouts", type=int, default=16, help="rollouts of each room")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=2, help="processes that make the logs")
    parser.add_argument("--out", type=Path, help="keep the numbers in this JSON file")
    arguments = parser.parse_args()
    rooms = 400 if arguments.full else arguments.rooms
    done = study(rooms, arguments.rollouts, arguments.seed, arguments.jobs)
    if arguments.out is not None:
        write(done, arguments.out)
    print(fidelity_tables.cosines(done))
    print(fidelity_tables.differences(done))
    print(fidelity_tables.facts(done))


if __name__ == "__main__":
    main()
