"""OpenRLHF saves no rollouts; an Experience that a user wrote down has token arrays per sequence.

Fields: OpenRLHF 0.11.0, Experience. Groups are blocks of n_samples_per_prompt consecutive rows.
"""

from typing import Any

import polars as pl

from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, step_table

__all__ = ["FORMAT"]


def _recognises(dump: Dump) -> bool:
    return {"sequences", "action_mask", "rewards"} <= dump.keys


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for index, record in dump.records():
        acted = [a for a, m in zip(*_arrays(record), strict=False) if m]
        rows.append(
            {
                "rollout_id": record.get("index", index),
                "step": 0,
                "observation": None,
                "action": None,
                "reward": record.get("rewards"),
                "done": not record.get("truncated"),
                "truncated": bool(record.get("truncated")),
                "prompt": record.get("prompts"),
                "logged_advantage": sum(acted) / len(acted) if acted else None,
                "source_record": index,
            }
        )
    return step_table(dump, rows, remarks)


def _arrays(record: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    return record.get("advantages") or [], record.get("action_mask") or []


FORMAT = Format(
    name="openrlhf",
    title="OpenRLHF experiences",
    writer="OpenRLHF 0.11.0, Experience as a user saves it",
    recognises=_recognises,
    read=_read,
    rollout="`index`",
    lacks="a row is one token sequence, without steps, observations or a group "
    "(groups are n_samples_per_prompt consecutive rows)",
)
