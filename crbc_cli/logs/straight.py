"""Plain JSON lines -> a Parquet step table in one query, which decodes and encodes at once."""

import codecs
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

import polars as pl

from crbc_cli.logs.columns import Field, ReadRole
from crbc_cli.logs.encode import Compression, parquet_metadata
from crbc_cli.logs.formats.lines import blocks
from crbc_cli.logs.plainness import (
    STEP_ROLES,
    Counts,
    NotPlainError,
    plain_fields,
)
from crbc_cli.logs.sources import Source
from crbc_cli.options import LARGEST

__all__ = ["Straight"]

_SCAN_BYTES = 1 << 20
_DTYPES: dict[ReadRole, dict[frozenset[type], Any]] = {
    "id": {frozenset({str}): pl.String, frozenset({int}): pl.Int64},
    "integer": {frozenset({int}): pl.Int64},
    "flag": {
        frozenset({bool}): pl.Boolean,
        frozenset({int}): pl.Int64,  # 0 or 1
        frozenset(): pl.Boolean,
    },
    "number": dict.fromkeys(map(frozenset, ((), (int,), (float,), (int, float))), pl.Float64),
    "value": {frozenset({str}): pl.String, frozenset(): pl.String},
    "scalar": {
        frozenset({bool}): pl.Boolean,
        frozenset({int}): pl.Int64,
        frozenset({float}): pl.Float64,
        frozenset({int, float}): pl.Float64,
    },
}
"""Role -> types of the first values -> what they are read as."""


@dataclass(frozen=True)
class Straight:
    """A log that looks plain.

    Attributes:
      source: an uncompressed file of JSON lines.
      fields: its members, in the order in which they are written.
      schema: their types in the log.
    """

    source: Source
    fields: Sequence[Field]
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, source: Source) -> "Straight | None":
        """None where it does not look plain."""
        if source.container != "jsonl" or source.compression is not None:
            return None
        try:
            with source.open() as stream:
                marked = stream.read(3) == codecs.BOM_UTF8
            found = {} if marked else plain_fields(source)
        except NotPlainError:
            return None
        order = {name: place for place, name in enumerate(STEP_ROLES)}
        fields = sorted(found, key=lambda f: order.get(f.name, len(order)))
        schema = {f.name: _DTYPES[f.role].get(frozenset(found[f])) for f in fields}
        return None if None in schema.values() or not schema else cls(source, fields, schema)

    def write(
        self,
        stream: IO[bytes],
        group_rows: int,
        metadata: Callable[[], Mapping[str, str]],
        compression: Compression,
    ) -> int:
        """Writes all rows to a new file.

        Args:
          stream: the file; it has a name.
          group_rows: rows of a row group.
          metadata: asked for once all rows are written.
          compression: of the columns.
        Returns:
          Number of rows.
        Raises:
          NotPlainError: the log is not plain after all; what was written is worth nothing.
        """
        flags = [
            pl.col(field.name).replace_strict({0: False, 1: True}, return_dtype=pl.Boolean)
            for field in self.fields
            if field.role == "flag" and self.schema[field.name] == pl.Int64
        ]
        empty = pl.DataFrame(schema=self.schema).with_columns(flags)
        with ThreadPoolExecutor(1) as beside:
            scan = beside.submit(_scan, self.source, [*self.schema])

            def described() -> dict[str, str]:
                self.source.note_digest(scan.result()[1])
                return parquet_metadata(empty, metadata())

            try:
                # A path would be mapped into memory, where a file cut short ends the process.
                place = self.source.path.absolute().as_uri()
                rows = pl.scan_ndjson(place, schema=self.schema).with_columns(flags)
                rows.sink_parquet(
                    stream,
                    compression=compression,
                    row_group_size=group_rows,
                    metadata=lambda context: described(),
                )
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
                raise NotPlainError from error
            stream.flush()
            return self._checked(stream.name, scan.result()[0])

    def _checked(self, path: str, counts: "Counts") -> int:
        import pyarrow.parquet as pq

        footer = pq.read_metadata(path)
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        rows, nulls, strings = int(footer.num_rows), {}, 0
        for place, field in enumerate(self.fields):
            statistics = [group.column(place).statistics for group in groups]
            nulls[field.name] = sum(s.null_count for s in statistics)
            if field.role in ("id", "integer") and nulls[field.name]:
                raise NotPlainError
            if field.role == "number" and not all(_in_range(s) for s in statistics):
                raise NotPlainError
            if self.schema[field.name] == pl.String:
                strings += rows - nulls[field.name]
        if not counts.are_those_of(rows * len(self.fields), strings):
            raise NotPlainError
        if counts.escapes and _holds_zero(path, self.schema):
            raise NotPlainError
        if counts.nulls != nulls:
            raise NotPlainError
        return rows


def _scan(source: Source, names: Sequence[str]) -> tuple[Counts, str]:
    """(what stands in a file, its digest), in one go."""
    import xxhash

    counts, digest = Counts(dict.fromkeys(names, 0)), xxhash.xxh3_128()
    for block in blocks(source, _SCAN_BYTES):
        counts.add(block)
        digest.update(block)
    return counts, digest.hexdigest()


def _in_range(statistics: Any) -> bool:
    """Whether a column holds no number that is refused elsewhere."""
    if not statistics.has_min_max:
        return True
    return bool(statistics.min >= -LARGEST and statistics.max <= LARGEST)


def _holds_zero(path: str, schema: Mapping[str, Any]) -> bool:
    texts = [name for name, dtype in schema.items() if dtype == pl.String]
    zero = pl.col(texts).str.contains("\0", literal=True)
    return bool(texts) and any(pl.scan_parquet(path).select(zero.any()).collect().row(0))
