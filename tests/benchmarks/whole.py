"""Whole runs as child processes: `crbc annotate` against the floor, how it grows, how it starts.

The floor of a log is what nobody can do without: polars scanning it (streaming) and hashing the
observation column, plus polars writing the finished credit table.
"""

import json
import re
from pathlib import Path
from typing import Any

import measure
import synthetic

_FLOOR = """
import json, sys, time
import polars as pl
log, credit, out = sys.argv[1:]
start = time.perf_counter()
scan = pl.scan_parquet(log) if log.endswith(".parquet") else pl.scan_ndjson(log)
scan.select(pl.col("observation").hash()).collect(engine="streaming")
scanned = time.perf_counter() - start
table = pl.read_parquet(credit)
start = time.perf_counter()
table.write_parquet(out, compression="zstd", compression_level=3)
print(json.dumps({"scan": scanned, "write": time.perf_counter() - start}))
"""
_READ = """
import sys, time
import polars as pl
start = time.perf_counter()
pl.read_ndjson(sys.argv[1])
print(time.perf_counter() - start)
"""
_HASH = """
import sys, time
import polars as pl
start = time.perf_counter()
pl.scan_ndjson(sys.argv[1]).select(pl.all().hash().sum()).collect(engine="streaming")
print(time.perf_counter() - start)
"""


class Log:
    """A synthetic log on disk, written when it is first asked for."""

    def __init__(self, folder: Path, groups: int, suffix: str = "parquet") -> None:
        self.groups = groups
        self.path = folder / f"log-{groups}.{suffix}"
        self.credit = folder / f"credit-{groups}-{suffix}.parquet"
        self.again = folder / f"again-{groups}-{suffix}.parquet"
        self.rows = synthetic.write(self.path, groups)

    def annotate(self, options: list[str]) -> tuple[measure.Ran, float]:
        """(the process, its peak memory in MiB)."""
        ran = measure.child(
            *("-m", "crbc_cli", "annotate", str(self.path), "-o", str(self.credit)),
            *("--force", "--profile", *options),
        )
        peak = re.search(r"peak memory\s+(\d+)\s+MiB", ran.err)
        return ran, float(peak[1]) if peak else float("nan")

    def floor(self) -> dict[str, float]:
        """Seconds of its two halves."""
        command = ("-c", _FLOOR, str(self.path), str(self.credit), str(self.again))
        parts: dict[str, float] = json.loads(measure.child(*command).out)
        return parts

    def solve(self) -> float:
        """Seconds of solving and normalising in one thread."""
        ran, _ = self.annotate(["--threads", "1"])
        found = re.search(r"solve\s+([\d.]+)", ran.err)
        return float(found[1]) if found else float("nan")

    def read(self) -> float:
        """Seconds that polars takes to read a JSON Lines log into memory."""
        return float(measure.child("-c", _READ, str(self.path)).out)

    def hash(self) -> float:
        """Seconds that polars takes to stream through one, hashing every column."""
        return float(measure.child("-c", _HASH, str(self.path)).out)

    def convert(self) -> float:
        """Seconds of `crbc convert` to Parquet, start-up included."""
        command = ("-m", "crbc_cli", "convert", str(self.path), "-o", str(self.again))
        return measure.child(*command, "--force").wall


def against_the_floor(log: Log, repeat: int, options: list[str]) -> dict[str, Any]:
    """Medians of interleaved runs of annotate, the floor and what else there is to compare."""
    peaks = [log.annotate(options)[1]]  # this one writes the table that the floor writes again

    def annotate() -> float:
        ran, peak = log.annotate(options)
        peaks.append(peak)
        return ran.wall

    cases = {"annotate": annotate, "floor": lambda: sum(log.floor().values())}
    if log.path.suffix == ".jsonl":
        cases |= {"read": log.read, "hash": log.hash, "convert": log.convert}
    else:
        cases["solve"] = log.solve
    found = measure.medians(cases, repeat)
    found["ratio to floor"] = found["annotate"] / found["floor"]
    if "read" in found:
        found["ratio to read"] = found["annotate"] / found["read"]
    return {"groups": log.groups, "rows": log.rows, **found, "peak MiB": max(peaks)}


def starting(log: Log, repeat: int) -> dict[str, float]:
    """CPU seconds of one small annotate, beyond those of importing polars; credit stages apart."""
    found = measure.medians(
        {
            "polars cpu": lambda: measure.child("-c", "import polars").cpu,
            "annotate cpu": lambda: log.annotate([])[0].cpu,
            "help wall": lambda: measure.child("-m", "crbc_cli", "--help").wall,
            "credit stages": lambda: json.loads(
                measure.child("-m", "crbc_cli", "profile", str(log.path), "--json").out
            )["credit_seconds"],
        },
        repeat,
    )
    found["beyond polars cpu"] = found["annotate cpu"] - found["polars cpu"]
    return found
