"""Measuring: child processes, interleaved medians, log-log slopes, plain tables."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]

# Set to 1 in this process: on the small systems of the plain code more threads only spin.
BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True)
class Ran:
    """A child process that ended well.

    Attributes:
      wall, cpu: seconds, the interpreter's start included.
      out, err: what it wrote.
    """

    wall: float
    cpu: float
    out: str
    err: str


def child(*arguments: str) -> Ran:
    """Runs `python ARGUMENTS` from the repository, so that it imports the package there.

    Raises:
      RuntimeError: it failed; holds what it wrote.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if k != BLAS_THREADS},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - start
        out.seek(0)
        err.seek(0)
        ran = Ran(wall, usage.ru_utime + usage.ru_stime, out.read(), err.read())
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {ran.err[-2000:]}")
    return ran


def seconds(function: Callable[[], object]) -> float:
    """CPU time of one call, which is its wall time on an idle machine: stages use one thread."""
    start = time.process_time()
    function()
    return time.process_time() - start


def medians(cases: Mapping[str, Callable[[], float]], repeat: int) -> dict[str, float]:
    """Median of what each case gives, the cases taking turns."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeat):
        for name, case in cases.items():
            found[name].append(case())
    return {name: statistics.median(values) for name, values in found.items()}


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Exponent of growth: the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table; numbers get four significant digits."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    print(f"\n{title}")
    for line in (list(header), *texts):
        cells = zip(line, widths, strict=True)
        print("  " + "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(cells)))
    sys.stdout.flush()


def _text(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
