"""Turning what a file holds into step-table columns, by role, with errors that name the place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import polars as pl

from crbc_cli.errors import ColumnError, IdentityError, OutcomeError

__all__ = ["Field", "ValueKind", "conform", "from_values", "resolve_column"]

ReadRole = Literal["id", "integer", "flag", "number", "value", "scalar"]
ValueKind = Literal["text", "json", "native"]
"""How a value column is held: strings; JSON text, one document per row; a Parquet type."""

Where = Callable[[int], str]
"""Row index inside a batch -> place for a message, `file:line` or `file row n`."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column to read.

    Attributes:
      name: its name in the step table.
      column: column or dotted path in the file.
      role: how it is read; see `crbc_cli.tables.Role` ("scalar": any string, number or boolean).
      required: an error if the file does not have it.
    """

    name: str
    column: str
    role: ReadRole
    required: bool = False


def from_values(field: Field, values: Sequence[Any], where: Where) -> tuple[pl.Series, ValueKind]:
    """A step-table column from decoded JSON values.

    Args:
      field: name and role.
      values: one per row; None for null or absent.
      where: names the place of a row in messages.
    Raises:
      ColumnError: a value of a type the role does not allow.
    """
    kinds = set(map(type, values)) - {type(None)}
    if field.role == "value":
        if kinds <= {str}:
            return pl.Series(field.name, values, dtype=pl.String), "text"
        encode = msgspec.json.Encoder(enc_hook=str).encode
        texts = [None if v is None else encode(v).decode() for v in values]
        return pl.Series(field.name, texts, dtype=pl.String), "json"
    dtype = _scalar_dtype(kinds)
    if dtype is None:
        first = type(next(v for v in values if v is not None))
        odd = next(i for i, v in enumerate(values) if v is not None and type(v) is not first)
        raise ColumnError(
            f"column {field.column} is {_JSON_NAMES.get(type(values[odd]), 'nested')} here "
            f"but {_JSON_NAMES.get(first, 'nested')} before",
            where(odd),
            "write one type per column",
        )
    try:
        series = pl.Series(field.name, values, dtype=dtype, strict=False)
    except OverflowError:
        series = None
    if series is None or (dtype == pl.Int64 and series.null_count() > values.count(None)):
        odd = next(i for i, v in enumerate(values) if v is not None and abs(v) >= 2**63)
        raise ColumnError(
            f"column {field.column} holds {values[odd]}, beyond 64 bits",
            where(odd),
            "write it as a string",
        )
    return series, "text"


_JSON_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
}


def _scalar_dtype(kinds: set[type]) -> pl.DataType | None:
    if not kinds:
        return pl.Null()
    if kinds == {str}:
        return pl.String()
    if kinds == {bool}:
        return pl.Boolean()
    if kinds == {int}:
        return pl.Int64()
    return pl.Float64() if kinds <= {int, float} else None


def conform(series: pl.Series, field: Field, where: Where) -> pl.Series:
    """A column cast to its role's dtype.

    id keeps String or its integer dtype; integer gives Int64; flag gives Boolean; number gives
    Float64 with NaN and infinities as null; scalar is kept.

    Raises:
      ColumnError, IdentityError, OutcomeError: naming the first row that does not fit.
    """
    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    if series.dtype == pl.Decimal:
        series = series.cast(pl.Float64)
    match field.role:
        case "id":
            return _conform_id(series, field, where)
        case "integer":
            return _conform_integer(series, field, where)
        case "flag":
            return _conform_flag(series, field, where)
        case "number":
            if not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
                raise _wrong_type(series, field, "numbers", where)
            numbers = series.cast(pl.Float64)
            return numbers.set(~numbers.is_finite(), None)
        case "scalar":
            if series.dtype.is_nested() or series.dtype == pl.Binary:
                raise _wrong_type(series, field, "strings, numbers or booleans", where)
            return series
        case _:
            return series


def _conform_id(series: pl.Series, field: Field, where: Where) -> pl.Series:
    if series.dtype != pl.String and not series.dtype.is_integer() and series.dtype != pl.Null:
        raise _wrong_type(series, field, "strings or integers", where)
    _refuse_null(series, field, where)
    return series


def _conform_integer(series: pl.Series, field: Field, where: Where) -> pl.Series:
    if not (series.dtype.is_numeric() or series.dtype == pl.Null):
        raise _wrong_type(series, field, "whole numbers", where)
    _refuse_null(series, field, where)
    whole = series.cast(pl.Int64, strict=False)
    odd = (whole.is_null() | (whole.cast(series.dtype) != series)).arg_true()
    if len(odd):
        raise IdentityError(
            f"column {field.column} is {series[odd[0]]}, not a whole number", where(odd[0])
        )
    return whole


def _conform_flag(series: pl.Series, field: Field, where: Where) -> pl.Series:
    if series.dtype == pl.Boolean:
        return series
    if series.dtype == pl.Null:
        return series.cast(pl.Boolean)
    if not series.dtype.is_numeric():
        raise _wrong_type(series, field, "true/false or 0/1", where)
    numbers = series.cast(pl.Float64)
    numbers = numbers.set(~numbers.is_finite(), None)
    odd = (~numbers.is_in([0.0, 1.0])).fill_null(False).arg_true()
    if len(odd):
        raise OutcomeError(
            f"column {field.column} is {series[odd[0]]}, neither true/false nor 0/1",
            where(odd[0]),
            _outcome_hint(field),
        )
    return numbers.cast(pl.Boolean)


def _refuse_null(series: pl.Series, field: Field, where: Where) -> None:
    if series.null_count():
        raise IdentityError(
            f"{field.name} is missing",
            where(series.is_null().arg_true()[0]),
            f"every row needs {field.column}",
        )


def _wrong_type(series: pl.Series, field: Field, wanted: str, where: Where) -> ColumnError:
    filled = series.is_not_null().arg_true()
    place = where(filled[0] if len(filled) else 0)
    sample = f", for example {str(series[filled[0]])[:40]!r}" if len(filled) else ""
    return ColumnError(
        f"column {field.column} has type {series.dtype}{sample}; needs {wanted}",
        place,
        _outcome_hint(field),
    )


def _outcome_hint(field: Field) -> str:
    if field.name == "success":
        return 'give the outcome as --success-when, for example --success-when "reward >= 1"'
    return f"map another column with --map {field.name}=COLUMN"


def resolve_column(column: str, available: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Splits `column` into a column of the file and a path inside it.

    The longest literal column name wins, so a column called `observation.state` is not taken
    for a path. None if nothing matches.
    """
    parts = column.split(".")
    for length in range(len(parts), 0, -1):
        head = ".".join(parts[:length])
        if head in available:
            return head, tuple(parts[length:])
    return None
