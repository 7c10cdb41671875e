"""Step tables under other names: `step_idx` for `step`, or one JSON array of steps."""

from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table

__all__ = ["FORMAT"]


def _recognises(dump: Dump) -> bool:
    if not {"group_id", "rollout_id"} <= dump.keys:
        return False
    return "step_idx" in dump.keys or ("step" in dump.keys and dump.container == "json")


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for index, record in dump.records():
        where = dump.where(index)
        if not isinstance(record, dict):
            raise InputError("is no object", where)
        row = {"step" if k == "step_idx" else k: v for k, v in record.items()}
        required(row, "step", where)
        rows.append(row | {"source_record": index})
    return step_table(dump, rows, remarks)


FORMAT = Format(
    name="step-rows",
    title="step rows",
    writer="any, with step_idx for step or as a JSON array",
    recognises=_recognises,
    read=_read,
    group="`group_id`",
    rollout="`rollout_id`",
    step="`step`, `step_idx`",
    state="`observation`",
)
