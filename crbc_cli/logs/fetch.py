"""Text of single rows, read again where it is shown: no run keeps text in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import polars as pl

from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import Field
from crbc_cli.logs.formats.jsonl import LineReport
from crbc_cli.logs.formats.parquet import polars_errors
from crbc_cli.logs.read import read
from crbc_cli.logs.sources import Source

__all__ = ["fetch_text"]

_ROW = ":row"


def fetch_text(
    source: Source, rows: Sequence[int], columns: Mapping[str, str], *, skip_bad_lines: bool
) -> dict[int, dict[str, str | None]]:
    """Some columns of some rows, as text.

    Args:
      source: input.
      rows: source rows, in any order.
      columns: name in the result -> column or dotted path in the input.
      skip_bad_lines: as the log was read.
    Returns:
      Source row -> name -> the string as logged, or JSON of any other value; None where the
      value is null or absent.
    Raises:
      InputError: the input cannot be read any more.
    """
    fields = [Field(name, column, "value") for name, column in columns.items()]
    wanted = sorted(set(rows))
    found: dict[int, dict[str, str | None]] = {}
    for batch in read(source, fields, skip_bad_lines=skip_bad_lines, report=LineReport()):
        if len(found) == len(wanted):
            break
        with polars_errors(source.name):
            part = _rows_of(batch, wanted).collect()
        for row in part.iter_rows(named=True):
            texts = {
                name: _text(row.get(name), batch.kinds.get(name) == "native") for name in columns
            }
            found[row[_ROW]] = texts
    if len(found) < len(wanted):
        raise source.changed()
    return found


def _rows_of(batch: Batch, wanted: Sequence[int]) -> pl.LazyFrame:
    """The wanted rows of a batch, numbered. The slice keeps a scan from decoding other rows."""
    frame = batch.frame
    if batch.rows is not None:
        frame = frame.with_columns(batch.rows.alias(_ROW))
    else:
        start = max(wanted[0] - batch.first_row, 0)
        length = max(wanted[-1] - batch.first_row - start + 1, 0)
        frame = frame.slice(start, length).with_row_index(_ROW, offset=batch.first_row + start)
    return frame.filter(pl.col(_ROW).is_in(list(wanted)))


def _text(value: Any, native: bool) -> str | None:
    if value is None:
        return None
    return msgspec.json.encode(value, enc_hook=str).decode() if native else str(value)
