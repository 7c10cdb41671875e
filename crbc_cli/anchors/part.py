"""One value column on its way to a key: text by expressions, anything else by decoding."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from crbc_cli.anchors.canonical import digest, encode
from crbc_cli.anchors.ops import apply_ops
from crbc_cli.anchors.rulefile import Op
from crbc_cli.anchors.values import content, last_fence, map_strings, tool_call, without_path
from crbc_cli.logs.columns import ValueKind

__all__ = ["NULL_KEY", "TEXT", "Part", "by_distinct", "combined_digest", "combined_key"]

_OTHER_SEED = 0x9E37
NULL_KEY = 0x6E756C6C
TEXT = pl.col("text")
"""Expressions that are worked out once per distinct text see it under this name."""


@dataclass(frozen=True)
class Part:
    """One value column on its way to a key.

    A text column goes through expressions only. Anything else is decoded once per distinct value.
    """

    name: str
    kind: ValueKind
    ops: tuple[Op, ...] = ()
    drops: tuple[tuple[str, ...], ...] = ()
    view: Callable[[Any], Any] | None = None
    tag: str = ""
    fence: bool = False

    @property
    def _plain(self) -> bool:
        return self.kind == "text" and not (self.drops or self.view or self.fence)

    @property
    def rewritten(self) -> bool:
        """Text whose operations are worth doing once per distinct text."""
        return self._plain and bool(self.ops)

    def hashed(self, text: pl.Expr) -> pl.Expr:
        """Key of plain text as `text` gives it: its hash after operations, UInt64."""
        return pl.when(text.is_not_null()).then(apply_ops(text, self.ops).hash())

    def key(self) -> pl.Expr:
        """UInt64; null where the value, or what its view finds, is null."""
        column = pl.col(self.name)
        if self._plain:
            return self.hashed(self._tagged(column))
        return self._decoded().struct.field("key")

    def text(self) -> pl.Expr:
        """The value as text for patterns: as logged, after view and tag, without operations."""
        column = pl.col(self.name)
        if self._plain:
            return self._tagged(column)
        return column.map_batches(self._texts, return_dtype=pl.String)

    def digest(self, values: pl.Series) -> pl.Series:
        """Canonical digest per row of this column."""
        distinct = _distinct(values)
        digests = [None if v is None else digest(v) for v in self.contents(distinct.to_list())]
        return _spread(values, distinct, pl.Series(digests, dtype=pl.String))

    def key_and_size(self, signs: dict[str, pl.Expr]) -> tuple[pl.Expr, pl.Expr]:
        """Key, and length of the content in bytes (UInt32, 0 where there is none).

        What is not plain text is decoded once for both, in a column added to `signs`.
        """
        if self._plain:
            text = apply_ops(self._tagged(pl.col(self.name)), self.ops)
            return self.key(), text.str.len_bytes().fill_null(0)
        name = f"content of {self.name}"
        signs[name] = self._decoded()
        return pl.col(name).struct.field("key"), pl.col(name).struct.field("bytes")

    def _decoded(self) -> pl.Expr:
        dtype = pl.Struct({"key": pl.UInt64, "bytes": pl.UInt32})
        return pl.col(self.name).map_batches(self._hash_values, return_dtype=dtype)

    def content_text(self) -> pl.Expr:
        """The content as text or JSON; null where there is none or it holds bytes or pixels."""
        if self._plain:
            return apply_ops(self._tagged(pl.col(self.name)), self.ops)

        def texts(values: pl.Series) -> pl.Series:
            distinct = _distinct(values)
            found = [_readable(value) for value in self.contents(distinct.to_list())]
            return _spread(values, distinct, pl.Series(found, dtype=pl.String))

        return pl.col(self.name).map_batches(texts, return_dtype=pl.String)

    def contents(self, values: list[Any]) -> list[Any]:
        """Each value after its rules; operations see all strings inside them at once."""
        found = [None if v is None else self._viewed(v) for v in values]
        for path in self.drops:
            found = [without_path(v, path) for v in found]
        if not (self.ops or self.tag):
            return found
        texts: dict[str, str] = {}
        for value in found:
            map_strings(value, lambda text: texts.setdefault(text, text))
        before = pl.Series("text", list(texts), dtype=pl.String)
        after = before.to_frame().select(apply_ops(self._tagged(TEXT), self.ops)).to_series()
        texts = dict(zip(before, after.fill_null(""), strict=True))
        return [map_strings(value, texts.__getitem__) for value in found]

    def _viewed(self, value: Any) -> Any:
        value = content(value, parse=self.kind == "json" or bool(self.drops))
        if self.view is not None:
            a_list = isinstance(value, str) and value.lstrip().startswith("[")
            whole = content(value, parse=a_list and self.view is not tool_call)
            found = self.view(whole)
            value = value if found is whole else found
        return last_fence(value) if self.fence and isinstance(value, str) else value

    def _tagged(self, column: pl.Expr) -> pl.Expr:
        if not self.tag:
            return column
        inside = column.str.extract(rf"(?s)<{self.tag}>(.*?)</{self.tag}>", 1)
        return pl.coalesce(inside.str.strip_chars(), column)

    def _as_logged(self, values: pl.Series) -> bool:
        """Whether texts have nothing in them that the view, which looks into lists, could see."""
        if self.kind != "text" or self.drops or self.fence or self.view is tool_call:
            return False
        return not values.str.contains(r"^\s*\[").any()

    def _texts(self, values: pl.Series) -> pl.Series:
        if self._as_logged(values):
            return values.to_frame(self.name).select(self._tagged(pl.col(self.name))).to_series()

        return by_distinct(values, lambda value: _as_text(self._viewed(value)), pl.String)

    def _hash_values(self, values: pl.Series) -> pl.Series:
        """Strings hash as in a text column, anything else by its canonical encoding."""
        if self._as_logged(values):
            whole = apply_ops(self._tagged(TEXT), self.ops)
            texts = values.to_frame("text").select(whole).to_series()
            return _keys_and_sizes(texts, pl.Series(None, [None] * len(texts), pl.Binary))
        distinct = _distinct(values)
        contents = self.contents(distinct.to_list())
        texts = pl.Series([v if isinstance(v, str) else None for v in contents], dtype=pl.String)
        others = pl.Series(
            [None if v is None or isinstance(v, str) else encode(v) for v in contents],
            dtype=pl.Binary,
        )
        return _spread(values, distinct, _keys_and_sizes(texts, others))


def _keys_and_sizes(texts: pl.Series, others: pl.Series) -> pl.Series:
    """Key and size of contents that are text, or encoded otherwise where text is null."""
    key = texts.hash().set(texts.is_null(), None)
    key = key.fill_null(others.hash(_OTHER_SEED).set(others.is_null(), None))
    size = texts.str.len_bytes().fill_null(others.bin.size()).fill_null(0).cast(pl.UInt32)
    return pl.DataFrame({"key": key, "bytes": size}).to_struct(texts.name)


def _readable(value: Any) -> str | None:
    """Text as it is, JSON-like values as JSON, null for anything that people do not read."""
    if value is None or isinstance(value, str):
        return value
    with suppress(TypeError, RecursionError):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    return None


def _as_text(value: Any) -> str | None:
    """Text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=str, order="sorted").decode()


