"""Selective Rollout: one JSON line per group, with the observation each step acted on.

Writer: zhiyuanZhai20/selective-rollout, src/rollout.py. `terminated_at` is the index of the step
whose `done` became true, -1 if none did. A rollout that the gate cut has `terminated_at` = K - 1
and `won` false; only `done` false on that step tells it from one that ended.
"""

from typing import Any

import polars as pl

from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table
from crbc_cli.notes import counted

__all__ = ["FORMAT"]


def _recognises(dump: Dump) -> bool:
    rollouts = dump.first.get("trajectories") if {"task_id", "trajectories"} <= dump.keys else None
    return (
        isinstance(rollouts, list)
        and bool(rollouts)
        and isinstance(rollouts[0], dict)
        and "terminated_at" in rollouts[0]
    )


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    cut = empty = 0
    for index, record in dump.records():
        where = dump.where(index)
        for number, rollout in enumerate(required(record, "trajectories", where)):
            steps = required(rollout, "steps", where)
            empty += not steps
            ended = bool(steps) and bool(steps[-1].get("done"))
            cut += bool(steps) and not ended
            for t, step in enumerate(steps):
                last = t + 1 == len(steps)
                rows.append(
                    {
                        "group_id": required(record, "task_id", where),
                        "rollout_id": number,
                        "step": t,
                        "observation": step.get("obs"),
                        "action": step.get("action"),
                        "reward": step.get("reward"),
                        "done": bool(step.get("done")),
                        "success": last and bool(rollout.get("won")),
                        "truncated": last and not ended,
                        "response": step.get("raw_completion"),
                        "source_record": index,
                    }
                )
    remarks.say("outcome", "success is won of each rollout")
    if cut:
        remarks.say("cut", f"{counted(cut, 'rollout')} cut: the last step is not done")
    if empty:
        remarks.say("empty_rollouts", f"{counted(empty, 'rollout')} without steps left out")
    return step_table(dump, rows, remarks)


FORMAT = Format(
    name="selective-rollout",
    title="Selective Rollout groups",
    writer="zhiyuanZhai20/selective-rollout, src/rollout.py",
    recognises=_recognises,
    read=_read,
    group="`task_id`",
    rollout="list index",
    step="list index",
    state="`obs`",
)
