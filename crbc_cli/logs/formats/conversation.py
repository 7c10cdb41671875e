"""Message lists -> steps: what every chat-shaped dump shares.

One assistant message is one step. Its observation is what stands between it and the assistant
message before: the messages of users and tools, joined; where there is none, the last ones before.
Its action is its tool call as `name(arguments)` with the arguments as logged, or, without one, its
text without `<think>` blocks. What the user and the tools say next is its next_observation. System
messages belong to no step.

    for record in ...:
        rows += conversation_rows(
            messages, group_id=..., rollout_id=..., record=index, where=dump.where(index),
            reward=total, success=won, truncated=hit_limit, extra={"session": ...},
        )

`turns` gives the steps alone, for formats with a reward or an end flag of their own per message.
Understood are messages of OpenAI (content parts, tool_calls, function_call), Anthropic (tool_use
and tool_result parts), ShareGPT (from, value) and flat tool calls ({name, arguments}, {function,
arguments}, {function_name, arguments}), also as JSON text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.format import ending

__all__ = [
    "Turn",
    "action_of_call",
    "conversation_rows",
    "message_role",
    "message_text",
    "prompt_text",
    "turns",
    "without_thoughts",
]

_AGENT = {"assistant", "gpt", "ai", "model", "agent", "bot"}
_WORLD = {"user", "human", "tool", "function", "environment", "observation", "ipython"}
_SYSTEM = {"system", "developer"}
_THINK = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>\s*", re.DOTALL)
_THOUGHT_PARTS = {"thinking", "reasoning", "redacted_thinking"}
_CALL_PARTS = {"tool_use", "tool_call"}


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant message.

    Attributes:
      index: its place in the message list.
      observation: what it answers: text, or the content parts where some are not text; None if no
        message of a user or a tool came before.
      action: tool call or text, see the module.
      response: its text as written, with thoughts; None if it has none.
      reply: what users and tools said before the next assistant message; None if nothing.
    """

    index: int
    observation: Any
    action: str
    response: str | None
    reply: Any


def turns(
    messages: Sequence[Any],
    where: str,
    acts: Callable[[Mapping[str, Any]], bool] = lambda message: True,
) -> list[Turn]:
    """Steps of one conversation, in order.

    Args:
      messages: objects with a role and a content.
      where: place of the conversation, for messages.
      acts: whether an assistant message is an action of this rollout; others (examples in the
        prompt, masked ones) end the observation before them and are no step.
    Raises:
      InputError: something that is no message, or of a role that is not known.
    """
    found: list[tuple[int, Any]] = []  # acting messages with what they answer
    replies: list[Any] = []
    heard: list[Mapping[str, Any]] = []
    observation = None
    for index, message in enumerate(messages):
        role = message_role(message, f"{where} message {index}")
        if role == "world":
            heard.append(message)
        elif role == "agent":
            joined = _joined(heard)
            observation = joined if heard else observation
            if found and len(replies) < len(found):
                replies.append(joined)
            heard = []
            if acts(message):
                found.append((index, observation))
    if len(replies) < len(found):
        replies.append(_joined(heard))
    return [
        Turn(index, seen, _action(messages[index]), message_text(messages[index]) or None, reply)
        for (index, seen), reply in zip(found, replies, strict=True)
    ]


