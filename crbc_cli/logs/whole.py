"""All rows and columns of an input, as tables."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.errors import InputError
from crbc_cli.logs.columns import Field, ReadRole
from crbc_cli.logs.formats import jsonl, parquet
from crbc_cli.logs.formats.jsonl import LineReport
from crbc_cli.logs.passthrough import typed_members
from crbc_cli.logs.read import available_columns
from crbc_cli.logs.sources import Source
from crbc_cli.tables import STEP_COLUMNS

__all__ = ["NotPlainError", "Whole"]

_BATCH_ROWS = 1 << 18
_BLOCK_BYTES = 1 << 22
_PIECE_BYTES = 1 << 17
_QUOTE, _COLON, _BACKSLASH = b'":\\'
_KEY_END = _COLON << 8 | _QUOTE
_ROLES: dict[str, ReadRole] = {
    c.name: "value" if c.role == "text" or c.role == "any" else c.role for c in STEP_COLUMNS
}


class NotPlainError(Exception):
    """A log whose members the quick way would lose or change."""


@dataclass
class Whole:
    """One input.

    Attributes:
      source: the input.
      skip_bad_lines: leave out and count bad lines of JSONL.
      report: what reading lines tolerated.
      json_columns: columns whose strings are JSON documents; filled while reading.
    """

    source: Source
    skip_bad_lines: bool
    report: LineReport = field(default_factory=LineReport)
    json_columns: set[str] = field(default_factory=set)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Pieces of one schema, in file order; one empty piece where there are no rows.

        Raises:
          InputError: as reading does.
        """
        if self.source.container == "parquet":
            self.json_columns |= parquet.json_columns(self.source)
            yield from self._batches()
            return
        frame, raw = typed_members(self.source, self.skip_bad_lines, self.report)
        self.json_columns |= raw
        yield frame

    def plain_frames(self) -> Iterator[pl.DataFrame]:
        """The same of plain JSON lines, a piece at a time and quicker: each member of one type.

        Raises:
          NotPlainError: they are not, which may show after the last piece.
        """
        fields = self._plain_fields()
        nulls = dict.fromkeys((f.name for f in fields), 0)
        members = _Members()
        rows = yield from self._plain_pieces(fields, nulls, members)
        if self.report.torn is not None or members.count != rows * len(fields):
            raise NotPlainError
        if not self._are_logged({name: n for name, n in nulls.items() if n}):
            raise NotPlainError

    def _plain_pieces(
        self, fields: Sequence[Field], nulls: dict[str, int], members: "_Members"
    ) -> Generator[pl.DataFrame, None, int]:
        """Pieces of one schema; counts nulls of each column, returns the number of rows."""
        rows, schema = 0, None
        try:
            for batch in jsonl.read(self.source, fields, False, self.report, members.add):
                frame = batch.frame.collect()
                if "json" in batch.kinds.values() or batch.rows is not None:
                    raise NotPlainError
                frame = frame.select(
                    pl.col(name) if name in frame.columns else pl.lit(None).alias(name)
                    for name in nulls
                )
                schema = schema or frame.schema
                frame = _of_schema(frame, schema)
                rows += frame.height
                for name in nulls:
                    nulls[name] += frame[name].null_count()
                yield frame
        except InputError as error:
            raise NotPlainError from error
        return rows

    def _plain_fields(self) -> list[Field]:
        if self.source.container != "jsonl":
            raise NotPlainError
        names = available_columns(self.source)
        if not names or any('"' in n or "\\" in n or "." in n or not n.isascii() for n in names):
            raise NotPlainError
        sample = self._sample(names)
        fields = []
        for name in names:
            texts = sample[name].dtype == pl.String
            role = _ROLES.get(name) or ("value" if texts else "scalar")
            if role == "value" and not texts and sample[name].dtype != pl.Null:
                raise NotPlainError
            fields.append(Field(name, name, role))
        return fields

    def _sample(self, names: Sequence[str]) -> pl.DataFrame:
        """The first lines, if each member has one plain type there."""
        fields = [Field(name, name, "scalar") for name in names]
        try:
            batch = next(jsonl.read(self.source, fields, False, LineReport()), None)
            frame = pl.DataFrame() if batch is None else batch.frame.collect()
        except InputError as error:
            raise NotPlainError from error
        missing = [pl.lit(None).alias(name) for name in names if name not in frame.columns]
        return frame.with_columns(missing)

    def _are_logged(self, nulls: Mapping[str, int]) -> bool:
        """Whether each null of these columns stands in the file, none for an absent member."""
        if not nulls:
            return True
        patterns = {n: (f'"{n}":null'.encode(), f'"{n}": null'.encode()) for n in nulls}
        found = dict.fromkeys(nulls, 0)
        with self.source.open() as stream:
            while block := stream.read(_BLOCK_BYTES) + stream.readline():
                for name, both in patterns.items():
                    found[name] += sum(map(block.count, both))
        return found == nulls

    def _batches(self) -> Iterator[pl.DataFrame]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        parquet.scan(self.source)
        try:
            with pq.ParquetFile(self.source.path) as file:
                pieces = 0
                for batch in file.iter_batches(_BATCH_ROWS):
                    pieces += 1
                    yield _frame(pa.Table.from_batches([batch]))
                if not pieces:
                    yield _frame(file.schema_arrow.empty_table())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise InputError(f"cannot be read as Parquet ({error})", self.source.name) from error


class _Members:
    """Number of members of all objects in blocks of lines.

    A key is what `":` follows; inside a string the quote is escaped.
    """

    count = 0

    def add(self, block: bytes) -> None:
        text = np.frombuffer(block, np.uint8)
        for start in range(0, len(text), _PIECE_BYTES):  # pieces stay in the cache
            piece = text[max(start - 2, 0) : start + _PIECE_BYTES]
            self.count += _keys(piece, start > 0)


def _keys(text: NDArray[np.uint8], overlaps: bool) -> int:
    """Number of `":` that no backslash precedes; the first two bytes may be of the piece before,
    which counted what ends there."""
    if (text == _BACKSLASH).any():
        ends = np.flatnonzero((text[1:-1] == _QUOTE) & (text[2:] == _COLON))
        return int(np.count_nonzero(text[ends] != _BACKSLASH))
    text = text[1:] if overlaps else text
    pairs = (text[odd : odd + (len(text) - odd) // 2 * 2].view("<u2") for odd in (0, 1))
    return sum(int(np.count_nonzero(pair == _KEY_END)) for pair in pairs)


def _frame(table: Any) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _of_schema(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    for name, dtype in schema.items():
        own = frame.schema[name]
        if own not in (dtype, pl.Null):
            raise NotPlainError
        if own != dtype:
            frame = frame.with_columns(pl.col(name).cast(dtype))
    return frame
