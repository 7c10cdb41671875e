"""JSON lines, decoded in blocks with only the asked-for members built.

Other members are skipped by the parser, so their types may drift from line to line. `NaN` and
`Infinity` are not JSON but common: a line that fails strict decoding is tried once more with them
allowed.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

import msgspec
import polars as pl

from crbc_cli.errors import BadLineError, InputError
from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import Field, ValueKind, from_values
from crbc_cli.logs.sources import Source

__all__ = ["LineReport", "decode_lines", "read"]

_BLOCK_BYTES = 4 << 20
_BOM = b"\xef\xbb\xbf"
_SURROGATES = str.maketrans(dict.fromkeys(range(55296, 57344), "�"))


@dataclass
class LineReport:
    """What was tolerated while reading one file; filled as batches are consumed.

    Attributes:
      torn: line number of a bad last line, or None.
      skipped: line numbers left out under --skip-bad-lines.
      surrogates: lines in which a lone surrogate was replaced by U+FFFD.
    """

    torn: int | None = None
    skipped: list[int] = dataclass_field(default_factory=list)
    surrogates: int = 0


def read(
    source: Source, fields: Sequence[Field], skip_bad_lines: bool, report: LineReport
) -> Iterator[Batch]:
    """Batches of a few thousand rows.

    Args:
      source: file to read.
      fields: members to build; dotted paths reach into objects.
      skip_bad_lines: count bad inner lines in `report` instead of raising.
      report: filled while reading.
    Raises:
      BadLineError: a bad line that is not the last one.
      InputError: the compressed stream is cut or corrupt.
    """
    decoder = _RowDecoder(fields)
    for numbers, rows in decode_lines(source, decoder.type, skip_bad_lines, report):
        yield decoder.batch(rows, numbers, source)


def decode_lines(
    source: Source, row_type: Any, skip_bad_lines: bool, report: LineReport
) -> Iterator[tuple[range | list[int], list[Any]]]:
    """Blocks of (line numbers from 1, decoded rows); blank lines are passed over.

    Raises: as `read`.
    """
    strict = msgspec.json.Decoder(row_type)
    bad: tuple[int, str] | None = None
    first = 1
    with source.open() as stream:
        while True:
            try:
                lines = stream.readlines(_BLOCK_BYTES)
            except OSError as error:
                raise InputError(
                    f"compressed data is cut or corrupt ({error})",
                    source.name,
                    "check that the writer finished it",
                ) from error
            if not lines:
                break
            if first == 1 and lines[0].startswith(_BOM):
                lines[0] = lines[0][len(_BOM) :]
            if bad is not None and any(line.strip() for line in lines):
                _refuse(source.name, bad, skip_bad_lines, report)
                bad = None
            numbers: range | list[int] = range(first, first + len(lines))
            try:
                rows = strict.decode_lines(b"".join(lines))
                complete = len(rows) == len(lines)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                complete = False
            if not complete:
                rows, numbers = [], []
                for number, line in enumerate(lines, first):
                    if not line.strip():
                        continue
                    if bad is not None:
                        _refuse(source.name, bad, skip_bad_lines, report)
                        bad = None
                    row, problem = _decode_leniently(line, strict, report)
                    if problem:
                        bad = (number, problem)
                    else:
                        rows.append(row)
                        numbers.append(number)
            first += len(lines)
            if rows:
                yield numbers, rows
    if bad is not None:
        report.torn = bad[0]


def _refuse(name: str, bad: tuple[int, str], skip: bool, report: LineReport) -> None:
    number, problem = bad
    if not skip:
        raise BadLineError(
            f"not a JSON object ({problem})",
            f"{name}:{number}",
            "mend the line, or leave such lines out with --skip-bad-lines",
        )
    report.skipped.append(number)


def _decode_leniently(
    line: bytes, strict: "msgspec.json.Decoder[Any]", report: LineReport
) -> tuple[Any, str]:
    """One line: (row, "") or (None, what is wrong). Non-finite numbers become null."""
    try:
        return strict.decode(line), ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None, problem
    if not isinstance(value, dict):
        return None, f"a JSON {type(value).__name__}"
    cleaned = _without_surrogates(value)
    report.surrogates += cleaned is not value
    return strict.decode(msgspec.json.encode(cleaned)), ""


def _without_surrogates(value: Any) -> Any:
    """The same object if nothing was replaced."""
    text = json.dumps(value, ensure_ascii=False)
    clean = text.translate(_SURROGATES)
    return value if clean == text else json.loads(clean)


class _RowDecoder:
    """A msgspec type that builds just the needed members, and columns from its rows."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        members: dict[str, str] = {}
        for f in fields:
            for column in (f.column, f.column.split(".")[0]):
                members.setdefault(column, f"m{len(members)}")
        self._members = members
        self.type = msgspec.defstruct(
            "Row",
            [
                (attribute, Any, msgspec.field(name=column, default=msgspec.UNSET))
                for column, attribute in members.items()
            ],
            gc=False,
        )

    def batch(self, rows: list[Any], numbers: range | list[int], source: Source) -> Batch:
        columns: list[pl.Series] = []
        kinds: dict[str, ValueKind] = {}

        def where(row: int) -> str:
            return source.where(numbers[row] - 1)

        for f in self._fields:
            values = self._values(rows, f.column)
            if all(v is msgspec.UNSET for v in values):
                continue
            values = [None if v is msgspec.UNSET else v for v in values]
            series, kind = from_values(f, values, where)
            columns.append(series)
            if f.role == "value":
                kinds[f.name] = kind
        frame = pl.DataFrame(columns) if columns else pl.DataFrame({"": [None] * len(rows)})
        consecutive = isinstance(numbers, range)
        source_rows = None if consecutive else pl.Series("source_row", numbers, pl.Int64) - 1
        return Batch(frame.lazy(), kinds, source_rows, numbers[0] - 1, where)

    def _values(self, rows: list[Any], column: str) -> list[Any]:
        attribute = self._members[column]
        values = [getattr(row, attribute) for row in rows]
        head, *path = column.split(".")
        if path and all(v is msgspec.UNSET for v in values):
            values = [getattr(row, self._members[head]) for row in rows]
            for member in path:
                values = [_member(v, member) for v in values]
        return values


def _member(value: Any, name: str) -> Any:
    return value.get(name, msgspec.UNSET) if isinstance(value, dict) else msgspec.UNSET
