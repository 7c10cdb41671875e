"""All rows and columns of an input, as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.columns import Field
from crbc_cli.logs.formats import jsonl, parquet
from crbc_cli.logs.formats.jsonl import LineReport
from crbc_cli.logs.passthrough import typed_members
from crbc_cli.logs.plainness import Counts, Held, NotPlainError, plain_fields
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
        counts, held = Counts(), Held()
        for frame in self._plain_pieces(fields, counts):
            held.add(frame)
            yield frame
        if self.report.torn is not None or not counts.are_those_of(held):
            raise NotPlainError

    def _plain_pieces(self, fields: Sequence[Field], counts: Counts) -> Iterator[pl.DataFrame]:
        """Pieces of one schema, with all fields."""
        schema = pl.Schema()
        try:
            for batch in jsonl.read(self.source, fields, False, self.report, counts.add):
                frame = batch.frame.collect()
                if "json" in batch.kinds.values() or batch.rows is not None:
                    raise NotPlainError
                frame = frame.select(
                    pl.col(f.name) if f.name in frame.columns else pl.lit(None).alias(f.name)
                    for f in fields
                )
                schema = schema or frame.schema
                yield _of_schema(frame, schema)
        except InputError as error:
            raise NotPlainError from error

    def _batches(self) -> Iterator[pl.DataFrame]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        parquet.scan(self.source)
        try:
            with pq.ParquetFile(self.source.path) as file:
                pieces = 0
                # pyarrow 18 fails to iterate over no row groups.
                for batch in file.iter_batches(_BATCH_ROWS) if file.num_row_groups else ():
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