def conversation_rows(
    messages: Sequence[Any],
    *,
    group_id: str | int,
    rollout_id: str | int,
    record: int,
    where: str,
    reward: float | None = None,
    success: bool | None = None,
    truncated: bool = False,
    acts: Callable[[Mapping[str, Any]], bool] = lambda message: True,
    extra: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Step-table rows of one rollout; none if the agent never spoke.

    Args:
      messages, where, acts: as in `turns`.
      group_id, rollout_id: of the rollout.
      record: index of its record in the dump.
      reward: of the whole rollout; stands on the last row, 0 before it. None: not logged.
      success: outcome from an explicit field; None: not logged.
      truncated: cut by a limit; the last row is then not `done`.
      extra: columns with the same value on each row.
    """
    steps = turns(messages, where, acts)
    rows = []
    for step, turn in enumerate(steps):
        last = step + 1 == len(steps)
        row = {
            "group_id": group_id,
            "rollout_id": rollout_id,
            "step": step,
            "observation": turn.observation,
            "action": turn.action,
            **ending(last, success=success, cut=truncated),
            "next_observation": turn.reply,
            "response": turn.response,
            "message_index": turn.index,
            **(extra or {}),
            "source_record": record,
        }
        if reward is not None:
            row["reward"] = float(reward) if last else 0.0
        rows.append(row)
    return rows


def message_role(message: Any, where: str) -> str:
    """ "agent", "world" (users and tools) or "system".

    Raises:
      InputError: not a message, or of a role that is not known.
    """
    if not isinstance(message, Mapping):
        raise InputError("is no message with a role and a content", where)
    role = message.get("role") or message.get("from") or message.get("source")
    word = role.lower() if isinstance(role, str) else ""
    for kind, words in (("agent", _AGENT), ("world", _WORLD), ("system", _SYSTEM)):
        if word in words:
            return kind
    raise InputError(
        f"has role {str(role)[:40]!r}", where, "known are system, user, assistant and tool"
    )


def message_text(message: Mapping[str, Any]) -> str:
    """Text of a message: its text parts and those of its tool results, one per line."""
    return _text(_content(message))


def prompt_text(messages: Sequence[Any], where: str) -> str:
    """What came before the first assistant message: the task as the agent was given it."""
    texts = []
    for index, message in enumerate(messages):
        if message_role(message, f"{where} message {index}") == "agent":
            break
        texts.append(message_text(message))
    return "\n".join(texts)


def without_thoughts(text: str) -> str:
    """Text without `<think>` blocks, if anything is left then. A block whose opening tag stood in
    the prompt counts too."""
    bare = _THINK.sub("", text)
    if "</think>" in bare and "<think>" not in bare:
        bare = bare.rpartition("</think>")[2].lstrip()
    return bare or text


def action_of_call(call: Any) -> str:
    """A tool call as `name(arguments)`; arguments that are text stay as logged."""
    if isinstance(call, str):
        try:
            return action_of_call(msgspec.json.decode(call))
        except (msgspec.DecodeError, RecursionError):
            return call
    if not isinstance(call, Mapping):
        return str(call)
    inside = call.get("function") or call.get("custom")
    flat = inside if isinstance(inside, Mapping) else call
    name = flat.get("name") or flat.get("function_name") or flat.get("function") or ""
    given: Any = next((flat[key] for key in _ARGUMENTS if flat.get(key) is not None), {})
    return f"{name}({given if isinstance(given, str) else _compact(given)})"


_ARGUMENTS = ("arguments", "input", "args", "parameters")


def _compact(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _action(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or message.get("function_call") or []
    if isinstance(calls, str):
        try:
            calls = msgspec.json.decode(calls)
        except (msgspec.DecodeError, RecursionError):
            calls = [calls]
    if isinstance(calls, Mapping):
        calls = [calls]
    parts = _content(message)
    if isinstance(parts, list):
        calls = [*calls, *(p for p in parts if _kind(p) in _CALL_PARTS)]
    if calls:
        return "\n".join(map(action_of_call, calls))
    return without_thoughts(message_text(message))


def _content(message: Mapping[str, Any]) -> Any:
    return next((message[key] for key in _CONTENTS if message.get(key) is not None), None)


_CONTENTS = ("content", "value", "message", "text")


def _kind(part: Any) -> str:
    return str(part.get("type", "")) if isinstance(part, Mapping) else ""


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return _compact(content)
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif _kind(part) == "tool_result":
            texts.append(_text(part.get("content")))
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
    return "\n".join(texts)


def _joined(messages: Sequence[Mapping[str, Any]]) -> Any:
    """What users and tools said: text, or all content parts if one is neither text nor thought."""
    if not messages:
        return None
    contents = [_content(message) for message in messages]
    if not any(map(_shows, contents)):
        return "\n".join(map(_text, contents))
    parts: list[Any] = []
    for content in contents:
        parts += content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    return parts


def _shows(content: Any) -> bool:
    """Whether a content has parts that are not text, an image for example."""
    if not isinstance(content, list):
        return False
    return any(
        _shows(part.get("content")) if _kind(part) == "tool_result" else "text" not in part
        for part in content
        if isinstance(part, Mapping) and _kind(part) not in _THOUGHT_PARTS | _CALL_PARTS
    )
