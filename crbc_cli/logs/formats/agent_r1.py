"""Agent-R1: one JSON line per trajectory with its steps.

Writer: Agent-R1 (6dc8f67, 2026-04-27), `{dir}/{global_step}.jsonl`. Nothing names the group: in
validation dumps `trajectory_uid` holds the group's uid, the same for all its rollouts, and in
training dumps an own one. `input` of a step holds the history; `score` is the step's reward.
"""

from typing import Any

import polars as pl

from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import (
    Format,
    Remarks,
    ending,
    required,
    step_numbers,
    step_table,
)
from crbc_cli.notes import counted

__all__ = ["FORMAT"]


def _recognises(dump: Dump) -> bool:
    steps = dump.first.get("steps") if {"trajectory_uid", "steps"} <= dump.keys else None
    return (
        isinstance(steps, list)
        and bool(steps)
        and isinstance(steps[0], dict)
        and "step_index" in steps[0]
    )


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    repeated, restarted = False, 0
    for index, record in dump.records():
        where = dump.where(index)
        uid = str(required(record, "trajectory_uid", where))
        repeated |= uid in seen
        seen.add(uid)
        steps = required(record, "steps", where)
        numbers, again = step_numbers([required(step, "step_index", where) for step in steps])
        restarted += again
        for number, step in zip(numbers, steps, strict=True):
            rows.append(
                {
                    "rollout_id": index,
                    "step": number,
                    "observation": step.get("input"),
                    "action": step.get("output"),
                    "reward": step.get("score"),
                    "prompt": steps[0].get("input"),
                    **ending(step is steps[-1], success=None, cut=False),
                    "trajectory_uid": uid,
                    "trajectory_score": record.get("score"),
                    "global_step": record.get("step"),
                    "source_record": index,
                }
            )
    if restarted:
        remarks.say(
            "restarted_counter",
            f"step_index starts again inside {counted(restarted, 'trajectory', 'trajectories')}: "
            "positions count",
            warning=True,
        )
    if repeated:
        remarks.say(
            "trajectory_uid",
            "trajectory_uid repeats, so it is the group's (a validation dump): "
            "--group-by trajectory_uid",
        )
    remarks.say_no_outcome("trajectory_score >= 1")
    return step_table(dump, rows, remarks)


FORMAT = Format(
    name="agent-r1",
    title="Agent-R1 trajectories",
    writer="Agent-R1 (6dc8f67)",
    recognises=_recognises,
    read=_read,
    rollout="line (`trajectory_uid`)",
    step="`steps[].step_index`",
    state="`steps[].input`",
    lacks="nothing says which trajectories had the same task (prompt is the first step's input; "
    "trajectory_uid is the group's in validation dumps)",
    only_groups=True,
)
