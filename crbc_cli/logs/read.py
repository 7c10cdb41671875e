"""Any input -> batches of step-table fields."""

from collections.abc import Iterator, Sequence

import msgspec

from crbc_cli.errors import CrbcError
from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import Field
from crbc_cli.logs.formats import jsonl, parquet
from crbc_cli.logs.formats.jsonl import LineReport
from crbc_cli.logs.frames import select_fields
from crbc_cli.logs.sources import Source

__all__ = ["available_columns", "read"]

_FEW_BYTES = 1 << 16


def read(
    source: Source, fields: Sequence[Field], *, skip_bad_lines: bool, report: LineReport
) -> Iterator[Batch]:
    """Batches in file order; fields that a batch does not have are left out of it.

    Raises:
      InputError: the file cannot be read; BadLineError: a bad inner line.
    """
    if source.frame is not None:
        return iter([select_fields(source.frame.lazy(), fields, source.where)])
    if source.container == "parquet":
        return parquet.read(source, fields)
    return jsonl.read(source, fields, skip_bad_lines, report)


def available_columns(source: Source) -> list[str]:
    """Column names, for JSONL those of its first readable line; empty if there is none."""
    if source.frame is not None:
        return source.frame.columns
    if source.container == "parquet":
        return parquet.column_names(source)
    try:
        raw, report = dict[str, msgspec.Raw], LineReport()
        for _, rows in jsonl.decode_lines(source, raw, True, report, _FEW_BYTES):
            return list(rows[0])
    except CrbcError:
        return []
    return []
