"""JSON lines, decoded in blocks with only the asked-for members built.

Other members are skipped by the parser, so their types may drift from line to line. `NaN` and
`Infinity` are not JSON but common: a line that fails strict decoding is tried once more with them
allowed. A last line that the writer did not finish is torn, which is a remark; any other line that
is not one JSON object in UTF-8 is an error.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import IO, Any

import msgspec
import polars as pl

from crbc_cli.errors import BadLineError, ColumnError, InputError
from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import Field, ValueKind, from_values, member_at
from crbc_cli.logs.sources import Source

__all__ = ["LineReport", "decode_lines", "read"]

_BLOCK_BYTES = 4 << 20
_BOM = b"\xef\xbb\xbf"
_UNNAMEABLE = re.compile(r'[\\"\x00-\x1f]')
_SURROGATES = str.maketrans(dict.fromkeys(range(55296, 57344), "�"))


@dataclass
class LineReport:
    """What was tolerated while reading one file; filled as batches are consumed.

    Attributes:
      torn: line number of a bad last line, or None.
      skipped: line numbers left out under --skip-bad-lines.
      surrogates: lines in which a lone surrogate was replaced by U+FFFD.
      non_finite: lines with NaN or an infinity.
    """

    torn: int | None = None
    skipped: list[int] = dataclass_field(default_factory=list)
    surrogates: int = 0
    non_finite: int = 0


@dataclass(frozen=True, slots=True)
class _BadLine:
    number: int
    problem: str
    torn: bool


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
        yield decoder.batch(rows, numbers, source, report.non_finite > 0)


def decode_lines(
    source: Source, row_type: Any, skip_bad_lines: bool, report: LineReport
) -> Iterator[tuple[range | list[int], list[Any]]]:
    """Blocks of (line numbers from 1, decoded rows); blank lines are passed over.

    Raises: as `read`.
    """
    strict = msgspec.json.Decoder(row_type)
    bad: _BadLine | None = None
    first = 1
    with source.open() as stream:
        while lines := _block(stream, source.name):
            if first == 1 and lines[0].startswith(_BOM):
                lines[0] = lines[0][len(_BOM) :]
            if bad is not None and any(line.strip() for line in lines):
                _refuse(source.name, bad, skip_bad_lines, report)
                bad = None
            numbers: range | list[int] = range(first, first + len(lines))
            rows = _strict_rows(lines, strict)
            if len(rows) != len(lines):
                rows, numbers = [], []
                for number, line in enumerate(lines, first):
                    if not line.strip():
                        continue
                    if bad is not None:
                        _refuse(source.name, bad, skip_bad_lines, report)
                        bad = None
                    row = _lenient_row(line, number, strict, report)
                    if isinstance(row, _BadLine):
                        bad = row
                    else:
                        rows.append(row)
                        numbers.append(number)
            first += len(lines)
            if rows:
                yield numbers, rows
    if bad is not None and bad.torn:
        report.torn = bad.number
    elif bad is not None:
        _refuse(source.name, bad, skip_bad_lines, report)


def _block(stream: IO[bytes], name: str) -> list[bytes]:
    try:
        return stream.readlines(_BLOCK_BYTES)
    except OSError as error:
        raise InputError(
            f"compressed data is cut or corrupt ({error})",
            name,
            "check that the writer finished it",
        ) from error


def _refuse(name: str, bad: _BadLine, skip: bool, report: LineReport) -> None:
    if not skip:
        raise BadLineError(
            f"not a JSON object ({bad.problem})",
            f"{name}:{bad.number}",
            "mend the line, or leave such lines out with --skip-bad-lines",
        )
    report.skipped.append(bad.number)


def _strict_rows(lines: list[bytes], strict: "msgspec.json.Decoder[Any]") -> list[Any]:
    """Rows of a block, one per line; another number of them if a line is not strict JSON.

    The parser splits at objects, not at lines: a blank line could make up for two objects on one.
    """
    if min(map(len, lines)) < len(b"{}\n"):
        return []
    text = b"".join(lines)
    try:
        _ = text.isascii() or text.decode()  # the parser does not look into members it skips
        return strict.decode_lines(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _lenient_row(
    line: bytes, number: int, strict: "msgspec.json.Decoder[Any]", report: LineReport
) -> Any:
    """The row of one line, or what is wrong with it."""
    # A machine that loses power can leave zero bytes where the line was to be.
    opened = line.lstrip(b"\0 \t\r\n")[:1] in (b"{", b"")
    try:
        text = line.decode()
        try:
            return strict.decode(text)
        except msgspec.DecodeError as error:
            problem = str(error)
        value = json.loads(text)
        if not isinstance(value, dict):
            return _BadLine(number, f"a JSON {_JSON_NAMES[type(value)]}", False)
        return _tolerated(value, strict, report)
    except UnicodeDecodeError:
        return _BadLine(number, "not UTF-8", opened)
    except json.JSONDecodeError as error:
        return _BadLine(number, problem, opened and not error.msg.startswith("Extra data"))
    except ValueError as error:
        return _BadLine(number, str(error), False)
    except RecursionError:
        return _BadLine(number, "nested too deeply", False)


def _tolerated(
    value: dict[str, Any], strict: "msgspec.json.Decoder[Any]", report: LineReport
) -> Any:
    """The row of an object that is not strict JSON. NaN and infinities become null where the row
    holds raw JSON."""
    cleaned = _without_surrogates(value)
    finite = _finite(cleaned)
    report.surrogates += cleaned is not value
    report.non_finite += finite != cleaned
    if isinstance(strict.type, type) and issubclass(strict.type, msgspec.Struct):
        return msgspec.convert(cleaned, strict.type)
    return strict.decode(json.dumps(finite))


_JSON_NAMES: dict[type, str] = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def _without_surrogates(value: Any) -> Any:
    """The same object if nothing was replaced."""
    text = json.dumps(value, ensure_ascii=False)
    clean = text.translate(_SURROGATES)
    return value if clean == text else json.loads(clean)


def _finite(value: Any) -> Any:
    """The value with null for NaN and infinities."""
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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

    def batch(
        self, rows: list[Any], numbers: range | list[int], source: Source, non_finite: bool
    ) -> Batch:
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
