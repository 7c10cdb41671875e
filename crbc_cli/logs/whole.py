"""All rows and columns of an input, as tables."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.columns import Field
from crbc_cli.logs.formats import jsonl, parquet
from crbc_cli.logs.formats.jsonl import LineReport
from crbc_cli.logs.passthrough import typed_members
from crbc_cli.logs.plainness import Counts, NotPlainError, plain_fields
from crbc_cli.logs.sources import Source

__all__ = ["Whole"]

_BATCH_ROWS = 1 << 18


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
        fields = [*plain_fields(self.source)]
        nulls = dict.fromkeys((f.name for f in fields), 0)
        counts = Counts(dict.fromkeys(nulls, 0))
        rows, texts = yield from self._plain_pieces(fields, nulls, counts)
        strings = sum(rows - nulls[name] for name in texts)
        if self.report.torn is not None or not counts.are_those_of(rows * len(fields), strings):
            raise NotPlainError
        if counts.nulls != nulls:
            raise NotPlainError

    def _plain_pieces(
        self, fields: Sequence[Field], nulls: dict[str, int], counts: Counts
    ) -> Generator[pl.DataFrame, None, tuple[int, list[str]]]:
        """Pieces of one schema; counts nulls of each column, returns the number of rows and the
        columns of text."""
        rows, schema = 0, pl.Schema()
        try:
            for batch in jsonl.read(self.source, fields, False, self.report, counts.add):
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
        return rows, [name for name, dtype in schema.items() if dtype == pl.String]

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
