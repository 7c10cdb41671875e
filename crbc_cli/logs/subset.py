"""Some rows of inputs, unchanged, in the inputs' own format."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import IO, Any

import polars as pl

from crbc_cli.errors import InputError, OutputError
from crbc_cli.logs.passthrough import raw_lines
from crbc_cli.logs.sources import Source
from crbc_cli.logs.write import METADATA_KEY, Target, write_lines

__all__ = ["write_subset"]

_BATCH_ROWS = 1 << 16


def write_subset(
    sources: Sequence[Source],
    kept: Sequence[pl.Series],
    target: Target,
    metadata: Mapping[str, Any],
    *,
    skip_bad_lines: bool,
) -> None:
    """Writes the kept rows of inputs of one format.

    JSONL keeps every value byte for byte (blanks between members go, NaN becomes null); Parquet
    keeps its Arrow schema with its metadata, and `metadata` is added under the key `crbc`.

    Args:
      sources: inputs, all of the target's format.
      kept: per input, Boolean per row.
      target: destination.
      metadata: how the output was made.
      skip_bad_lines: as the log was read.
    Raises:
      OutputError: it cannot be written, or the inputs' columns differ.
      InputError: an input cannot be read any more.
    """
    if target.format == "jsonl":
        write_lines(_lines(sources, kept, skip_bad_lines), target, metadata)
    else:
        with target.open() as stream:
            _copy_parquet(sources, kept, stream, metadata)


def _lines(
    sources: Sequence[Source], kept: Sequence[pl.Series], skip_bad_lines: bool
) -> Iterator[bytes]:
    for source, mask in zip(sources, kept, strict=True):
        lines = zip_longest(raw_lines(source, skip_bad_lines), mask.to_list())
        for line, keep in lines:
            if line is None or keep is None:
                raise source.changed()
            if keep:
                yield line


def _copy_parquet(
    sources: Sequence[Source],
    kept: Sequence[pl.Series],
    stream: IO[bytes],
    metadata: Mapping[str, Any],
) -> None:
    import pyarrow.parquet as pq

    made = {METADATA_KEY.encode(): json.dumps(metadata, ensure_ascii=False, sort_keys=True)}
    schema = _schema(sources[0])
    differing = next((s for s in sources if not _schema(s).equals(schema)), None)
    if differing is not None:
        raise OutputError(
            "the inputs' columns differ",
            differing.name,
            "write one output per input: leave -o away",
        )
    described = schema.with_metadata((schema.metadata or {}) | made)
    with pq.ParquetWriter(stream, described, compression="zstd") as writer:
        for source, mask in zip(sources, kept, strict=True):
            for batch in _kept_batches(source, mask):
                writer.write_batch(batch)


def _kept_batches(source: Source, mask: pl.Series) -> Iterator[Any]:
    """The kept rows of a Parquet input as Arrow batches, none of them empty."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    start = 0
    try:
        file = pq.ParquetFile(source.path)
        if file.metadata.num_rows != len(mask):
            raise source.changed()
        # pyarrow 18 fails to iterate over no row groups.
        for batch in file.iter_batches(_BATCH_ROWS) if file.num_row_groups else ():
            chosen = batch.filter(mask.slice(start, len(batch)).to_arrow())
            start += len(batch)
            if len(chosen):
                yield chosen
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise _unreadable(source, error) from error


def _schema(source: Source) -> Any:
    """Arrow schema of a Parquet input."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(source.path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise _unreadable(source, error) from error


def _unreadable(source: Source, error: Exception) -> InputError:
    return InputError(f"cannot be read as Parquet ({error})", source.name)
