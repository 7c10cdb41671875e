"""VAGEN without concatenation: one row per turn, saved from the trainer's batch.

Writer: VAGEN (2936322), `no-concat` loop: `group_idx`, `traj_idx`, `turn_idx`, `last_turn`,
`traj_success` on every row of the DataProto. Its own disk dump is verl's, without them.
"""

from typing import Any

import polars as pl

from crbc_cli.logs.formats.dataproto import row_keys, rows_of
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table

__all__ = ["FORMAT"]

_IDENTITY = {"group_idx", "traj_idx", "turn_idx"}
_STATES = ("anchor_obs", "observation", "obs", "obs_str", "raw_prompt", "prompt", "input")
_ACTIONS = ("action", "actions", "text_actions", "response", "output")
_REWARDS = ("reward", "rewards", "turn_reward", "score")


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    used: set[str] = set()
    for index, row in rows_of(dump):
        where = dump.where(index)
        state, action, reward = (_first(row, names) for names in (_STATES, _ACTIONS, _REWARDS))
        used.add(f"observation is {state}, action is {action}")
        made = {
            "group_id": required(row, "group_idx", where),
            "rollout_id": required(row, "traj_idx", where),
            "step": required(row, "turn_idx", where),
            "observation": row.get(state),
            "action": row.get(action),
            "reward": row.get(reward),
            "source_record": index,
        }
        if "last_turn" in row:
            made["done"] = bool(row["last_turn"])
        if "traj_success" in row:
            made["success"] = bool(row["traj_success"])
        rows.append(made)
    for text in sorted(used):
        remarks.say("columns", text)
    if any("success" in row for row in rows):
        remarks.say("outcome", "success is traj_success")
    return step_table(dump, rows, remarks)


def _first(row: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((name for name in names if name in row), "missing")


FORMAT = Format(
    name="vagen",
    title="VAGEN turns",
    writer="VAGEN (2936322), no-concat loop",
    recognises=lambda dump: row_keys(dump) >= _IDENTITY,
    read=_read,
    group="`group_idx`",
    rollout="`traj_idx`",
    step="`turn_idx`",
    state="`anchor_obs`, else the prompt",
)
