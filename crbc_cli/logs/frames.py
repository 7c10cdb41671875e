"""A frame that is already tabular (Parquet scan, Arrow table) -> a batch of asked-for fields."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import polars as pl
import polars.selectors as cs

from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import INDEX, Field, ValueKind, from_values, member_at, resolve_column

__all__ = ["decodes", "select_fields"]

_PATTERN = re.compile(r"\*|\^.*\$", re.DOTALL)
"""Names of struct members that polars takes for several names."""


def select_fields(
    frame: pl.LazyFrame,
    fields: Sequence[Field],
    where: Callable[[int], str],
    json_columns: Collection[str] = (),
) -> Batch:
    """One lazy batch; fields the frame does not have are left out.

    Dotted paths reach into structs, and into strings that hold JSON. Strings of `json_columns`
    are JSON documents.
    """
    schema = frame.collect_schema()
    columns: dict[str, pl.Expr] = {}
    kinds: dict[str, ValueKind] = {}
    decoded: list[pl.Series] = []
    for field in fields:
        found = resolve_column(field.column, schema)
        if found is None:
            continue
        head, path = found
        expression, dtype, path = _inside_structs(cs.by_name(head), schema[head], path)
        if path and dtype != pl.String:
            continue
        kind: ValueKind = "native"
        if path and field.role == "value":
            expression, kind = _json_member(expression, path), "json"
        elif path:
            texts = frame.select(expression.alias(field.name)).collect().to_series()
            values = [member_at(text, path) for text in texts]
            if all(v is msgspec.UNSET for v in values):
                continue
            values = [None if v is msgspec.UNSET else v for v in values]
            decoded.append(from_values(field, values, where)[0])
            continue
        elif dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null):
            kind = "json" if head in json_columns else "text"
            if field.role == "value":
                expression = expression.cast(pl.String)
        columns[field.name] = expression
        if field.role == "value":
            kinds[field.name] = kind
    selected = frame.select(**columns)
    if decoded:
        selected = pl.concat([selected, pl.LazyFrame(decoded)], how="horizontal")
    return Batch(selected, kinds, None, 0, where)


def decodes(schema: Mapping[str, Any], fields: Sequence[Field]) -> bool:
    """Whether a field other than a value is decoded from JSON text: its type depends on all of
    the values that are decoded together."""
    for field in fields:
        found = resolve_column(field.column, schema)
        if found is not None and field.role != "value":
            _, dtype, path = _inside_structs(cs.by_name(found[0]), schema[found[0]], found[1])
            if path and dtype == pl.String:
                return True
    return False


def _inside_structs(
    column: pl.Expr, dtype: Any, path: tuple[str, ...]
) -> tuple[pl.Expr, Any, tuple[str, ...]]:
    """Follows a path through structs and lists: (expression, its dtype, the path that is left)."""
    while path and isinstance(dtype, pl.Struct | pl.List):
        if isinstance(dtype, pl.List):
            if not INDEX.fullmatch(path[0]):
                break
            column, dtype = column.list.get(int(path[0]), null_on_oob=True), dtype.inner
            path = path[1:]
            continue
        members = {f.name: f.dtype for f in dtype.fields}
        found = resolve_column(".".join(path), members)
        if found is None or _PATTERN.fullmatch(found[0]):
            break
        name, path = found
        column, dtype = column.struct.field(name), members[name]
    return column, dtype, path


def _json_member(column: pl.Expr, path: tuple[str, ...]) -> pl.Expr:
    """JSON text of the member at `path`; null where the text is not JSON or has no such member."""

    def member(text: str) -> str | None:
        value = member_at(text, path)
        return None if value in (None, msgspec.UNSET) else msgspec.json.encode(value).decode()

    return column.map_elements(member, return_dtype=pl.String)
