"""OpenAI chat JSONL and AgentGym: conversations without a group of their own, or with a task id.

Chat: one conversation per record in `messages`, as fine-tuning files and many harnesses have it.
AgentGym (WooooDyy/AgentGym) has ShareGPT-style `conversations` under an `item_id`; AgentGym-RL logs
`{item_id, conversations, reward}` in `step{N}/{rank}.json`. A turn whose `loss` is false is a
prepared one, not an action.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from crbc_cli.logs.formats.conversation import conversation_rows, prompt_text
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.endings import Endings
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table

__all__ = ["AGENTGYM", "CHAT"]

_OWN = {"messages", "tools", "rollout_id", "reward", "success", "prompt"}
_SCALARS = (str, int, float, bool)


def _is_list_of_objects(value: Any, *members: str) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], Mapping)
        and any(member in value[0] for member in members)
    )


def _is_chat(dump: Dump) -> bool:
    return "messages" in dump.keys and _is_list_of_objects(dump.first["messages"], "role")


def _read_chat(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    endings = Endings()
    outcome = False
    for index, record in dump.records():
        where = dump.where(index)
        messages = required(record, "messages", where)
        extra = {k: v for k, v in record.items() if k not in _OWN and isinstance(v, _SCALARS)}
        extra["prompt"] = _text_or(record.get("prompt"), prompt_text(messages, where))
        success, reward = record.get("success"), record.get("reward")
        outcome = outcome or isinstance(success, bool)
        made = conversation_rows(
            messages,
            group_id="",
            rollout_id=record.get("rollout_id", index),
            record=index,
            where=where,
            reward=reward if isinstance(reward, int | float) else None,
            success=success if isinstance(success, bool) else None,
            extra=extra,
        )
        endings.empty += not made
        rows += made
    if outcome:
        remarks.say("outcome", "success is success of each record")
    endings.tell(remarks)
    return step_table(dump, rows, remarks)


def _text_or(value: Any, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


CHAT = Format(
    name="chat",
    title="chat conversations",
    writer="OpenAI chat format, JSONL of {messages}",
    recognises=_is_chat,
    read=_read_chat,
    group="- (`--group-by`)",
    rollout="record",
    step="assistant message",
    state="last user or tool message",
    lacks="nothing says which conversations had the same task (prompt is what came before the "
    "first answer)",
    only_groups=True,
)


def _is_agentgym(dump: Dump) -> bool:
    return {"item_id", "conversations"} <= dump.keys and _is_list_of_objects(
        dump.first["conversations"], "from", "role"
    )


def _read_agentgym(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    endings = Endings()
    seen: dict[Any, int] = {}
    for index, record in dump.records():
        where = dump.where(index)
        item = required(record, "item_id", where)
        number = seen[item] = seen.get(item, -1) + 1
        made = conversation_rows(
            required(record, "conversations", where),
            group_id=item,
            rollout_id=number,
            record=index,
            where=where,
            reward=record.get("reward"),
            acts=lambda message: message.get("loss") is not False,
        )
        endings.empty += not made
        rows += made
    endings.tell(remarks)
    return step_table(dump, rows, remarks)


AGENTGYM = Format(
    name="agentgym",
    title="AgentGym conversations",
    writer="WooooDyy/AgentGym and AgentGym-RL, rollout_log_dir",
    recognises=_is_agentgym,
    read=_read_agentgym,
    group="`item_id`",
    rollout="order in the file",
    step="assistant message",
    state="last user message",
)
