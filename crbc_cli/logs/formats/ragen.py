"""RAGEN: evaluation rollouts as chats, and its rollout cache.

Writer: RAGEN (20daedc). `ragen.llm_agent.agent_proxy` with output.format=jsonl writes one chat per
episode with `metadata` {env_id, group_id, num_turns, total_reward, success}. The reward of a turn,
unless 0, is glued onto the next user message as ` (reward: x)`, so that of the last turn is what
is missing of `total_reward`. The cache in memory (saved by users) is {env_id, group_id, penalty,
history: [{state, actions, reward, info, llm_response}, …]}; its last entry may be a state alone,
and its penalties for invalid answers are not in the rewards.
"""

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from crbc_cli.logs.formats.conversation import turns
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, ending, required, step_table
from crbc_cli.notes import counted

__all__ = ["CACHE", "EVALUATION"]

_GLUED = re.compile(r"\s?\(reward: (?P<reward>[-+]?[0-9.]+(?:e[-+]?\d+)?)\)\s*$", re.IGNORECASE)


def _is_evaluation(dump: Dump) -> bool:
    metadata = dump.first.get("metadata") if {"messages", "metadata"} <= dump.keys else None
    return isinstance(metadata, Mapping) and {"env_id", "group_id"} <= set(metadata)


def _read_evaluation(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    split = 0
    for index, record in dump.records():
        where = dump.where(index)
        metadata = required(record, "metadata", where)
        steps = turns(required(record, "messages", where), where)
        told = 0.0
        seen = [_without_reward(turn.observation) for turn in steps]
        for t, turn in enumerate(steps):
            last = t + 1 == len(steps)
            reward = 0.0 if last else seen[t + 1][1]
            split += not last and seen[t + 1][1] != 0
            told += reward
            total = metadata.get("total_reward")
            if last and isinstance(total, int | float):
                reward = total - told
            rows.append(
                {
                    "group_id": required(metadata, "group_id", where),
                    "rollout_id": required(metadata, "env_id", where),
                    "step": t,
                    "observation": seen[t][0],
                    "action": turn.action,
                    "reward": reward,
                    **ending(last, success=metadata.get("success"), cut=False),
                    "response": turn.response,
                    "total_reward": total,
                    "source_record": index,
                }
            )
    if split:
        remarks.say(
            "glued_rewards",
            f"{counted(split, 'reward')} glued onto user messages split off; that of a last turn "
            "is what is missing of total_reward",
        )
    remarks.say("outcome", "success is metadata.success")
    return step_table(dump, rows, remarks)


def _without_reward(text: Any) -> tuple[Any, float]:
    """(the observation as the environment gave it, reward of the turn before)."""
    found = _GLUED.search(text) if isinstance(text, str) else None
    return (text, 0.0) if found is None else (text[: found.start()], float(found["reward"]))


def _is_cache(dump: Dump) -> bool:
    history = dump.first.get("history") if {"env_id", "group_id", "history"} <= dump.keys else None
    return isinstance(history, list)


def _read_cache(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    penalised = 0
    for index, record in dump.records():
        where = dump.where(index)
        history = required(record, "history", where)
        steps = [entry for entry in history if "actions" in entry or "llm_response" in entry]
        infos = [entry.get("info") or {} for entry in steps]
        told = [info["success"] for info in infos if "success" in info]
        penalised += bool(record.get("penalty"))
        for t, entry in enumerate(steps):
            last = t + 1 == len(steps)
            row = {
                "group_id": required(record, "group_id", where),
                "rollout_id": required(record, "env_id", where),
                "step": t,
                "observation": entry.get("state"),
                "action": _joined(entry.get("actions")),
                "reward": entry.get("reward"),
                **ending(last, success=any(told) if told else None, cut=False),
                "response": entry.get("llm_response"),
                "penalty": record.get("penalty"),
                "tag": record.get("tag"),
                "source_record": index,
            }
            if "is_action_valid" in infos[t] or "action_is_valid" in infos[t]:
                row["is_action_valid"] = infos[t].get(
                    "is_action_valid", infos[t].get("action_is_valid")
                )
            if last and len(history) > len(steps):
                row["next_observation"] = history[-1].get("state")
            rows.append(row)
    if penalised:
        remarks.say(
            "penalty",
            f"{counted(penalised, 'rollout')} with a penalty, which is no part of reward",
        )
    remarks.say("outcome", "success is info.success of any turn")
    return step_table(dump, rows, remarks)


def _joined(actions: Any) -> Any:
    """Several actions of one turn as one."""
    return " || ".join(map(str, actions)) if isinstance(actions, list) else actions


EVALUATION = Format(
    name="ragen",
    title="RAGEN evaluation rollouts",
    writer="RAGEN (20daedc), ragen.llm_agent.agent_proxy",
    recognises=_is_evaluation,
    read=_read_evaluation,
    group="`metadata.group_id`",
    rollout="`metadata.env_id`",
    step="order of the messages",
    state="user message",
)

CACHE = Format(
    name="ragen-cache",
    title="RAGEN rollout cache",
    writer="RAGEN (20daedc)",
    recognises=_is_cache,
    read=_read_cache,
    group="`group_id`",
    rollout="`env_id`",
    step="list index",
    state="`state`",
)
