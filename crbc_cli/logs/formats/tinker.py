"""Tinker cookbook: `{base}_rollout_summaries.jsonl`, one trajectory per line.

Writer: tinker-cookbook 0.6.1, tinker_cookbook/rl/rollout_logging.py. It logs lengths, no text: a
closure is possible only where the environment writes what it showed into `logs`, as `anchor`,
`observation` or `state`, and the action as `action`. Those are read; without them nothing but
trajectory terms can be computed.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.endings import Endings
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table

__all__ = ["FORMAT", "LENGTHS"]

_STATES = ("anchor", "observation", "state", "obs")


def _recognises(dump: Dump) -> bool:
    if not {"group_idx", "traj_idx", "steps"} <= dump.keys:
        return False
    steps = dump.first["steps"]
    return isinstance(steps, list) and all(isinstance(s, Mapping) and "ob_len" in s for s in steps)


def _has_states(dump: Dump) -> bool:
    return _recognises(dump) and any(_state(step) is not None for step in dump.first["steps"])


def _state(step: Mapping[str, Any]) -> Any:
    logs = step.get("logs") or {}
    return next((logs[name] for name in _STATES if logs.get(name) is not None), None)


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    return _table(dump, remarks, states=True)


def _read_lengths(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    return _table(dump, remarks, states=False)


def _table(dump: Dump, remarks: Remarks, *, states: bool) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    endings = Endings()
    for index, record in dump.records():
        where = dump.where(index)
        steps = required(record, "steps", where)
        ended = bool(steps) and bool(steps[-1].get("episode_done"))
        endings.empty += not steps
        if steps and not ended:
            endings.cut["last step not episode_done"] += 1
        for t, step in enumerate(steps):
            last = t + 1 == len(steps)
            state = _state(step)
            if states and state is None:
                raise InputError(
                    f"step {t} has no anchor in its logs", where, "log it on every step"
                )
            rows.append(
                {
                    "group_id": required(record, "group_idx", where),
                    "rollout_id": required(record, "traj_idx", where),
                    "step": step.get("step_idx", t),
                    "observation": state,
                    "action": (step.get("logs") or {}).get("action"),
                    "reward": step.get("reward"),
                    "done": bool(step.get("episode_done")),
                    "truncated": last and not ended,
                    "total_reward": record.get("total_reward"),
                    "iteration": record.get("iteration"),
                    "split": record.get("split"),
                    "source_record": index,
                }
            )
    endings.tell(remarks)
    return step_table(dump, rows, remarks)


FORMAT = Format(
    name="tinker",
    title="Tinker rollout summaries with anchors",
    writer="tinker-cookbook 0.6.1, *_rollout_summaries.jsonl",
    recognises=_has_states,
    read=_read,
    group="`group_idx` (of the file)",
    rollout="`traj_idx`",
    step="`step_idx`",
    state="`logs.anchor`, if the environment logs it",
)

LENGTHS = Format(
    name="tinker-lengths",
    title="Tinker rollout summaries without anchors",
    writer="tinker-cookbook 0.6.1, *_rollout_summaries.jsonl",
    recognises=_recognises,
    read=_read_lengths,
    group="`group_idx` (of the file)",
    rollout="`traj_idx`",
    step="`step_idx`",
    lacks="its steps hold lengths instead of observations and actions (group_idx is there, so "
    "--group-by group_id gives trajectory terms); have the environment write logs.anchor and "
    "logs.action",
    hook="tinker",
)
