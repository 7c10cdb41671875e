"""The trainer's side of the pipe: a log on disk, `crbc annotate` as a process, credit from stdout.

Nothing of `crbc` is imported. What goes over is a Parquet file with the columns of a step table,
what comes back an Arrow stream with one row of numbers per row of the log.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from policy import Rollouts
from rooms import ACTIONS, Floats, Rooms

CRBC = (sys.executable, "-m", "crbc_cli")
CREDIT_STAGES = ("arrange", "build", "solve", "coverage", "combine")
FILE_STAGES = ("read", "write")
_STAGE = re.compile(r"^\s*([a-z]+)\s+([\d.]+)\s+[\d.]+ %", re.MULTILINE)


@dataclass(frozen=True)
class Credit:
    """What `crbc annotate` gave for one log.

    Attributes:
      advantage: float64 (n,), 0 where a step has none.
      files: seconds of writing the log, and of crbc's own reading and writing.
      start: seconds of the process that are neither `files` nor `credit`: interpreter, imports.
      credit: seconds of the credit stages of its `--profile`.
    """

    advantage: Floats
    files: float
    start: float
    credit: float


def log_of(rooms: Rooms, rollouts: Rollouts) -> pa.Table:
    """The step table of a batch; a group is named after its room."""
    group = rollouts.rollout // rollouts.size
    last = np.append(rollouts.rollout[1:] != rollouts.rollout[:-1], True)
    success = last & rollouts.success[rollouts.rollout]
    names = pa.array([rooms.names[room] for room in rollouts.room])
    return pa.table(
        {
            "group_id": names.take(pa.array(group)),
            "rollout_id": rollouts.rollout % rollouts.size,
            "step": rollouts.step,
            "observation": rooms.boards.take(pa.array(rollouts.state)),
            "action": pa.array(ACTIONS).take(pa.array(rollouts.action)),
            "reward": success.astype(np.float64),
            "done": last,
            "success": success,
            "truncated": last & ~success,
            "next_observation": rooms.boards.take(pa.array(rollouts.after)),
        }
    )


def annotate(log: pa.Table, method: str) -> Credit:
    """Credit of every step of `log` by one method.

    Raises:
      RuntimeError: the program failed; with its message.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollouts.parquet"
        started = time.perf_counter()
        pq.write_table(log, path)
        written = time.perf_counter()
        done = subprocess.run(
            [*CRBC, "annotate", path, "--method", method, "-o", "-", "--to", "arrow", "--profile"],
            capture_output=True,
            check=False,
        )
        whole = time.perf_counter() - written
    report = done.stderr.decode()
    if done.returncode:
        raise RuntimeError(f"crbc annotate ended with {done.returncode}: {report}")
    table = pa.ipc.open_stream(done.stdout).read_all()
    if table["source_row"].to_pylist() != list(range(len(log))):
        raise RuntimeError("the credit is not aligned with the rows of the log")
    advantage = pc.fill_null(table["advantage"], 0.0).to_numpy().copy()
    stage = {name: float(seconds) for name, seconds in _STAGE.findall(report)}
    credit = sum(stage[name] for name in CREDIT_STAGES)
    files = sum(stage[name] for name in FILE_STAGES)
    return Credit(advantage, written - started + files, whole - credit - files, credit)
