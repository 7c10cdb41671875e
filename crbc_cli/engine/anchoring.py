"""Anchors of ordered rows: runs the carried rules over the columns that the scan left behind."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from crbc_cli.anchors.carry import Carried, carry
from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.rollouts.identity import Rollouts

__all__ = ["Anchoring", "anchor_rows", "carried_rows", "without_key_columns"]

Columns = dict[str, tuple[NDArray[np.uint64], NDArray[np.bool_]]]


@dataclass(frozen=True)
class Anchoring:
    """Anchors in canonical order.

    Attributes:
      key: uint64 (n,), 0 where the row has no anchor.
      has_anchor: bool (n,).
      thought: bool (n,), the row is not an environment step.
      next_key: uint64 (r,), anchor after each rollout's last row, 0 where unknown.
      has_next: bool (r,).
      anchor_id: String (n,), content digest, or None if it was not loaded.
    """

    key: NDArray[np.uint64]
    has_anchor: NDArray[np.bool_]
    thought: NDArray[np.bool_]
    next_key: NDArray[np.uint64]
    has_next: NDArray[np.bool_]
    anchor_id: pl.Series | None


def anchor_rows(frame: pl.DataFrame, rollouts: Rollouts, rules: RuleFile) -> Anchoring:
    """Applies `rules` along each rollout.

    Where the log tells the observation after a rollout's last row, that observation is anchored
    as one more row of the rollout.
    """
    ordered = _ordered(frame, rollouts)
    n, r = len(rollouts.row), len(rollouts.group)
    thought = ordered["thought"][0].astype(bool) if "thought" in ordered else np.zeros(n, bool)
    next_key, has_next = np.zeros(r, np.uint64), np.zeros(r, bool)
    if "next reply_key" not in frame.columns:
        carried = carry(rules, rollouts.rollout, ordered)
        rows = np.arange(n)
    else:
        # One virtual row behind each rollout, after the rollout's own rows.
        rows = np.arange(n) + rollouts.rollout
        beyond = rollouts.offsets[1:] + np.arange(r)
        wider = {
            name: _with_virtual_rows(name, ordered, rows, beyond, rollouts)
            for name in ordered
            if not name.startswith("next ")
        }
        whole = np.empty(n + r, np.int64)
        whole[rows], whole[beyond] = rollouts.rollout, np.arange(r)
        carried = carry(rules, whole, wider)
        next_key, has_next = carried.key[beyond], carried.known[beyond]
    known = carried.known[rows]
    ids = None
    if "reply_digest" in frame.columns:
        ids = _anchor_ids(frame, rollouts, carried, rows, "reply" in rules.key)
    return Anchoring(carried.key[rows], known, thought, next_key, has_next, ids)


def carried_rows(frame: pl.DataFrame, rollouts: Rollouts, rules: RuleFile) -> Carried:
    """What rules make of each row in canonical order, rollouts taken as they were logged.

    Args:
      frame: rows with the columns that anchors are made from.
      rollouts: who is who in it.
      rules: what makes up an anchor.
    """
    return carry(rules, rollouts.rollout, _ordered(frame, rollouts))


def without_key_columns(
    frame: pl.DataFrame, rollouts: Rollouts, anchors: Anchoring
) -> pl.DataFrame:
    """The frame with `anchor_key` (and `anchor_id`) in place of what they were made from."""
    order = np.full(frame.height, -1, np.int64)
    order[rollouts.row] = np.arange(len(rollouts.row))
    order[rollouts.copies[:, 0]] = rollouts.copies[:, 1]
    taken = pl.Series(order >= 0)
    at = np.maximum(order, 0)
    used = ("reply_digest", "reply_text", *(c for c in frame.columns if _is_key_column(c)))
    bare = frame.drop(used, strict=False)
    if not len(rollouts.row):
        return bare.with_columns(pl.lit(None, pl.UInt64).alias("anchor_key"))
    keys = pl.Series("anchor_key", anchors.key[at])
    added = [keys.set(~(taken & pl.Series(anchors.has_anchor[at])), None)]
    if anchors.anchor_id is not None:
        added.append(anchors.anchor_id[at].set(~taken, None).alias("anchor_id"))
    return bare.with_columns(added)


def _ordered(frame: pl.DataFrame, rollouts: Rollouts) -> Columns:
    """Columns that anchors are made from, in canonical order."""
    names = [c for c in frame.columns if _is_key_column(c) and not _never_given(frame, c)]
    columns: Columns = {name: _words(frame[name]) for name in names}
    return {name: (v[rollouts.row], g[rollouts.row]) for name, (v, g) in columns.items()}


def _is_key_column(name: str) -> bool:
    bare = name.removeprefix("next ")
    return (
        bare in ("reply_key", "no_op", "thought")
        or bare.startswith("column ")
        or (bare[:1] == "s" and bare[1:2].isdigit())
    )


def _never_given(frame: pl.DataFrame, name: str) -> bool:
    """Whether an update applies nowhere, so that leaving its column out changes nothing."""
    bare = name.removeprefix("next ")
    twins = [c for c in (bare, f"next {bare}") if c in frame.columns]
    return bare != "reply_key" and all(frame[c].null_count() == frame.height for c in twins)


def _words(series: pl.Series) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    given = series.is_not_null().to_numpy()
    return series.cast(pl.UInt64).fill_null(0).to_numpy(), given


def _with_virtual_rows(
    name: str,
    ordered: Columns,
    rows: NDArray[np.int64],
    beyond: NDArray[np.int64],
    rollouts: Rollouts,
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    values, given = ordered[name]
    size = len(rows) + len(beyond)
    wide, wide_given = np.zeros(size, np.uint64), np.zeros(size, bool)
    wide[rows], wide_given[rows] = values, given
    if f"next {name}" in ordered:
        last = rollouts.offsets[1:] - 1
        after, after_given = ordered[f"next {name}"]
        wide[beyond], wide_given[beyond] = after[last], after_given[last]
    return wide, wide_given


def _anchor_ids(
    frame: pl.DataFrame,
    rollouts: Rollouts,
    carried: Carried,
    rows: NDArray[np.int64],
    with_reply: bool,
) -> pl.Series:
    """Digest of the reply alone, or of what else makes up the anchor, with the reply or without."""
    at = np.full(len(carried.key), -1, np.int64)
    at[rows] = np.arange(len(rows))
    source = carried.reply[rows]
    place = np.where(source >= 0, at[source], -1)
    digests = frame["reply_digest"][rollouts.row]
    reply = digests[np.maximum(place, 0)].set(pl.Series(place < 0), None)
    if not carried.parts:
        return reply
    table = pl.DataFrame([pl.Series(str(i), part[rows]) for i, part in enumerate(carried.parts)])
    if with_reply:
        table = table.insert_column(0, reply.alias("reply"))
    distinct = table.unique(maintain_order=True)
    contents = ["|".join(map(str, row)) for row in distinct.iter_rows()]
    ids = [xxhash.xxh3_128_hexdigest(content.encode()) for content in contents]
    named = distinct.with_columns(pl.Series("id", ids))
    found = table.join(
        named, on=table.columns, how="left", nulls_equal=True, maintain_order="left"
    )["id"]
    return found.set(~pl.Series(carried.known[rows]), None)
