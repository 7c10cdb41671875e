"""What a log is, for people; and the formats that are known."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from crbc_cli.notes import counted
from crbc_cli.report.text import plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from crbc_cli.engine.inspect import Inspected

__all__ = ["formats_table", "inspect_parts"]


def inspect_parts(one: "Inspected") -> "Iterator[Table | str]":
    """Format and sizes, columns, and the first rows of one input."""
    yield f"{one.source_file}: {one.title} (--from {one.format}), {one.container}, " + (
        f"{one.bytes:,} bytes"
    )
    if one.lacks:
        yield f"cannot carry a closure as it is: {one.lacks}"
    sizes = [counted(one.rows, "row")]
    if one.rollouts is not None:
        sizes.append(counted(one.rollouts, "rollout"))
    if one.groups is not None and one.group_sizes is not None:
        each = ", ".join(f"{number} of size {size}" for size, number in one.group_sizes.items())
        sizes.append(f"{counted(one.groups, 'group')} ({each})")
    if one.rollout_lengths is not None:
        low, middle, high = one.rollout_lengths
        sizes.append(f"{low:g} to {high:g} rows a rollout, median {middle:g}")
    yield "; ".join(sizes)
    yield _columns(one)


def _columns(one: "Inspected") -> "Table":
    shown = len(one.head)
    rows = (f"row {i}" for i in range(shown))
    table = plain_table("", "column", "type", *rows, "nulls", left=2 + shown)
    for column in one.columns:
        cells = [_cell(row.get(column["name"])) for row in one.head]
        table.add_row(column["name"], column["dtype"], *cells, str(column["nulls"]))
    return table


def _cell(value: Any) -> str:
    text = "" if value is None else str(value).replace("\n", " ")
    return text if len(text) <= 24 else f"{text[:23]}…"


def formats_table(formats: Mapping[str, Any]) -> "Table":
    """Names for --from, and where each format has what a closure needs."""
    table = plain_table("", "--from", "what", "group; rollout; step; state", left=3)
    table.columns[0].no_wrap = True  # it is what has to be typed
    table.columns[0].min_width = max(map(len, formats))
    for known in formats.values():
        places = "; ".join(text.replace("`", "") or "-" for text in where(known))
        table.add_row(known.name, known.title, places)
    return table


def where(known: Any) -> tuple[str, str, str, str]:
    """Where a format has group, rollout, step and state."""
    return known.group, known.rollout, known.step, known.state
