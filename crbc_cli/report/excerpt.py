"""Log text on a terminal: cut to a width, without control characters."""

from functools import lru_cache

from rich.console import Console
from rich.text import Text

__all__ = ["first_lines", "one_line"]


@lru_cache(512)  # names of one group's anchors and actions are asked for again and again
def one_line(text: str | None, width: int) -> str:
    """The text on one line of at most `width` cells, cut with an ellipsis; `-` for None."""
    if text is None:
        return "-"
    return _cut(" ".join(text.split()), width)


def first_lines(text: str, width: int, most: int) -> list[str]:
    """The first lines of a text, long ones wrapped at `width` cells, and how many are left."""
    lines = [part for line in text.splitlines() for part in _wrapped(line.rstrip(), width)]
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… ({len(lines) - most + 1} more lines)"]


def _wrapped(line: str, width: int) -> list[str]:
    """A line in parts of at most `width` cells, broken at blanks where there are some."""
    lines = Text(_clean(line)).wrap(Console(), width)
    return [part.plain.rstrip() for part in lines] or [""]


def _clean(line: str) -> str:
    """Control characters, which a terminal would obey, are shown as U+FFFD."""
    line = line.expandtabs()
    return line if line.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in line)


def _cut(line: str, width: int) -> str:
    shown = Text(_clean(line))
    shown.truncate(width, overflow="ellipsis")
    return shown.plain
