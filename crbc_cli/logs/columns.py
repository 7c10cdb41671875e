"""Turning what a file holds into step-table columns, by role, with errors that name the place."""

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import polars as pl

from crbc_cli.errors import ColumnError, IdentityError, OptionError, OutcomeError
from crbc_cli.options import LARGEST

__all__ = [
    "Field",
    "ValueKind",
    "conform",
    "from_values",
    "holds_bytes",
    "member_at",
    "refuse_null",
    "resolve_column",
]

ReadRole = Literal["id", "integer", "flag", "number", "value", "scalar", "label"]
ValueKind = Literal["text", "json", "native"]
"""How a value column is held: strings; JSON text, one document per row; a Parquet type."""

_DEEPEST = 100  # members inside one another that a dotted path may name

Where = Callable[[int], str]
"""Row index inside a batch -> place for a message, `file:line` or `file row n`."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column to read.

    Attributes:
      name: its name in the step table.
      column: column or dotted path in the file.
      role: how it is read; see `crbc_cli.tables.Role` ("scalar": any string, number or boolean;
        "label": the same, or any nested value as its JSON text).
      required: an error if the file does not have it.
      lenient: left out where its type does not fit its role: no number depends on it.
    """

    name: str
    column: str
    role: ReadRole
    required: bool = False
    lenient: bool = False

    def __post_init__(self) -> None:
        if self.column.count(".") > _DEEPEST:
            raise OptionError(f"column {self.column[:40]}… has more than {_DEEPEST} dots")

    @property
    def label(self) -> str:
        """Its name without the prefix that says what it is read for."""
        return self.name.rpartition(":")[2]


def from_values(
    field: Field, values: Sequence[Any], where: Where, *, non_finite: bool = False
) -> tuple[pl.Series, ValueKind]:
    """A step-table column from decoded JSON values.

    Args:
      field: name and role.
      values: one per row; None for null or absent.
      where: names the place of a row in messages.
      non_finite: NaN or an infinity may occur, which strict JSON text cannot hold.
    Raises:
      ColumnError: a value of a type the role does not allow.
    """
    kinds = set(map(type, values)) - {type(None)}
    if field.role == "value":
        if kinds <= {str}:
            return pl.Series(field.name, values, dtype=pl.String), "text"
        return _json_texts(field.name, values, json.dumps if non_finite else _ENCODE), "json"
    if field.role == "label" and kinds and kinds <= {list, dict}:
        return _json_texts(field.name, values, _ENCODE_SORTED), "text"
    dtype = _scalar_dtype(kinds)
    real = field.role in ("flag", "number") and kinds <= {bool, int, float}
    if dtype is None and not real:
        raise _mixed_types(field, values, where)
    try:
        series = pl.Series(field.name, values, dtype=dtype, strict=False) if dtype else None
    except OverflowError:
        series = None
    if series is None or (dtype == pl.Int64 and series.null_count() > values.count(None)):
        if real:
            numbers = [None if v is None else _as_float(v) for v in values]
            return pl.Series(field.name, numbers, dtype=pl.Float64), "text"
        if all(v is None or 0 <= v < 2**64 for v in values):
            return pl.Series(field.name, values, dtype=pl.UInt64), "text"
        odd = next(i for i, v in enumerate(values) if v is not None and not -(2**63) <= v < 2**63)
        raise ColumnError(
            f"column {field.column} holds {str(values[odd])[:40]}, beyond 64 bits",
            where(odd),
            "write it as a string",
        )
    return series, "text"


_ENCODE = msgspec.json.Encoder(enc_hook=str).encode
_ENCODE_SORTED = msgspec.json.Encoder(enc_hook=str, order="sorted").encode


def _json_texts(
    name: str, values: Sequence[Any], encode: Callable[[Any], str | bytes]
) -> pl.Series:
    texts = [None if v is None else encode(v) for v in values]
    texts = [t.decode() if isinstance(t, bytes) else t for t in texts]
    return pl.Series(name, texts, dtype=pl.String)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond the range of floats
        return float("inf")


def _mixed_types(field: Field, values: Sequence[Any], where: Where) -> ColumnError:
    filled = [i for i, v in enumerate(values) if v is not None]
    first = type(values[filled[0]])
    odd = next((i for i in filled if type(values[i]) is not first), None)
    if odd is None:
        return ColumnError(
            f"column {field.column} is {_JSON_NAMES[first]}",
            where(filled[0]),
            _member_hint(field),
        )
    return ColumnError(
        f"column {field.column} is {_JSON_NAMES[type(values[odd])]} here "
        f"but {_JSON_NAMES[first]} before",
        where(odd),
        "write one type per column",
    )


