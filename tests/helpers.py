"""What several test modules need: rows written as paths, tables, files, and the comparison.

Logs are lists of rows (dicts), as the oracle takes them; the package gets them as an Arrow table
or as files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import polars as pl
import pyarrow as pa
import pytest
from oracle import Key, Row

import crbc_cli
from crbc_cli.api import annotate
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.load import load
from crbc_cli.engine.prepare import Prepared, prepare
from crbc_cli.logs.sources import Source
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.process.empirical import EmpiricalProcess
from crbc_cli.tables import CREDIT_COLUMNS

INF = math.inf
IDENTITY = ("source_file", "source_row", "group_id", "rollout_id", "step")
CREDIT = tuple(c.name for c in CREDIT_COLUMNS if c.name not in IDENTITY)
FLOATS = tuple(c.name for c in CREDIT_COLUMNS if c.dtype == "Float64")

Rows = list[dict[str, Any]]
Columns = dict[str, list[Any]]


# --- logs by hand ---------------------------------------------------------------------------------


def rollout(name: Any, path: str, success: Any, *, group: Any = "g", **last: Any) -> Rows:
    """The rows of one finished rollout; keywords set cells of its last row.

    rollout("t0", "S-a M-p", 1) visits S with action a, then M with p, and succeeds.
    """
    rows: Rows = []
    for step, visit in enumerate(path.split()):
        observation, action = visit.split("-")
        row = {"group_id": group, "rollout_id": name, "step": step, "observation": observation}
        rows.append(row | {"action": action, "done": False, "success": success})
    rows[-1] |= {"done": True} | last
    return rows


def one(name: Any, observation: Any, action: Any, success: Any, **cells: Any) -> dict[str, Any]:
    """A one-step rollout with any observation."""
    row = {"group_id": "g", "rollout_id": name, "step": 0, "observation": observation}
    return row | {"action": action, "done": True, "success": success} | cells


GOLDEN = [
    *rollout("t0", "S-a M-p", True),
    *rollout("t1", "S-a M-q", False),
    *rollout("t2", "S-b N-c M-p", True),
    *rollout("t3", "S-b N-d", False),
]
"""Small enough to solve by hand; S, M and N are seen first in rows 0, 1 and 5."""


# --- the package on rows --------------------------------------------------------------------------


def table_of(rows: Sequence[Row]) -> pa.Table:
    """The rows as an Arrow table; a column that a row lacks is null there."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _array([row.get(name) for row in rows]) for name in names})


def _array(values: list[Any]) -> pa.Array:
    """Arrow infers the type, but mixes neither flags nor integers with NaN."""
    if any(isinstance(value, float) for value in values):
        values = [float(v) if isinstance(v, bool | int) else v for v in values]
    return pa.array(values, from_pandas=False)


def package_credit(rows: Sequence[Row], **options: Any) -> Columns:
    """Credit columns of `crbc_cli.credit`, in input order."""
    table = crbc_cli.credit(table_of(rows), **options)
    return {name: table[name].to_pylist() for name in table.column_names if name not in IDENTITY}


def write_log(rows: Sequence[Row], path: Path) -> Path:
    """Writes a log as Parquet or JSONL, by suffix; `source_file` is not a column of it."""
    rows = [{name: v for name, v in row.items() if name != "source_file"} for row in rows]
    if path.suffix == ".parquet":
        table = pl.from_arrow(table_of(rows))
        assert isinstance(table, pl.DataFrame)
        table.write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def annotated_rows(
    rows: Sequence[Row], folder: Path, suffix: str = ".parquet", **options: Any
) -> Columns:
    """Credit columns of `annotate`, through files: one input per distinct `source_file`, one
    output. In the order of `rows`."""
    files: dict[Any, list[int]] = {}
    for index, row in enumerate(rows):
        files.setdefault(row.get("source_file"), []).append(index)
    paths = []
    for number, members in enumerate(files.values()):
        path = write_log([rows[i] for i in members], folder / f"log{number}{suffix}")
        paths.append(str(path))
    output = folder / f"credit{suffix}"
    annotate(paths, str(output), force=True, **options)
    frame = pl.read_parquet(output) if suffix == ".parquet" else pl.read_ndjson(output)
    order = np.argsort([index for members in files.values() for index in members])
    frame = frame[order]
    return {name: frame[name].to_list() for name in frame.columns if name not in IDENTITY}


