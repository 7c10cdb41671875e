"""Values that are not plain strings: JSON documents, message lists, tool calls, arrays."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from crbc_cli.anchors.canonical import encode
from crbc_cli.anchors.images import with_pixels

__all__ = [
    "VIEWS",
    "content",
    "in_any_order",
    "last_fence",
    "map_strings",
    "tool_call",
    "without_path",
]

_CALL = re.compile(r"^\s*([A-Za-z_][\w.\-]*)\s*\((.*)\)\s*$", re.DOTALL)
_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_ARGUMENTS = ("arguments", "input", "parameters", "kwargs")
_FENCE = re.compile(r"```[\w+-]*\n(.*?)```", re.DOTALL)


def content(value: Any, *, parse: bool) -> Any:
    """A logged value as content: JSON text decoded if `parse`, images as pixels.

    Raises:
      OptionError: an image is met and Pillow is not installed.
    """
    if not isinstance(value, str):
        with suppress(RecursionError):
            return with_pixels(value)
        return value
    if parse:
        with suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(value)
        if "NaN" in value or "Infinity" in value:  # not JSON, but logged as such
            with suppress(ValueError, RecursionError):
                return json.loads(value)
    return value


def _message_text(message: Any) -> Any:
    """Content of one chat message; a list of parts is kept as logged."""
    if not isinstance(message, dict):
        return message
    return message.get("content", message.get("value"))


def _role(message: Any) -> Any:
    """Role of a chat message; None if it is none."""
    role = message.get("role", message.get("from")) if isinstance(message, dict) else None
    return role if isinstance(role, str) and role in _ROLES else None


def _last(roles: tuple[str, ...]) -> Callable[[Any], Any]:
    """A view that gives the last message of `roles`, or None; what is no chat stays as it is."""

    def view(value: Any) -> Any:
        if not isinstance(value, list) or not any(map(_role, value)):
            return value
        return next((_message_text(m) for m in reversed(value) if _role(m) in roles), None)

    return view


_USER, _TOOL = ("user", "human"), ("tool", "function", "observation")
_ROLES = (*_USER, *_TOOL, "system", "developer", "assistant", "gpt", "model")
VIEWS: dict[str, Callable[[Any], Any]] = {
    "last-user-message": _last(_USER),
    "last-tool-result": _last(_TOOL),
    "last-message": _last(_USER + _TOOL),
}
"""`--anchor` names that look into a list of chat messages; history is left out."""


def tool_call(value: Any) -> Any:
    """The last tool call as [name, arguments]; of a message without one its text, and anything else
    as it is.

    Understands OpenAI-style calls and messages, `tool_use` parts, {"name", "arguments"} objects,
    `<tool_call>` tags and `name({...})`. Arguments given as JSON text are decoded, so that their
    order does not matter.
    """
    with suppress(RecursionError):
        call = _call(value)
        if call is not None:
            return call
    decoded = content(value, parse=True)
    return _message_text(decoded) if isinstance(decoded, dict) and "content" in decoded else value


def _call(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return next(filter(None, map(_call, reversed(value))), None)
    if isinstance(value, dict):
        inside = value.get("tool_calls") or value.get("function") or value.get("content")
        if isinstance(inside, list | dict):
            return _call(inside)
        name = value.get("name")
        given = [value[key] for key in _ARGUMENTS if value.get(key)]
        if isinstance(name, str) and (given or inside is None):
            return [name, content(given[0], parse=True) if given else {}]
        return None
    if not isinstance(value, str):
        return None
    tagged = _TAGGED.findall(value)
    text = tagged[-1] if tagged else value
    decoded = content(text, parse=True)
    if isinstance(decoded, list | dict):
        return _call(decoded)
    match = _CALL.match(text)
    if match is None:
        return None
    arguments = content(match[2], parse=True) if match[2].strip() else {}
    return None if isinstance(arguments, str) else [match[1], arguments]


def in_any_order(value: Any) -> Any:
    """A list with its items in a fixed order, so that their order does not matter."""
    return sorted(value, key=encode) if isinstance(value, list) else value


def last_fence(text: str) -> str:
    """What stands inside the last ``` fence; the whole text if there is none."""
    found = _FENCE.findall(text)
    return found[-1].strip() if found else text


def without_path(value: Any, path: tuple[str, ...]) -> Any:
    """A JSON value without the member at `path`; lists on the way are searched item by item."""
    if isinstance(value, list):
        return [without_path(item, path) for item in value]
    if not isinstance(value, dict):
        return value
    if len(path) == 1:
        return {k: v for k, v in value.items() if k != path[0]}
    return {k: without_path(v, path[1:]) if k == path[0] else v for k, v in value.items()}


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string inside changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list) and not {int, float}.issuperset(map(type, value)):
        return [map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {k: map_strings(v, change) for k, v in value.items()}
    return value
