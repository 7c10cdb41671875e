"""tau-bench and tau2-bench results: one JSON document with the conversations of all trials.

Writers: sierra-research/tau-bench, `EnvRunResult` = {task_id, reward, info, traj, trial};
sierra-research/tau2-bench, `Results` = {tasks, simulations: [{task_id, trial, reward_info,
termination_reason, messages}]}. Both count a task as solved where the reward is 1 (`is_successful`
there: within 1e-6), so that success is taken from it. In tau2 the simulated user has tools of its
own, whose calls and results the agent does not see; simulations that end by max_steps or
too_many_errors are cut.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.conversation import conversation_rows
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table
from crbc_cli.notes import counted

__all__ = ["TAU", "TAU2"]

_CUTS = ("max_steps", "too_many_errors")


def _solved(reward: Any) -> bool | None:
    return None if not isinstance(reward, int | float) else abs(reward - 1) <= 1e-6


def _read_tau(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    empty = 0
    for index, record in dump.records():
        where = dump.where(index)
        made = conversation_rows(
            required(record, "traj", where),
            group_id=required(record, "task_id", where),
            rollout_id=record.get("trial", 0),
            record=index,
            where=where,
            reward=record.get("reward"),
            success=_solved(record.get("reward")),
        )
        empty += not made
        rows += made
    return _told(dump, rows, empty, remarks)


def _read_tau2(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    empty = cut = 0
    document = dump.first
    for index, record in enumerate(required(document, "simulations", dump.name)):
        where = dump.where(index)
        reward = (record.get("reward_info") or {}).get("reward")
        reason = str(record.get("termination_reason")).rpartition(".")[2].lower()
        cut += reason in _CUTS
        made = conversation_rows(
            _heard_by_agent(required(record, "messages", where), where),
            group_id=required(record, "task_id", where),
            rollout_id=record.get("trial", 0),
            record=index,
            where=where,
            reward=reward,
            success=_solved(reward),
            truncated=reason in _CUTS,
            extra={"simulation_id": record.get("id"), "termination_reason": reason},
        )
        empty += not made
        rows += made
    if cut:
        remarks.say("cut", f"{counted(cut, 'simulation')} ended by {' or '.join(_CUTS)}")
    return _told(dump, rows, empty, remarks)


def _heard_by_agent(messages: Any, where: str) -> list[Any]:
    """Messages without the user's own tool calls and their results."""
    heard: list[Any] = []
    for message in messages:
        if not isinstance(message, Mapping):
            raise InputError("is no message", where)
        if "tool_messages" in message:
            heard += _heard_by_agent(message["tool_messages"], where)
        elif not _is_users_own(message):
            heard.append(message)
    return heard


def _is_users_own(message: Mapping[str, Any]) -> bool:
    """A tool call of the simulated user, or its result."""
    calls = message.get("role") == "user" and bool(message.get("tool_calls"))
    return calls or message.get("requestor") == "user"


def _told(dump: Dump, rows: list[dict[str, Any]], empty: int, remarks: Remarks) -> pl.DataFrame:
    remarks.say("outcome", "success is a reward of 1, as the benchmark counts")
    if empty:
        remarks.say(
            "empty_rollouts", f"{counted(empty, 'trial')} without an agent message left out"
        )
    return step_table(dump, rows, remarks)


def _is_tau2(dump: Dump) -> bool:
    if not isinstance(dump.first, Mapping) or "simulations" not in dump.first:
        return False
    simulations = dump.first["simulations"]
    return isinstance(simulations, list) and (
        not simulations or (isinstance(simulations[0], Mapping) and "messages" in simulations[0])
    )


TAU = Format(
    name="tau-bench",
    title="tau-bench results",
    writer="sierra-research/tau-bench, EnvRunResult",
    recognises=lambda dump: (
        {"task_id", "traj", "reward"} <= dump.keys and isinstance(dump.first["traj"], list)
    ),
    read=_read_tau,
    group="`task_id`",
    rollout="`trial`",
    step="order of the messages",
    state="user or tool message",
)

TAU2 = Format(
    name="tau2-bench",
    title="tau2-bench results",
    writer="sierra-research/tau2-bench, Results",
    recognises=_is_tau2,
    read=_read_tau2,
    group="`task_id`",
    rollout="`trial`",
    step="order of the messages",
    state="user or tool message",
)