def combined_key(keys: list[pl.Expr]) -> pl.Expr:
    """Key of several parts, UInt64; null where every part is."""
    if len(keys) == 1:
        return keys[0]
    whole = pl.struct(k.fill_null(NULL_KEY).alias(f"k{i}") for i, k in enumerate(keys)).hash()
    return pl.when(pl.any_horizontal(k.is_not_null() for k in keys)).then(whole)


def combined_digest(parts: list[Part]) -> pl.Expr:
    """Canonical digest of one part, or of several as a list; 32 hex digits."""
    if len(parts) == 1:
        (one,) = parts
        return pl.col(one.name).map_batches(one.digest, return_dtype=pl.String)

    def composite(rows: pl.Series) -> pl.Series:
        columns = [p.contents(rows.struct.field(p.name).to_list()) for p in parts]
        wholes = [
            None if all(v is None for v in c) else list(c) for c in zip(*columns, strict=True)
        ]
        digests = [None if whole is None else digest(whole) for whole in wholes]
        return pl.Series(rows.name, digests, dtype=pl.String)

    return pl.struct(p.name for p in parts).map_batches(composite, return_dtype=pl.String)


def by_distinct(
    values: pl.Series, function: Callable[[Any], Any], dtype: type[pl.DataType]
) -> pl.Series:
    """`function` of each value, called once per distinct scalar; null stays null."""
    distinct = _distinct(values)
    results = [None if v is None else function(v) for v in distinct.to_list()]
    return _spread(values, distinct, pl.Series(results, dtype=dtype))


def _distinct(values: pl.Series) -> pl.Series:
    """Distinct values where polars can compare them; nested ones are taken as they stand."""
    return values if values.dtype.is_nested() else values.unique(maintain_order=True)


def _spread(values: pl.Series, distinct: pl.Series, results: pl.Series) -> pl.Series:
    """`results` per distinct value, back to every row."""
    if distinct is values:
        return results.rename(values.name)
    table = pl.DataFrame({"value": distinct, "result": results})
    return (
        pl.DataFrame({"value": values})
        .join(table, on="value", how="left", nulls_equal=True, maintain_order="left")
        .get_column("result")
        .rename(values.name)
    )
