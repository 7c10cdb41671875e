"""Rows of a table as they come -> bytes of Parquet, Arrow, JSONL or CSV.

Rows are encoded in blocks of a fixed number, so that bytes do not depend on the pieces in which
they come, and memory stays flat.
"""

import base64
import functools
import io
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Literal, Protocol

import polars as pl

__all__ = ["BLOCK_ROWS", "Compression", "Encoder", "encoder", "parquet_metadata"]

Compression = Literal["zstd", "snappy"]
BLOCK_ROWS = 1 << 18
_TEXT_ROWS = 1 << 15
_IN_MEMORY = 1 << 26


class Encoder(Protocol):
    """Takes frames in order, then an end."""

    def write(self, frame: pl.DataFrame) -> None:
        """Appends rows."""

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Ends the table with metadata, where the format has a place for it."""

    def abandon(self) -> None:
        """Lets go of everything; what was written is worth nothing."""


def encoder(
    kind: str,
    stream: IO[bytes],
    first: pl.DataFrame,
    block_rows: int = BLOCK_ROWS,
    compression: Compression = "zstd",
) -> Encoder:
    """An encoder for tables with the schema of `first`, in blocks of `block_rows` rows, Parquet
    with this compression."""
    match kind:
        case "parquet":
            return _Parquet(stream, first, block_rows, compression)
        case "arrow":
            return _Arrow(stream, first, block_rows)
        case "csv":
            return _Csv(stream)
    return _Jsonl(stream)


class _Blocks:
    """Frames cut and joined to blocks of `size` rows, contiguous in memory."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._frames: list[pl.DataFrame] = []
        self._rows = 0

    def add(self, frame: pl.DataFrame) -> list[pl.DataFrame]:
        """Whole blocks that are complete now."""
        self._frames.append(frame)
        self._rows += frame.height
        if self._rows < self._size:
            return []
        pending = pl.concat(self._frames, rechunk=False)
        ends = range(self._size, self._rows + 1, self._size)
        blocks = [pending.slice(end - self._size, self._size).rechunk() for end in ends]
        self._rows %= self._size
        self._frames = [pending.tail(self._rows)]
        return blocks

    def rest(self) -> list[pl.DataFrame]:
        """The last block, if rows are left."""
        return [pl.concat(self._frames, rechunk=True)] if self._rows else []


class _Parquet:
    """Row groups of one block each. Deltas suit ids and counts, and zstd's lowest level costs a
    third less time than the third for about as many bytes."""

    def __init__(
        self, stream: IO[bytes], first: pl.DataFrame, block_rows: int, compression: Compression
    ) -> None:
        import pyarrow.parquet as pq

        self._empty = first.clear()
        self._level = _level(self._empty)
        names = {name: dtype for name, dtype in first.schema.items() if "." not in name}
        self._writer = pq.ParquetWriter(
            stream,
            self._empty.to_arrow(compat_level=self._level).schema,
            compression=compression,
            compression_level=1 if compression == "zstd" else None,
            use_dictionary=[n for n, t in names.items() if not t.is_numeric()],
            write_statistics=[n for n, t in names.items() if t != pl.String or n.endswith("_id")],
            column_encoding={n: "DELTA_BINARY_PACKED" for n, t in names.items() if t.is_integer()},
            store_schema=False,  # it is added at the end, with the metadata
        )
        self._blocks = _Blocks(block_rows)

    def write(self, frame: pl.DataFrame) -> None:
        self._encode(self._blocks.add(frame))

    def finish(self, metadata: Mapping[str, str]) -> None:
        self._encode(self._blocks.rest())
        self._writer.add_key_value_metadata(parquet_metadata(self._empty, metadata))
        self._writer.close()

    def abandon(self) -> None:
        with suppress(Exception):
            self._writer.close()
        self._writer.is_open = False  # or it tries again when it is collected

    def _encode(self, blocks: list[pl.DataFrame]) -> None:
        for block in blocks:
            table = block.to_arrow(compat_level=self._level)
            self._writer.write_table(table, row_group_size=max(block.height, 1))


def _level(frame: pl.DataFrame) -> pl.CompatLevel | None:
    """How text goes to pyarrow: as it is where that is written for what it is, else copied."""
    plain = all(t.is_numeric() or t in (pl.String, pl.Boolean) for t in frame.dtypes)
    return pl.CompatLevel.newest() if plain and _writes_views() else None


@functools.cache
def _writes_views() -> bool:
    """Whether this version of pyarrow writes views of text to Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"": pa.array([], pa.string_view())})
    try:
        pq.write_table(table, io.BytesIO(), store_schema=False)
    except pa.ArrowException:
        return False
    return True


def parquet_metadata(frame: pl.DataFrame, metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata of a Parquet file, in its Arrow schema too: pyarrow and pandas show no other."""
    schema = frame.clear().to_arrow().schema.with_metadata(dict(metadata))
    return dict(metadata) | {
        "ARROW:schema": base64.b64encode(schema.serialize().to_pybytes()).decode()
    }


class _Arrow:
    """An Arrow stream. Its metadata stands in front, but is known only at the end."""

    def __init__(self, stream: IO[bytes], first: pl.DataFrame, block_rows: int) -> None:
        import pyarrow as pa

        self._stream = stream
        self._schema = first.clear().to_arrow().schema
        self._body: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        self._writer = pa.ipc.new_stream(self._body, self._schema)
        self._blocks = _Blocks(block_rows)

    def write(self, frame: pl.DataFrame) -> None:
        self._encode(self._blocks.add(frame))

    def finish(self, metadata: Mapping[str, str]) -> None:
        self._encode(self._blocks.rest())
        self._writer.close()
        self._stream.write(self._schema.with_metadata(dict(metadata)).serialize())
        self._body.seek(len(self._schema.serialize()))
        shutil.copyfileobj(self._body, self._stream, 1 << 20)
        self._body.close()

    def abandon(self) -> None:
        self._body.close()

    def _encode(self, blocks: list[pl.DataFrame]) -> None:
        for block in blocks:
            self._writer.write_table(block.to_arrow())


class _Jsonl:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, frame: pl.DataFrame) -> None:
        for piece in frame.iter_slices(_TEXT_ROWS):
            self._stream.write(piece.write_ndjson().encode())

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Nothing: metadata stands beside the file."""

    def abandon(self) -> None:
        """Nothing: the stream is all there is."""


class _Csv:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._header = True

    def write(self, frame: pl.DataFrame) -> None:
        for piece in frame.iter_slices(_TEXT_ROWS) if frame.height else (frame,):
            self._stream.write(piece.write_csv(include_header=self._header).encode())
            self._header = False

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Nothing: metadata stands beside the file."""

    def abandon(self) -> None:
        """Nothing: the stream is all there is."""
