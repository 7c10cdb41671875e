"""Anchor and action keys per row, computed inside the scan so that text never piles up.

A key is 64 bits of polars' string hash over canonical content. It is local to one run and never
written: dense ids are (`ids.py`), and `--anchor-id` writes a 128-bit digest. Two different
contents of one group collide with probability n²/2⁶⁵, about 1e-15 for a group of 168 anchors.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from crbc_cli.anchors.canonical import digest, encode
from crbc_cli.anchors.rules import TextRules
from crbc_cli.logs.columns import ValueKind
from crbc_cli.options import AnchorOptions

__all__ = ["Keys", "keyed"]

_OTHER_SEED = 0x9E37


@dataclass(frozen=True)
class Keys:
    """Which columns become keys.

    Attributes:
      anchor: step-table columns that make up the anchor.
      action: step-table column of the action.
      following: columns that make up the anchor after a rollout's last row, or empty.
      rules: canonicalisation of the anchor.
      action_tag: take the action from inside this tag.
      anchor_id: also give the 128-bit digest.
      lengths: also give the anchor's length in bytes (text columns only).
    """

    anchor: tuple[str, ...]
    action: str
    following: tuple[str, ...]
    rules: TextRules
    action_tag: str = ""
    anchor_id: bool = False
    lengths: bool = False

    @classmethod
    def from_options(
        cls,
        options: AnchorOptions,
        *,
        bootstrap: bool,
        anchor_id: bool = False,
        lengths: bool = False,
    ) -> "Keys":
        anchor = tuple(f"anchor:{i}" for i in range(len(options.anchor)))
        following = tuple(f"next:{i}" for i in range(len(options.anchor))) if bootstrap else ()
        return cls(
            anchor,
            "action",
            following,
            TextRules.from_options(options),
            options.action_tag,
            anchor_id,
            lengths,
        )


def keyed(frame: pl.LazyFrame, kinds: Mapping[str, ValueKind], keys: Keys) -> pl.LazyFrame:
    """Replaces value columns by `anchor_key`, `action_key` and, if asked, `next_key`,
    `anchor_id`, `anchor_bytes`.

    Keys are UInt64. `anchor_key` and `next_key` are null where every part is null: such a row has
    no anchor. A null action has a key like any other.
    """

    def part(name: str) -> _Part:
        return _Part(name, kinds.get(name, "text"), keys.rules)

    anchor = [part(name) for name in keys.anchor]
    action = _Part(
        keys.action, kinds.get(keys.action, "text"), TextRules((), frozenset(), ()), keys.action_tag
    )
    added = {
        "anchor_key": _combined(anchor),
        "action_key": action.key().fill_null(_NULL_KEY),
    }
    if keys.following and all(name in kinds for name in keys.following):
        added["next_key"] = _combined([part(name) for name in keys.following])
    if keys.anchor_id:
        added["anchor_id"] = _digest(anchor)
    if keys.lengths:
        added["anchor_bytes"] = pl.sum_horizontal(p.bytes() for p in anchor)
    others = [name for name in frame.collect_schema() if name not in kinds]
    return frame.select(*others, **added)


_NULL_KEY = 0x6E756C6C


@dataclass(frozen=True)
class _Part:
    """One value column on its way to a key."""

    name: str
    kind: ValueKind
    rules: TextRules
    tag: str = ""

    def key(self) -> pl.Expr:
        """UInt64; null where the value is null."""
        column = pl.col(self.name)
        if self.kind == "text" and not self.rules.drops:
            hashed = self._text(column).hash()
        else:
            hashed = column.map_batches(self._hash_values, return_dtype=pl.UInt64)
        return pl.when(column.is_not_null()).then(hashed)

    def digest(self, values: pl.Series) -> pl.Series:
        """Canonical digest per row of this column."""
        return _by_distinct(values, lambda v: digest(self.canonical(v)), pl.String)

    def bytes(self) -> pl.Expr:
        column = pl.col(self.name)
        if self.kind == "native":
            return pl.lit(0, pl.UInt32)
        return column.str.len_bytes().fill_null(0)

    def canonical(self, value: Any) -> Any:
        """The value after its rules."""
        if self.kind == "json" or (self.rules.drops and isinstance(value, str)):
            with suppress(msgspec.DecodeError, RecursionError):
                value = msgspec.json.decode(value)
        return self.rules.on_value(value)

    def _text(self, column: pl.Expr) -> pl.Expr:
        if self.tag:
            inside = column.str.extract(rf"(?s)<{self.tag}>(.*?)</{self.tag}>", 1)
            return pl.coalesce(inside.str.strip_chars(), column)
        return self.rules.on_text(column)

    def _hash_values(self, values: pl.Series) -> pl.Series:
        """Strings hash as in a text column, anything else by its canonical encoding."""
        distinct = _distinct(values)
        contents = [self.canonical(v) for v in distinct.to_list()]
        texts = pl.Series([v if isinstance(v, str) else None for v in contents], dtype=pl.String)
        others = pl.Series(
            [None if isinstance(v, str) else encode(v) for v in contents], dtype=pl.Binary
        )
        if self.tag:
            texts = texts.to_frame("t").select(self._text(pl.col("t"))).to_series()
        hashed = texts.hash().set(texts.is_null(), None).fill_null(others.hash(_OTHER_SEED))
        return _spread(values, distinct, hashed)


def _combined(parts: list[_Part]) -> pl.Expr:
    if len(parts) == 1:
        return parts[0].key()
    keys = [p.key() for p in parts]
    whole = pl.struct(k.fill_null(_NULL_KEY).alias(f"k{i}") for i, k in enumerate(keys)).hash()
    return pl.when(pl.any_horizontal(k.is_not_null() for k in keys)).then(whole)


def _digest(parts: list[_Part]) -> pl.Expr:
    if len(parts) == 1:
        (one,) = parts
        return pl.col(one.name).map_batches(one.digest, return_dtype=pl.String)

    def composite(row: pl.Series) -> pl.Series:
        def of(values: dict[str, Any]) -> str | None:
            contents = [
                None if values[p.name] is None else p.canonical(values[p.name]) for p in parts
            ]
            return None if all(v is None for v in contents) else digest(contents)

        return _by_distinct(row, of, pl.String)

    return pl.struct(p.name for p in parts).map_batches(composite, return_dtype=pl.String)


def _by_distinct(
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