def _member_hint(field: Field) -> str:
    quoted = field.name.startswith("rule:")  # unquoted, SQL takes what follows the dot for its own
    member = f'"{field.column}.MEMBER"' if quoted else f"{field.column}.MEMBER"
    return f"name a member of it, for example {member}"


_JSON_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    list: "a list",
    dict: "an object",
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
    Float64 with NaN and infinities as null, not beyond LARGEST; scalar is kept; label is kept,
    nested ones as JSON.

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
            numbers = numbers.set(~numbers.is_finite(), None)
            large = (numbers.abs() > LARGEST).fill_null(False).arg_true()
            if len(large):
                raise ColumnError(
                    f"column {field.column} is {series[large[0]]}, beyond {LARGEST}",
                    where(large[0]),
                    "rescale the column",
                )
            return numbers
        case "scalar":
            if series.dtype.is_nested() or series.dtype == pl.Binary:
                raise _wrong_type(series, field, "strings, numbers or booleans", where)
            return series
        case "label":
            if field.required:
                refuse_null(series, field, where)
            if series.dtype == pl.Duration or holds_bytes(series.dtype):
                raise _wrong_type(series, field, "text, numbers or nested values", where)
            return _nested_as_json(series) if series.dtype.is_nested() else series
        case _:
            return series


def holds_bytes(dtype: Any) -> bool:
    """Whether values of a polars type hold bytes that need not be text, at any depth."""
    if isinstance(dtype, pl.Struct):
        return any(holds_bytes(field.dtype) for field in dtype.fields)
    inner = getattr(dtype, "inner", None)
    return dtype == pl.Binary or (inner is not None and holds_bytes(inner))


def _nested_as_json(series: pl.Series) -> pl.Series:
    wrapped = pl.struct(pl.col(series.name).alias("v")).struct.json_encode()
    texts = series.to_frame().select(wrapped.str.slice(len('{"v":')).str.head(-1)).to_series()
    return texts.set(series.is_null(), None).rename(series.name)


def _conform_id(series: pl.Series, field: Field, where: Where) -> pl.Series:
    if series.dtype != pl.String and not series.dtype.is_integer() and series.dtype != pl.Null:
        raise _wrong_type(series, field, "strings or integers", where)
    refuse_null(series, field, where)
    return series


def _conform_integer(series: pl.Series, field: Field, where: Where) -> pl.Series:
    if not (series.dtype.is_numeric() or series.dtype == pl.Null):
        raise _wrong_type(series, field, "whole numbers", where)
    refuse_null(series, field, where)
    whole = series.cast(pl.Int64, strict=False)
    odd = (whole.is_null() | (whole.cast(series.dtype) != series)).arg_true()
    if len(odd):
        value = series[odd[0]]
        wrong = "not a whole number" if value % 1 else "beyond 64 bits"
        raise IdentityError(f"column {field.column} is {value}, {wrong}", where(odd[0]))
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


def refuse_null(series: pl.Series, field: Field, where: Where) -> None:
    """Raises IdentityError naming the first row without a value."""
    if series.null_count():
        raise IdentityError(
            f"column {field.column} is null",
            where(series.is_null().arg_true()[0]),
            f"every row needs a {field.label}",
        )


def _wrong_type(series: pl.Series, field: Field, wanted: str, where: Where) -> ColumnError:
    filled = series.is_not_null().arg_true()
    place = where(filled[0] if len(filled) else 0)
    sample = f", for example {str(series[filled[0]])[:40]!r}" if len(filled) else ""
    return ColumnError(
        f"column {field.column} has type {str(series.dtype)[:40]}{sample}; needs {wanted}",
        place,
        _outcome_hint(field),
    )


def _outcome_hint(field: Field) -> str:
    if field.name == "success":
        return 'give the outcome as --success-when, for example --success-when "reward >= 1"'
    if ":" in field.name:
        return "name another column"
    return f"map another column with --map {field.name}=COLUMN"


def resolve_column(column: str, available: Collection[str]) -> tuple[str, tuple[str, ...]] | None:
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


INDEX = re.compile(r"-?\d{1,9}")


def member_at(value: Any, path: Sequence[str]) -> Any:
    """The member of a decoded JSON value at a dotted path, msgspec.UNSET if there is none.

    The longest literal member name wins; in a list a whole number is an index, negative ones from
    the end. A string on the way is taken for JSON text.
    """
    if not path:
        return value
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return msgspec.UNSET
    if isinstance(value, list) and INDEX.fullmatch(path[0]):
        place = int(path[0])
        inside = -len(value) <= place < len(value)
        return member_at(value[place], path[1:]) if inside else msgspec.UNSET
    if not isinstance(value, dict):
        return msgspec.UNSET
    found = resolve_column(".".join(path), value)
    return msgspec.UNSET if found is None else member_at(value[found[0]], found[1])
