"""Plain JSON lines -> a Parquet step table, decoded and encoded at once on all cores.

The file is read once, in blocks: while some are decoded and encoded, what stands in those before
them is counted.
"""

import codecs
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, Any

import polars as pl
from polars.io.plugins import register_io_source

from crbc_cli.errors import CrbcError
from crbc_cli.logs.columns import Field, ReadRole
from crbc_cli.logs.encode import Compression, parquet_metadata
from crbc_cli.logs.formats.lines import blocks
from crbc_cli.logs.overlap import ahead, in_order
from crbc_cli.logs.plainness import (
    STEP_ROLES,
    Counts,
    Held,
    NotPlainError,
    plain_fields,
)
from crbc_cli.logs.sources import Source
from crbc_cli.options import LARGEST

__all__ = ["Straight"]

_BLOCK_BYTES = 1 << 22
_DECODERS = 2  # each uses all cores, but for its start and its end
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
      source: JSON lines.
      fields: its members, in the order in which they are written.
      schema: their types in the log.
    """

    source: Source
    fields: Sequence[Field]
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, source: Source) -> "Straight | None":
        """None where it does not look plain."""
        if source.container != "jsonl":
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
        """Writes all rows.

        Args:
          stream: a new file.
          group_rows: rows of a row group.
          metadata: asked for once all rows are read.
          compression: of the columns.
        Returns:
          Number of rows.
        Raises:
          NotPlainError: the log is not plain after all; what was written is worth nothing.
        """
        reading = _Reading(self)
        empty = reading.typed(pl.DataFrame(schema=self.schema))
        rows = register_io_source(lambda *_: reading.frames(), schema=empty.schema)
        try:
            rows.sink_parquet(
                stream,
                compression=compression,
                row_group_size=group_rows,
                metadata=lambda _: {} if reading.ended else parquet_metadata(empty, metadata()),
            )
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise NotPlainError from error
        if reading.ended:
            raise NotPlainError from reading.ended
        return reading.rows


@dataclass
class _Reading:
    """One reading of a log.

    Attributes:
      log: the log.
      rows: number of those that came so far.
      ended: why no more came, if the log is not plain after all.
    """

    log: Straight
    rows: int = field(default=0, init=False)
    ended: Exception | None = field(default=None, init=False)

    def frames(self) -> Generator[pl.DataFrame]:
        """All rows, a piece at a time; fewer where `ended` says why."""
        try:
            yield from self._frames()
        except (CrbcError, NotPlainError) as error:
            # Raised here, it would leave threads of polars behind that write on.
            self.ended = error
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            self.ended = NotPlainError(str(error))

    def _frames(self) -> Generator[pl.DataFrame]:
        with ThreadPoolExecutor(_DECODERS) as decoders, ThreadPoolExecutor(1) as beside:
            # Both take a while, and the metadata needs them.
            checks = deque[Future[Any]]([beside.submit(import_module, "pyarrow")])
            if self.log.source.compression is not None:
                checks.append(beside.submit(getattr, self.log.source, "digest"))
            lines = ahead(self._blocks())
            for block, frame in in_order(decoders, _DECODERS, lines, self._decoded):
                checks.append(beside.submit(self._check, block, frame))
                if len(checks) > _DECODERS + 1:
                    checks.popleft().result()
                self.rows += frame.height
                yield frame
            for check in checks:
                check.result()

    def _blocks(self) -> Generator[bytes]:
        """Whole lines; notes the digest of all, which is that of the file as it is."""
        import xxhash

        source, digest = self.log.source, xxhash.xxh3_128()
        for block in blocks(source, _BLOCK_BYTES):
            if source.compression is None:
                digest.update(block)
            yield block
        if source.compression is None:
            source.note_digest(digest.hexdigest())

    def _decoded(self, block: bytes) -> tuple[bytes, pl.DataFrame]:
        return block, self.typed(pl.read_ndjson(block, schema=self.log.schema))

    def typed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with the types of the step table."""
        flags = [
            pl.col(f.name).replace_strict({0: False, 1: True}, return_dtype=pl.Boolean)
            for f in self.log.fields
            if f.role == "flag" and frame.schema[f.name] == pl.Int64
        ]
        return frame.with_columns(flags) if flags else frame

    def _check(self, block: bytes, frame: pl.DataFrame) -> None:
        """Raises NotPlainError where the frame is not all that stands in the block."""
        held, counts = Held(), Counts()
        held.add(frame)
        counts.add(block, nulls=held.nulls > 0)
        if not counts.are_those_of(held):
            raise NotPlainError
        if counts.escapes and any(_holds_zero(c) for c in frame if c.dtype == pl.String):
            raise NotPlainError
        for f in self.log.fields:
            if f.role in ("id", "integer") and frame[f.name].has_nulls():
                raise NotPlainError
            if f.role == "number" and not _in_range(frame[f.name]):
                raise NotPlainError


def _in_range(numbers: pl.Series) -> bool:
    """Whether a column holds no number that is refused elsewhere."""
    return bool(numbers.is_between(-LARGEST, LARGEST).all())


def _holds_zero(texts: pl.Series) -> bool:
    """Whether a text may hold what stood for a lone surrogate."""
    return bool(texts.str.contains("\0", literal=True).any())
