"""How far `crbc annotate` is from the cost of reading and writing alone.

    python tests/benchmarks/annotate.py [--groups 1000] [--repeat 5] [--format parquet|jsonl]

Makes a synthetic log (see synthetic.py) and times, interleaved in one run:

* the floor: polars scanning the log and hashing the observation column, plus polars writing the
  finished credit table;
* `crbc annotate` on the same log, stage by stage;
* a per-group dense solve and a per-row dictionary implementation, for comparison of the solve.

Prints medians and their ratios to the floor. Start-up (interpreter and imports) is measured apart.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from crbc_cli import api
from crbc_cli.engine.clock import Clock
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.process.closure import exact_values
from crbc_cli.process.empirical import EmpiricalProcess

sys.path.insert(0, str(Path(__file__).parent))
import synthetic

CREDIT_STAGES = ("arrange", "build", "solve", "coverage", "combine")


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def scan_and_hash(log: Path) -> None:
    """The reading half of the floor."""
    scan = pl.scan_parquet(log) if log.suffix == ".parquet" else pl.scan_ndjson(log)
    scan.select(pl.col("observation").hash()).collect()


def dense_per_group(process: EmpiricalProcess, discount: float) -> np.ndarray:
    """The straightforward closure: one dense solve per group."""
    values = np.zeros(process.states)
    bounds = np.searchsorted(process.state_group, np.arange(process.groups + 1))
    visit_bounds = np.searchsorted(process.visit_group, np.arange(process.groups + 1))
    for first, last, start, stop in zip(
        bounds[:-1], bounds[1:], visit_bounds[:-1], visit_bounds[1:], strict=True
    ):
        n = int(last - first)
        matrix, right = np.zeros((n, n)), np.zeros(n)
        state = process.state[start:stop] - first
        successor = process.successor[start:stop]
        inner = successor >= 0
        np.add.at(matrix, (state[inner], successor[inner] - first), 1.0)
        np.add.at(right, state, process.exit_value[start:stop])
        count = np.bincount(state, minlength=n)
        matrix = np.eye(n) - discount * matrix / count[:, None]
        values[first:last] = np.linalg.solve(matrix, discount * right / count)
    return values


def stages(log: Path, output: Path) -> dict[str, float]:
    """Seconds per stage of one annotate in this process."""
    clock = Clock()
    api.annotate([str(log)], str(output), force=True, clock=clock)
    return clock.seconds


def whole_run(log: Path, output: Path) -> tuple[float, float]:
    """(seconds, peak MiB) of `crbc annotate` as a process of its own."""
    command = [sys.executable, "-m", "crbc_cli", "annotate", str(log), "-o", str(output)]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--force", "--profile"], check=True, capture_output=True, text=True
    )
    elapsed = time.perf_counter() - start
    peak = re.search(r"peak memory\s+(\d+)\s+MiB", done.stderr)
    return elapsed, float(peak[1]) if peak else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios of crbc annotate to its floor.")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--format", choices=("parquet", "jsonl"), default="parquet")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / f"log.{options.format}"
        output = Path(folder) / "credit.parquet"
        rows = synthetic.write(log, options.groups)
        stages(log, output)
        table = pl.read_parquet(output)
        prepared = next(iter(api.prepared_logs([str(log)], Settings(), Clock(), Notes())))
        chunk = next(iter(prepared.chunks(Clock(), 10**9)))
        times: dict[str, list[float]] = {}
        peaks: list[float] = []

        def record(name: str, value: float) -> None:
            times.setdefault(name, []).append(value)

        for _ in range(options.repeat):
            record("scan + hash", seconds(lambda: scan_and_hash(log)))
            record("write", seconds(lambda: table.write_parquet(output, compression_level=3)))
            record(
                "start-up",
                seconds(
                    lambda: subprocess.run(
                        [sys.executable, "-c", "import crbc_cli.api.outputs"], check=True
                    )
                ),
            )
            for stage, value in stages(log, output).items():
                record(f"stage {stage}", value)
            elapsed, peak = whole_run(log, output)
            record("annotate", elapsed)
            peaks.append(peak)
            record("closure", seconds(lambda: exact_values(chunk.process, 0.98)))
            record("dense per group", seconds(lambda: dense_per_group(chunk.process, 0.98)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    floor = medians["scan + hash"] + medians["write"]
    medians["annotate beyond start-up"] = medians["annotate"] - medians["start-up"]
    if options.json:
        print(json.dumps({"rows": rows, "peak_mib": max(peaks), "floor": floor, **medians}))
        return
    print(f"{rows} rows, medians of {options.repeat} interleaved runs; floor = scan + hash + write")
    print(f"{'':28}{'seconds':>9}{'x floor':>9}")
    for name, value in {"floor": floor, **medians}.items():
        print(f"{name:28}{value:9.4f}{value / floor:9.2f}")
    print(f"peak memory of annotate {max(peaks):.0f} MiB")


if __name__ == "__main__":
    main()
