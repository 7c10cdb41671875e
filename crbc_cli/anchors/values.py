"""Values that are not plain strings: JSON documents, message lists, tool calls, images, arrays."""

import io
import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from crbc_cli.anchors.canonical import encode
from crbc_cli.errors import OptionError

__all__ = [
    "VIEWS",
    "content",
    "in_any_order",
    "last_fence",
    "map_strings",
    "tool_call",
    "without_path",
]

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_CALL = re.compile(r"^\s*([A-Za-z_][\w.\-]*)\s*\((.*)\)\s*$", re.DOTALL)
_FENCE = re.compile(r"```[\w+-]*\n(.*?)```", re.DOTALL)


def content(value: Any, *, parse: bool) -> Any:
    """A logged value as content: JSON text decoded if `parse`, images as pixels.

    Encoded PNG and JPEG images become (shape, mode, pixel bytes), so that equal pictures are equal
    whatever their compression.

    Raises:
      OptionError: an image is met and Pillow is not installed.
    """
    if parse and isinstance(value, str):
        with suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(value)
        if "NaN" in value or "Infinity" in value:  # not JSON, but logged as such
            with suppress(ValueError, RecursionError):
                return json.loads(value)
    if isinstance(value, bytes) and value.startswith((_PNG, _JPEG)):
        return _pixels(value)
    return value


def _pixels(data: bytes) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise OptionError(
            "the log holds images, and Pillow is not installed",
            todo="pip install 'crbc-cli[images]'",
        ) from error
    try:
        with Image.open(io.BytesIO(data)) as image:
            return {"size": list(image.size), "mode": image.mode, "pixels": image.tobytes()}
    except (OSError, ValueError, Image.DecompressionBombError):
        return data


def _message_text(message: Any) -> Any:
    """Content of one chat message; a list of parts is kept as logged."""
    if not isinstance(message, dict):
        return message
    return message.get("content", message.get("value"))


def _last(roles: tuple[str, ...]) -> Callable[[Any], Any]:
    def view(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        for message in reversed(value):
            role = message.get("role", message.get("from")) if isinstance(message, dict) else None
            if role in roles:
                return _message_text(message)
        return None

    return view


VIEWS: dict[str, Callable[[Any], Any]] = {
    "last-user-message": _last(("user", "human")),
    "last-tool-result": _last(("tool", "function", "observation")),
    "last-message": _last(("user", "human", "tool", "function", "observation")),
}
"""`--anchor` names that look into a list of chat messages; history is left out."""


def tool_call(value: Any) -> Any:
    """The last tool call as [name, arguments]; text that holds none is returned as it is.

    Understands OpenAI-style calls and messages, {"name", "arguments"} objects and `name({...})`.
    Arguments given as JSON text are decoded, so that their order does not matter.
    """
    if isinstance(value, list) and value:
        return tool_call(value[-1])
    if isinstance(value, dict):
        if value.get("tool_calls"):
            return tool_call(value["tool_calls"][-1])
        call = value.get("function", value)
        name = call.get("name") if isinstance(call, dict) else None
        if name is None:
            return _message_text(value) if "content" in value else value
        return [name, content(call.get("arguments"), parse=True)]
    if isinstance(value, str):
        decoded = content(value, parse=True)
        if isinstance(decoded, list | dict):
            return tool_call(decoded)
        match = _CALL.match(value)
        if match:
            arguments = content(match[2], parse=True) if match[2].strip() else {}
            if not isinstance(arguments, str):
                return [match[1], arguments]
    return value


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
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {k: map_strings(v, change) for k, v in value.items()}
    return value
