"""Keys per row, computed inside the scan so that text never piles up.

A key is 64 bits of polars' string hash over canonical content. It is local to one run and never
written: dense ids are (`ids.py`), and `--anchor-id` writes a 128-bit digest. Two different
contents of one group collide with probability n²/2⁶⁵, about 1e-15 for a group of 168 anchors.

Rules with carried context need the order of steps, which a scan does not know: here they only
leave small columns behind (did this reply say "no-op", which slot was set to what), and `carry.py`
makes anchors of them once rollouts are in order.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import xxhash

from crbc_cli.anchors.ops import formatted, matches_any, option_ops
from crbc_cli.anchors.part import (
    NULL_KEY,
    TEXT,
    Part,
    by_distinct,
    combined_digest,
    combined_key,
)
from crbc_cli.anchors.rulefile import Op, RuleFile, Slot
from crbc_cli.anchors.values import VIEWS, in_any_order, tool_call
from crbc_cli.logs.columns import ValueKind
from crbc_cli.options import AnchorOptions

__all__ = ["Keys", "keyed", "text_of"]

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
        raw = Part("action", kinds.get("action", "text"))
        thought = {"thought": matches_any(TEXT, keys.rules.thought)}
        added |= _read_off(signs, "signs of thought", raw.text(), thought, 0)
    wanted = _slot_columns(keys.rules, "action", keys.anchor_id)
    if action.rewritten:
        wanted["action_key"] = action.hashed(TEXT)
    added |= _read_off(signs, "signs of action", action.text(), wanted, 0)
    added["action_key"] = _action_key(added.get("action_key", action.key()), action.text(), keys)
    added |= _reply_columns(keys.anchor, kinds, keys, "", signs)
    if keys.following and all(name in kinds for name in keys.following):
        added |= _reply_columns(keys.following, kinds, keys, "next ", signs)
    for name, _ in keys.rules.columns:
        if f"column:{name}" in kinds:
            view = in_any_order if name in keys.rules.unordered else None
            part = Part(f"column:{name}", kinds[f"column:{name}"], view=view)
            added[f"column {name}"] = (
                _hash(combined_digest([part]), True) if keys.anchor_id else part.key()
            )
    others = [name for name in frame.collect_schema() if name not in kinds]
    return frame.with_columns(**signs).select(*others, **added)


def text_of(name: str, kind: ValueKind) -> pl.Expr:
    """A value column as text that patterns can look at; what is not text is JSON."""
    return Part(name, kind).text()


def _reply_columns(
    names: tuple[str, ...],
    kinds: Mapping[str, ValueKind],
    keys: Keys,
    prefix: str,
    signs: dict[str, pl.Expr],
) -> dict[str, pl.Expr]:
    parts = [
        Part(name, kinds.get(name, "text"), keys.ops, keys.drops, VIEWS.get(view))
        for name, view in zip(names, keys.views, strict=True)
    ]
    rules = keys.rules
    seen = _slot_columns(rules, "reply", keys.anchor_id)
    if rules.no_op:
        seen["no_op"] = matches_any(TEXT, rules.no_op)
    if rules.missing:
        seen["missing"] = matches_any(TEXT, rules.missing)
    columns = _read_off(signs, f"signs of {prefix}reply", parts[0].text(), seen, rules.head)
    silent = [columns[name] for name in ("no_op", "missing") if name in columns]
    columns.pop("missing", None)

    def said(value: pl.Expr) -> pl.Expr:
        return pl.when(~pl.any_horizontal(silent)).then(value) if silent else value

    added = {f"{prefix}{name}": column for name, column in columns.items()}
    found = [part.key_and_size(signs) for part in parts]
    added[f"{prefix}reply_key"] = said(combined_key([key for key, _ in found]))
    if keys.texts and not prefix:
        texts = [part.content_text() for part in parts]
        whole = pl.concat_str(texts, separator="\n", ignore_nulls=True)
        readable = [k.is_null() | t.is_not_null() for (k, _), t in zip(found, texts, strict=True)]
        added["reply_text"] = said(pl.when(pl.all_horizontal(readable)).then(whole))
    if keys.lengths and not prefix:
        added["anchor_bytes"] = pl.sum_horizontal(size for _, size in found)
    if keys.anchor_id:
        added[f"{prefix}reply_digest"] = said(combined_digest(parts))
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
        name, text = f"s{number}u{u}", TEXT
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
        return by_distinct(values, lambda v: xxhash.xxh3_64_intdigest(v.encode()), pl.UInt64)

    return text.map_batches(stable_hash, return_dtype=pl.UInt64)


def _action(keys: Keys, kind: ValueKind) -> Part:
    rules = keys.rules.action
    view = tool_call if rules.tool_call else None
    return Part("action", kind, rules.op, (), view, keys.action_tag, rules.fence)


def _action_key(key: pl.Expr, text: pl.Expr, keys: Keys) -> pl.Expr:
    key = key.fill_null(NULL_KEY)
    if not keys.share_invalid:
        return key
    unparsable = matches_any(text, keys.rules.action.invalid)
    if keys.action_tag:
        tagged = pl.col("action").str.contains(rf"(?s)<{keys.action_tag}>.*?</{keys.action_tag}>")
        unparsable = unparsable | ~tagged.fill_null(False)
    return pl.when(unparsable).then(pl.lit(_INVALID_KEY, pl.UInt64)).otherwise(key)