def prepared(rows: Sequence[Row], **options: Any) -> Prepared:
    """A log in canonical order, in memory."""
    settings = Settings.from_flat(options)
    frame = pl.from_arrow(table_of(rows))
    assert isinstance(frame, pl.DataFrame)
    source = Source("<table>", Path(), "memory", frame=frame)
    return prepare(load([source], settings, Clock(), Notes()), settings, Clock())


def process_of(rows: Sequence[Row], **options: Any) -> EmpiricalProcess:
    """All groups of a log, merged."""
    [chunk] = prepared(rows, **options).chunks(Clock())
    return chunk.process


# --- the oracle under the package's option names --------------------------------------------------

_RENAMED = {"floor": "sigma_min", "invalid_penalty": "penalty", "penalty": "penalty_size"}
_ESTIMATORS = {
    "grpo": {"estimator": "grpo", "scale": "std"},
    "dr-grpo": {"estimator": "grpo", "scale": "none"},
    "rloo": {"estimator": "rloo"},
}


def oracle_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The oracle's keywords for options of the package."""
    result: dict[str, Any] = {}
    for name, value in options.items():
        if name == "estimator":
            result |= _ESTIMATORS[value]
        elif name == "boundary":
            result[name] = None if value == "outcome" else value
        elif name == "expected_group_size":
            result[name] = value or None
        else:
            result[_RENAMED.get(name, name)] = value
    if result.get("spanning_rollouts"):
        result["spanning_groups"] = True
    return result


def oracle_credit(rows: Rows, **options: Any) -> Columns:
    """The oracle's credit columns, in input order."""
    cells = oracle.credit_rows(rows, **oracle_options(options))
    return {name: [cell[name] for cell in cells] for name in CREDIT}


# --- comparing ------------------------------------------------------------------------------------


def approx(values: Any, tolerance: float = 6e-7) -> Any:
    """Within the rounding of six printed decimals; None equals None."""
    if isinstance(values, list | tuple):
        return [approx(value, tolerance) for value in values]
    return None if values is None else pytest.approx(values, abs=tolerance, rel=0)


def four(values: Any) -> Any:
    """Within the rounding of four printed decimals (0.7071 against 0.7071057 of std + 1e-6)."""
    return approx(values, 6e-5)


def same_credit(ours: Columns, theirs: Columns, tolerance: float = 1e-10) -> float:
    """Asserts equal credit: integers, strings and nulls exactly, numbers within `tolerance`.

    Returns the largest difference.
    """
    worst = 0.0
    for name in CREDIT:
        left, right = ours[name], theirs[name]
        if name not in FLOATS:
            rows = [i for i, (a, b) in enumerate(zip(left, right, strict=True)) if a != b]
            assert not rows, f"{name} of row {rows[0]}: {left[rows[0]]} against {right[rows[0]]}"
            continue
        assert [v is None for v in left] == [v is None for v in right], f"nulls of {name}"
        a, b = (np.array([0.0 if v is None else v for v in side]) for side in (left, right))
        difference = np.abs(a - b)
        row = int(difference.argmax()) if len(left) else 0
        # Not (x <= y), so that a NaN fails as well.
        assert not len(left) or difference[row] <= tolerance, (
            f"{name} of row {row}: {left[row]} against {right[row]}"
        )
        worst = max(worst, float(difference.max(initial=0.0)))
    return worst


def by_key(rows: Sequence[Row], columns: Columns) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Credit cells per (file, group, rollout, step)."""
    cells = zip(*(columns[name] for name in CREDIT), strict=True)
    keys = (
        (row.get("source_file"), row["group_id"], row["rollout_id"], row["step"]) for row in rows
    )
    return dict(zip(keys, cells, strict=True))


def anchors_of(rows: Sequence[Row]) -> list[Key]:
    """Canonical observation of each row."""
    return [oracle.canonical(row["observation"]) for row in rows]
