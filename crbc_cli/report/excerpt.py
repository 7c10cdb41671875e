"""Log text on a terminal: cut to a width, without control characters."""

from rich.text import Text

__all__ = ["first_lines", "one_line"]


def one_line(text: str | None, width: int) -> str:
    """The text on one line of at most `width` cells, cut with an ellipsis; `-` for None."""
    if text is None:
        return "-"
    return _cut(" ".join(text.split()), width)


def first_lines(text: str, width: int, most: int) -> list[str]:
    """The first lines of a text, each cut to `width` cells, and an ellipsis for the rest."""
    lines = [_cut(line.rstrip(), width) for line in text.splitlines()]
    return lines if len(lines) <= most else [*lines[: most - 1], "…"]


def _cut(line: str, width: int) -> str:
    """Control characters, which a terminal would obey, are shown as U+FFFD."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in line.expandtabs())
    shown = Text(clean)
    shown.truncate(width, overflow="ellipsis")
    return shown.plain
