"""Parquet step tables, scanned lazily: only asked-for columns are decoded."""

import json
from collections.abc import Iterator, Sequence

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import Field
from crbc_cli.logs.frames import select_fields
from crbc_cli.logs.sources import Source

__all__ = ["JSON_COLUMNS", "column_names", "json_columns", "polars_errors", "read", "scan"]

JSON_COLUMNS = "crbc:json_columns"
"""Metadata key: names of the columns whose strings are one JSON document each."""


def read(source: Source, fields: Sequence[Field]) -> Iterator[Batch]:
    """The file as one lazy batch.

    Raises:
      InputError: no footer, or another defect that polars reports.
    """
    yield select_fields(scan(source), fields, source.where, json_columns(source))


def column_names(source: Source) -> list[str]:
    """Top-level columns.

    Raises:
      InputError: the file's footer or schema cannot be read.
    """
    return scan(source).collect_schema().names()


def json_columns(source: Source) -> frozenset[str]:
    """Columns that hold JSON text, as the file's metadata says.

    Raises:
      InputError: the file's footer cannot be read.
    """
    with polars_errors(source.name):
        said = pl.read_parquet_metadata(source.path).get(JSON_COLUMNS)
    return frozenset(json.loads(said)) if said else frozenset()


def scan(source: Source) -> pl.LazyFrame:
    """All columns, lazily, with the schema already read.

    Raises:
      InputError: the file's footer or schema cannot be read.
    """
    with polars_errors(source.name):
        frame = pl.scan_parquet(source.path, glob=False, hive_partitioning=False)
        frame.collect_schema()
        return frame


class polars_errors:  # noqa: N801 - reads as a statement: with polars_errors(name)
    """Turns whatever polars raises while reading `name` into an `InputError`.

    polars reports some defects as a Rust panic, which is not an `Exception`.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        panic = kind is not None and kind.__name__ == "PanicException"
        if panic or isinstance(error, pl.exceptions.PolarsError | OSError):
            text = str(error).strip().splitlines()
            raise InputError(
                f"cannot be read as Parquet ({text[0][:160] if text else kind})",
                self._name,
                "check that the writer finished it",
            ) from error
