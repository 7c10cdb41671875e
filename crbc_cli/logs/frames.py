"""A frame that is already tabular (Parquet scan, Arrow table) -> a batch of asked-for fields."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import polars as pl

from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import Field, ValueKind, resolve_column

__all__ = ["select_fields"]

_ROLE_DTYPES: dict[str, pl.DataType] = {
    "id": pl.String(),
    "integer": pl.Int64(),
    "flag": pl.Boolean(),
    "number": pl.Float64(),
    "scalar": pl.String(),
}


def select_fields(
    frame: pl.LazyFrame, fields: Sequence[Field], where: Callable[[int], str]
) -> Batch:
    """One lazy batch; fields the frame does not have are left out.

    Dotted paths reach into structs, and into strings that hold JSON.
    """
    schema = frame.collect_schema()
    columns: dict[str, pl.Expr] = {}
    kinds: dict[str, ValueKind] = {}
    for field in fields:
        found = resolve_column(field.column, list(schema))
        if found is None:
            continue
        head, path = found
        expression = pl.col(head)
        dtype: Any = schema[head]
        while path and isinstance(dtype, pl.Struct):
            inner = {f.name: f.dtype for f in dtype.fields}.get(path[0])
            if inner is None:
                break
            expression, dtype, path = expression.struct.field(path[0]), inner, path[1:]
        kind: ValueKind = "native"
        if path and dtype == pl.String:
            expression, kind = _json_member(expression, path), "json"
            if field.role != "value":
                expression = expression.str.json_decode(_ROLE_DTYPES[field.role])
        elif path:
            continue
        elif dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null):
            kind = "text"
            if field.role == "value":
                expression = expression.cast(pl.String)
        columns[field.name] = expression
        if field.role == "value":
            kinds[field.name] = kind
    return Batch(frame.select(**columns), kinds, None, 0, where)


def _json_member(column: pl.Expr, path: tuple[str, ...]) -> pl.Expr:
    """JSON text of the member at `path`; null where the text is not JSON or has no such member."""

    def member(text: str) -> str | None:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return None
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return None if value is None else msgspec.json.encode(value).decode()

    return column.map_elements(member, return_dtype=pl.String)
