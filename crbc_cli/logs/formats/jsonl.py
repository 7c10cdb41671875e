"""JSON lines -> batches of the asked-for members.

Blocks of plain lines are decoded by polars (`plain.py`). In any other, lines are decoded with only
the asked-for members built, the others skipped, so that their types may drift from line to line.
"""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import polars as pl

from crbc_cli.errors import ColumnError
from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import Field, ValueKind, from_values, member_at
from crbc_cli.logs.formats.lines import (
    LineDecoder,
    LineReport,
    Numbers,
    blocks,
    decode_lines,
)
from crbc_cli.logs.formats.plain import PlainBlocks, count_lines
from crbc_cli.logs.overlap import ahead
from crbc_cli.logs.sources import Source

__all__ = ["LineReport", "decode_lines", "read"]

_UNNAMEABLE = re.compile(r'[\\"\x00-\x1f]')


def read(
    source: Source,
    fields: Sequence[Field],
    skip_bad_lines: bool,
    report: LineReport,
    watch: Callable[[bytes], None] = lambda block: None,
) -> Iterator[Batch]:
    """Batches of some thousand rows.

    Args:
      source: file to read.
      fields: members to build; dotted paths reach into objects.
      skip_bad_lines: count bad inner lines in `report` instead of raising.
      report: filled while reading.
      watch: shown each block of lines, in another thread, before its batch comes.
    Raises:
      BadLineError: a bad line that is not the last one.
      InputError: the compressed stream is cut or corrupt.
    """
    return ahead(_batches(source, fields, skip_bad_lines, report, watch))


def _batches(
    source: Source,
    fields: Sequence[Field],
    skip_bad_lines: bool,
    report: LineReport,
    watch: Callable[[bytes], None],
) -> Generator[Batch]:
    decoder = _RowDecoder(fields)
    lines = LineDecoder(source, decoder.type, skip_bad_lines, report)
    plain = PlainBlocks(fields)
    for block, count in ahead(_watched(source, watch)):
        frame = plain.frame(block, count.result)
        if frame is not None:
            first = lines.line - 1
            lines.passed(frame.height)
            yield _plain_batch(frame, fields, first, source)
            continue
        numbers, rows = lines.decode(block)
        if rows:
            batch = decoder.batch(rows, numbers, source, report.non_finite > 0)
            plain.learn(batch.frame.collect_schema(), batch.kinds)
            yield batch
    lines.end()


def _watched(
    source: Source, watch: Callable[[bytes], None]
) -> Generator[tuple[bytes, "Future[int]"]]:
    """Blocks and their numbers of lines."""

    def look_at(block: bytes) -> int:
        watch(block)
        return count_lines(block)

    with ThreadPoolExecutor(1) as beside:
        for block in blocks(source):
            yield block, beside.submit(look_at, block)


def _plain_batch(frame: pl.DataFrame, fields: Sequence[Field], first: int, source: Source) -> Batch:
    names = {f.name for f in fields if f.role == "value"}
    kinds: dict[str, ValueKind] = dict.fromkeys(names.intersection(frame.columns), "text")
    return Batch(frame.lazy(), kinds, None, first, lambda row: source.where(first + row))


class _RowDecoder:
    """A msgspec type that builds just the needed members, and columns from its rows.

    Rows are built whole where a needed member has a name that msgspec cannot give a field.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        members: dict[str, str] = {}
        for f in fields:
            for column in _heads(f.column):
                members.setdefault(column, f"m{len(members)}")
        self._members = members
        self.type: Any = dict[str, Any]
        if any(map(_UNNAMEABLE.search, members)):
            return
        self.type = msgspec.defstruct(
            "Row",
            [
                (attribute, Any, msgspec.field(name=column, default=msgspec.UNSET))
                for column, attribute in members.items()
            ],
            gc=False,
        )

    def batch(self, rows: list[Any], numbers: Numbers, source: Source, non_finite: bool) -> Batch:
        columns: list[pl.Series] = []
        kinds: dict[str, ValueKind] = {}

        def where(row: int) -> str:
            return source.where(numbers[row] - 1)

        for f in self._fields:
            values = self._values(rows, f.column)
            if all(v is msgspec.UNSET for v in values):
                continue
            values = [None if v is msgspec.UNSET else v for v in values]
            try:
                series, kind = from_values(f, values, where, non_finite=non_finite)
            except ColumnError:
                if f.lenient:
                    continue
                raise
            columns.append(series)
            if f.role == "value":
                kinds[f.name] = kind
        frame = pl.DataFrame(columns) if columns else pl.DataFrame({"": [None] * len(rows)})
        consecutive = isinstance(numbers, range)
        source_rows = None if consecutive else pl.Series("source_row", numbers, pl.Int64) - 1
        return Batch(frame.lazy(), kinds, source_rows, numbers[0] - 1, where)

    def _values(self, rows: list[Any], column: str) -> list[Any]:
        """The longest member name that a row has wins; the rest of the path goes into its value."""
        parts = column.split(".")
        values = self._members_of(rows, column)
        for length in range(len(parts) - 1, 0, -1):
            heads = self._members_of(rows, ".".join(parts[:length]))
            values = [
                member_at(head, parts[length:]) if value is msgspec.UNSET else value
                for head, value in zip(heads, values, strict=True)
            ]
        return values

    def _members_of(self, rows: list[Any], name: str) -> list[Any]:
        if self.type == dict[str, Any]:
            return [row.get(name, msgspec.UNSET) for row in rows]
        attribute = self._members[name]
        return [getattr(row, attribute) for row in rows]


def _heads(column: str) -> list[str]:
    """`a.b.c`, `a.b`, `a`: the members a dotted path may start with."""
    parts = column.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
