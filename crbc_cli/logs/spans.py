"""Rows of a tabular input by number, so that a log is never in memory as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import Field
from crbc_cli.logs.formats import parquet
from crbc_cli.logs.frames import decodes, select_fields
from crbc_cli.logs.sources import Source

__all__ = ["Spans"]


@dataclass(frozen=True)
class Spans:
    """One Parquet input or frame, read a span of rows at a time.

    Parquet pages outside a span are not decompressed, so that reading all spans costs about as
    much as reading everything at once.
    """

    source: Source

    @classmethod
    def of(cls, source: Source) -> "Spans | None":
        """None where rows can only be read from the start."""
        tabular = source.frame is not None or source.container == "parquet"
        return cls(source) if tabular else None

    def __getstate__(self) -> dict[str, Source]:
        return {"source": self.source}

    @cached_property
    def frame(self) -> pl.LazyFrame:
        """All columns."""
        if self.source.frame is not None:
            return self.source.frame.lazy()
        return parquet.scan(self.source)

    @cached_property
    def _json_columns(self) -> frozenset[str]:
        return frozenset() if self.source.frame is not None else parquet.json_columns(self.source)

    @cached_property
    def rows(self) -> int:
        """Number of rows."""
        with parquet.polars_errors(self.source.name):
            return int(self.frame.select(pl.len()).collect().item())

    def steady(self, fields: Sequence[Field]) -> bool:
        """Whether the types of these fields do not depend on which rows are read together."""
        return not decodes(self.frame.collect_schema(), fields)

    def row_bytes(self, fields: Sequence[Field]) -> int:
        """About how many bytes the values of these fields have per row."""
        if self.source.frame is not None or not self.rows:
            return 0
        import pyarrow as pa
        import pyarrow.parquet as pq

        heads = {field.column.split(".")[0] for field in fields}
        try:
            footer = pq.read_metadata(self.source.path)
            columns = [
                footer.row_group(i).column(j)
                for i in range(footer.num_row_groups)
                for j in range(footer.num_columns)
            ]
        except (pa.ArrowException, OSError):  # polars may still read it
            return 0
        mine = [c for c in columns if c.path_in_schema.split(".")[0] in heads]
        return int(sum(c.total_uncompressed_size for c in mine)) // self.rows

    def read(self, fields: Sequence[Field], start: int, rows: int) -> Batch:
        """Rows start:start + rows; fields that the input does not have are left out.

        Raises:
          InputError: they cannot be read.
        """
        with parquet.polars_errors(self.source.name):
            part = self.frame.slice(start, rows)
            batch = select_fields(
                part, fields, lambda row: self.source.where(start + row), self._json_columns
            )
        return replace(batch, first_row=start)

    def columns(self, start: int, rows: int) -> pl.DataFrame:
        """Every column of rows start:start + rows.

        Raises:
          InputError: they cannot be read, or are not there any more.
        """
        with parquet.polars_errors(self.source.name):
            frame = self.frame.slice(start, rows).collect()
        if frame.height != rows:
            raise self.source.changed()
        return frame
