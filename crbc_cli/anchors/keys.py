"""Keys per row, computed inside the scan so that text never piles up.

A key is 64 bits of polars' string hash over canonical content. It is local to one run and never
written: dense ids are (`ids.py`), and `--anchor-id` writes a 128-bit digest. Two different
contents of one group collide with probability n²/2⁶⁵, about 1e-15 for a group of 168 anchors.

Rules with carried context need the order of steps, which a scan does not know: here they only
leave small columns behind (did this reply say "no-op", which slot was set to what), and `carry.py`
makes anchors of them once rollouts are in order.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl
import xxhash

from crbc_cli.anchors.canonical import digest, encode
from crbc_cli.anchors.ops import apply_ops, formatted, matches_any, option_ops
from crbc_cli.anchors.rulefile import Op, RuleFile, Slot
from crbc_cli.anchors.values import (
    VIEWS,
    content,
    in_any_order,
    last_fence,
    map_strings,
    tool_call,
    without_path,
)
from crbc_cli.logs.columns import ValueKind
from crbc_cli.options import AnchorOptions

__all__ = ["NULL_KEY", "Keys", "keyed", "text_of"]

_OTHER_SEED = 0x9E37
_TEXT = pl.col("text")
NULL_KEY = 0x6E756C6C
_INVALID_KEY = 0x696E76616C6964


@dataclass(frozen=True)
class Keys:
    """How rows become keys.

    Attributes:
      anchor: step-table columns whose content is the reply.
      views: for each of them, the message-list view to take, or "".
      following: the same columns of the observation after a row, or empty.
      rules: declared rules; those of the options come before the file's.
      ops: text operations on the reply.
      drops: JSON paths left out of the reply.
      action_tag: take the action from inside this tag.
      share_invalid: unparsable actions share one key.
      anchor_id: also give 128-bit digests.
      lengths: also give the reply's length in bytes.
      texts: also give the reply's text.
    """

    anchor: tuple[str, ...]
    views: tuple[str, ...]
    following: tuple[str, ...]
    rules: RuleFile
    ops: tuple[Op, ...]
    drops: tuple[tuple[str, ...], ...] = ()
    action_tag: str = ""
    share_invalid: bool = False
    anchor_id: bool = False
    lengths: bool = False
    texts: bool = False

    @classmethod
    def build(
        cls,
        options: AnchorOptions,
        rules: RuleFile,
        *,
        following: bool,
        anchor_id: bool = False,
        lengths: bool = False,
    ) -> "Keys":
        """Keys for the options and the rules they name.

        Raises:
          OptionError: a pattern that cannot be compiled.
        """
        count = range(len(options.anchor))
        return cls(
            tuple(f"anchor:{i}" for i in count),
            tuple(name if name in VIEWS else rules.messages for name in options.anchor),
            tuple(f"next:{i}" for i in count) if following else (),
            rules,
            (*option_ops(options), *rules.reply),
            tuple(tuple(path.split(".")) for path in options.drop),
            options.action_tag or rules.action.tag,
            options.invalid_actions == "share",
            anchor_id,
            lengths,
            options.merge_similar > 0,
        )


def keyed(frame: pl.LazyFrame, kinds: Mapping[str, ValueKind], keys: Keys) -> pl.LazyFrame:
    """Replaces value columns by keys.

    Gives `reply_key` (UInt64, null where there is no reply or it says that nothing changed) and
    `action_key` (UInt64; a null action has a key like any other), and as the rules ask `no_op`,
    `thought`, `column NAME` and the slot columns of `carry.py`; the same with the prefix `next `
    for the observation after a row; `reply_digest`, `anchor_bytes` and `reply_text` on request.
    """
    action = _action(keys, kinds.get("action", "text"))
    added: dict[str, pl.Expr] = {}
    signs: dict[str, pl.Expr] = {}
    if keys.rules.thought:
        raw = _Part("action", kinds.get("action", "text"))
        thought = {"thought": matches_any(_TEXT, keys.rules.thought)}
        added |= _read_off(signs, "signs of thought", raw.text(), thought, 0)
    wanted = _slot_columns(keys.rules, "action", keys.anchor_id)
    if action.rewritten:
        wanted["action_key"] = action.hashed(_TEXT)
    added |= _read_off(signs, "signs of action", action.text(), wanted, 0)
    added["action_key"] = _action_key(added.get("action_key", action.key()), action.text(), keys)
    added |= _reply_columns(keys.anchor, kinds, keys, "", signs)
    if keys.following and all(name in kinds for name in keys.following):
        added |= _reply_columns(keys.following, kinds, keys, "next ", signs)
    for name, _ in keys.rules.columns:
        if f"column:{name}" in kinds:
            view = in_any_order if name in keys.rules.unordered else None
            part = _Part(f"column:{name}", kinds[f"column:{name}"], view=view)
            added[f"column {name}"] = _hash(_digest([part]), True) if keys.anchor_id else part.key()
    others = [name for name in frame.collect_schema() if name not in kinds]
    return frame.with_columns(**signs).select(*others, **added)


def text_of(name: str, kind: ValueKind) -> pl.Expr:
    """A value column as text that patterns can look at; what is not text is JSON."""
    return _Part(name, kind).text()


def _reply_columns(
    names: tuple[str, ...],
    kinds: Mapping[str, ValueKind],
    keys: Keys,
    prefix: str,
    signs: dict[str, pl.Expr],
) -> dict[str, pl.Expr]:
    parts = [
        _Part(name, kinds.get(name, "text"), keys.ops, keys.drops, VIEWS.get(view))
        for name, view in zip(names, keys.views, strict=True)
    ]
    rules = keys.rules
    seen = _slot_columns(rules, "reply", keys.anchor_id)
    if rules.no_op:
        seen["no_op"] = matches_any(_TEXT, rules.no_op)
    if rules.missing:
        seen["missing"] = matches_any(_TEXT, rules.missing)
    columns = _read_off(signs, f"signs of {prefix}reply", parts[0].text(), seen, rules.head)
    silent = [columns[name] for name in ("no_op", "missing") if name in columns]
    columns.pop("missing", None)

    def said(value: pl.Expr) -> pl.Expr:
        return pl.when(~pl.any_horizontal(silent)).then(value) if silent else value

    added = {f"{prefix}{name}": column for name, column in columns.items()}
    found = [part.key_and_size(signs) for part in parts]
    added[f"{prefix}reply_key"] = said(_combined([key for key, _ in found]))
    if keys.texts and not prefix:
        contents = [part.content_text() for part in parts]
        added["reply_text"] = said(pl.concat_str(contents, separator="\n", ignore_nulls=True))
    if keys.lengths and not prefix:
        added["anchor_bytes"] = pl.sum_horizontal(size for _, size in found)
    if keys.anchor_id:
        added[f"{prefix}reply_digest"] = said(_digest(parts))
    return added


def _read_off(
    signs: dict[str, pl.Expr], name: str, text: pl.Expr, wanted: Mapping[str, pl.Expr], head: int
) -> dict[str, pl.Expr]:
    """Adds to `signs` a struct column of what is `wanted` of a text; gives its fields.

    The expressions, over a column `text`, are worked out once per distinct text, or once per
    distinct first `head` characters of it if that is positive.
    """
    if not wanted:
        return {}
    schema = pl.DataFrame(schema={"text": pl.String}).select(**wanted).schema

    def read_off(values: pl.Series) -> pl.Series:
        texts = values.str.head(head) if head else values
        table = texts.unique().to_frame("text").with_columns(**wanted)
        rows = texts.to_frame("text").join(
            table, on="text", how="left", nulls_equal=True, maintain_order="left"
        )
        return rows.select(schema.names()).to_struct(values.name)

    signs[name] = text.map_batches(read_off, return_dtype=pl.Struct(schema))
    return {field: pl.col(name).struct.field(field) for field in schema}


def _slot_columns(rules: RuleFile, on: str, stable: bool) -> dict[str, pl.Expr]:
    """Columns `s{slot}u{update}` (value, 0 for clear or match), `…k` (key), `…o` (origin) and `…r`
    (the reply fits).

    Null value: the update does not apply. `…r` is read off the reply, the others off `on`.
    """
    return {
        name: column
        for number, slot in enumerate(rules.slot)
        for name, column in _updates(number, slot, on, stable).items()
    }


def _updates(number: int, slot: Slot, on: str, stable: bool) -> dict[str, pl.Expr]:
    added: dict[str, pl.Expr] = {}
    for u, update in enumerate(slot.update):
        name, text = f"s{number}u{u}", _TEXT
        if update.reply and on == "reply":
            added[f"{name}r"] = text.str.contains(update.reply).fill_null(False)
        if update.on != on:
            continue
        matched = text.str.contains(update.pattern)
        if update.unless:
            matched = matched & ~text.str.contains(update.unless)
        if slot.kind == "count" or update.clear:
            added[name] = pl.when(matched).then(pl.lit(0, pl.UInt64))
        else:
            groups = text.str.extract_groups(update.pattern)
            value = _hash(formatted(groups, update.value, update.groups), stable)
            added[name] = pl.when(matched).then(value.fill_null(NULL_KEY))
        for suffix, template in (("k", update.key), ("o", update.origin)):
            if slot.kind == "map" and template:
                groups = text.str.extract_groups(update.pattern)
                word = _hash(formatted(groups, template, update.groups), stable)
                added[f"{name}{suffix}"] = pl.when(matched).then(word)
    return added


def _hash(text: pl.Expr, stable: bool) -> pl.Expr:
    """64-bit hash; `stable` ones are the same on every machine and version."""
    if not stable:
        return text.hash()

    def stable_hash(values: pl.Series) -> pl.Series:
        return _by_distinct(values, lambda v: xxhash.xxh3_64_intdigest(v.encode()), pl.UInt64)

    return text.map_batches(stable_hash, return_dtype=pl.UInt64)


def _action(keys: Keys, kind: ValueKind) -> "_Part":
    rules = keys.rules.action
    view = tool_call if rules.tool_call else None
    return _Part("action", kind, rules.op, (), view, keys.action_tag, rules.fence)


def _action_key(key: pl.Expr, text: pl.Expr, keys: Keys) -> pl.Expr:
    key = key.fill_null(NULL_KEY)
    if not keys.share_invalid:
        return key
    unparsable = matches_any(text, keys.rules.action.invalid)
    if keys.action_tag:
        tagged = pl.col("action").str.contains(rf"(?s)<{keys.action_tag}>.*?</{keys.action_tag}>")
        unparsable = unparsable | ~tagged.fill_null(False)
    return pl.when(unparsable).then(pl.lit(_INVALID_KEY, pl.UInt64)).otherwise(key)


@dataclass(frozen=True)
class _Part:
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
        after = before.to_frame().select(apply_ops(self._tagged(_TEXT), self.ops)).to_series()
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

        return _by_distinct(values, lambda value: _as_text(self._viewed(value)), pl.String)

    def _hash_values(self, values: pl.Series) -> pl.Series:
        """Strings hash as in a text column, anything else by its canonical encoding."""
        if self._as_logged(values):
            whole = apply_ops(self._tagged(_TEXT), self.ops)
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


def _combined(keys: list[pl.Expr]) -> pl.Expr:
    if len(keys) == 1:
        return keys[0]
    whole = pl.struct(k.fill_null(NULL_KEY).alias(f"k{i}") for i, k in enumerate(keys)).hash()
    return pl.when(pl.any_horizontal(k.is_not_null() for k in keys)).then(whole)


def _digest(parts: list[_Part]) -> pl.Expr:
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
