"""Who is who: groups, rollouts, the order of steps, and rows that say the same thing twice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.options import LogOptions
from crbc_cli.rollouts.tally import Tally

__all__ = ["Place", "Rollouts", "arrange", "group_columns"]

Place = Callable[[int], str]
"""Row of the step table -> `file:line` or `file row n`."""

_LOCATION = ("source", "source_row", "reply_digest", "reply_text", "anchor_bytes")


@dataclass(frozen=True)
class Rollouts:
    """Rows in canonical order: groups by first appearance, rollouts by id, steps by value.

    Attributes:
      row: int64 (n,), row of the step table; duplicates are left out.
      rollout: int64 (n,), dense, non-decreasing.
      step: int64 (n,).
      offsets: int64 (r + 1,), rollout i has rows offsets[i]:offsets[i + 1].
      group: int64 (r,), group of each rollout, non-decreasing.
      groups: number of groups.
      copies: int64 (k, 2), (row of a copy, position in `row` of the row it repeats).
      discarded: int64 (d,), rows of the step table that --on-duplicate dropped.
      group_of_row: int64 (rows of the step table,), group of every row.
    """

    row: NDArray[np.int64]
    rollout: NDArray[np.int64]
    step: NDArray[np.int64]
    offsets: NDArray[np.int64]
    group: NDArray[np.int64]
    groups: int
    copies: NDArray[np.int64]
    discarded: NDArray[np.int64]
    group_of_row: NDArray[np.int64]

    @property
    def last(self) -> NDArray[np.int64]:
        """Step-table row of each rollout's last step, shape (r,)."""
        return self.row[self.offsets[1:] - 1]

    @property
    def first(self) -> NDArray[np.int64]:
        """Step-table row of each rollout's first step, shape (r,)."""
        return self.row[self.offsets[:-1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Rows of each rollout, shape (r,)."""
        return np.diff(self.offsets)

    def row_group(self) -> NDArray[np.int64]:
        """Group of each row in canonical order, shape (n,)."""
        return self.group[self.rollout]


def arrange(frame: pl.DataFrame, options: LogOptions, place: Place, tally: Tally) -> Rollouts:
    """Finds groups and rollouts and puts rows in canonical order.

    Rows with equal (group, rollout, step) and different content clash; where that is an error it
    is counted, so that a log is told about all of them, and the first such row stands here.

    Args:
      frame: step table with `source`, `group_id`, `rollout_id`, `step` and `key:*` columns.
      options: what makes a group, a rollout and an order.
      place: names a row in messages.
      tally: counts copies, discarded rows, clashes, and groups by size.
    """
    group_of_row = _codes(frame, group_columns(frame.columns, options), sort=False)
    rollout_columns = [*([] if options.spanning_rollouts else ["source"]), "rollout_id"]
    with_group = frame.select(pl.Series("group", group_of_row), *rollout_columns)
    rollout_of_row = _codes(with_group, ["group", *rollout_columns], sort=True)

    if options.order_by == "file":
        order = np.argsort(rollout_of_row, kind="stable")
        rollout = rollout_of_row[order]
        step = np.arange(len(order)) - np.searchsorted(rollout, rollout, side="left")
    else:
        logged = frame.get_column("step").to_numpy()
        order = _sorted_order(rollout_of_row, logged)
        rollout, step = rollout_of_row[order], logged[order]

    keep, copies, discarded = _find_duplicates(
        frame, order, rollout, step, options.on_duplicate, place, tally
    )
    order, rollout, step = order[keep], rollout[keep], step[keep]
    offsets = (
        np.flatnonzero(np.diff(rollout, prepend=-1, append=-2))
        if len(rollout)
        else (np.zeros(1, np.int64))
    )
    group = group_of_row[order[offsets[:-1]]] if len(order) else np.empty(0, np.int64)
    tally.sizes.update(np.bincount(group).tolist())
    return Rollouts(
        order,
        rollout,
        step,
        offsets,
        group,
        int(group.max()) + 1 if len(group) else 0,
        copies,
        discarded,
        group_of_row,
    )


def group_columns(columns: Sequence[str], options: LogOptions) -> list[str]:
    """Columns of a step table that tell groups apart."""
    per_file = ["source"] if options.per_file else []
    return [*per_file, "group_id", *(name for name in columns if name.startswith("key:"))]


def _sorted_order(rollout: NDArray[np.int64], step: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stable order by (rollout, step); skips the sort where the file is sorted already."""
    ahead = np.diff(rollout)
    if np.all((ahead > 0) | ((ahead == 0) & (np.diff(step) >= 0))):
        return np.arange(len(rollout))
    return np.lexsort((step, rollout))


def _codes(frame: pl.DataFrame, columns: Sequence[str], *, sort: bool) -> NDArray[np.int64]:
    """Dense code of each row's values, by first appearance or in sorted order. Shape (n,).

    Logs come in runs of one rollout, so only the first row of each run is looked up.
    """
    if not frame.height:
        return np.empty(0, np.int64)
    changed = (
        frame.select(pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in columns))
        .to_series()
        .to_numpy()
        .copy()
    )
    changed[0] = True
    starts = frame.select(columns).filter(pl.Series(changed))
    distinct = starts.unique(maintain_order=True)
    if sort:
        distinct = distinct.sort(columns)
    coded = starts.join(
        distinct.with_row_index("code"),
        on=list(columns),
        how="left",
        maintain_order="left",
        nulls_equal=True,
    )
    codes = coded.get_column("code").to_numpy().astype(np.int64)
    lengths = np.diff(np.append(np.flatnonzero(changed), frame.height))
    return np.repeat(codes, lengths)


def _find_duplicates(
    frame: pl.DataFrame,
    order: NDArray[np.int64],
    rollout: NDArray[np.int64],
    step: NDArray[np.int64],
    rule: str,
    place: Place,
    tally: Tally,
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """(positions to keep, copies, discarded); see `Rollouts`."""
    same = np.zeros(len(order), bool)
    same[1:] = (rollout[1:] == rollout[:-1]) & (step[1:] == step[:-1])
    if not same.any():
        return ~same, np.empty((0, 2), np.int64), np.empty(0, np.int64)
    in_run = same.copy()
    in_run[:-1] |= same[1:]
    positions = np.flatnonzero(in_run)
    run = np.cumsum(~same[positions]) - 1
    heads = np.flatnonzero(~same[positions])
    tails = np.append(heads[1:], len(positions)) - 1
    winner = positions[(tails if rule == "last" else heads)[run]]

    content = frame.drop([c for c in _LOCATION if c in frame.columns])
    mine = content[order[positions]]
    theirs = content[order[winner]].rename(lambda name: f"other {name}")
    equal = (
        pl.concat([mine, theirs], how="horizontal")
        .select(
            pl.all_horizontal(pl.col(c).eq_missing(pl.col(f"other {c}")) for c in content.columns)
        )
        .to_series()
        .to_numpy()
    )

    if rule == "error" and not equal.all():
        clashes = np.unique(run[~equal])
        row = int(order[positions[heads[clashes[0]]]])
        tally.clash(
            len(clashes),
            [
                " and ".join(place(int(order[p])) for p in positions[run == clash][:3])
                for clash in clashes[:4]
            ],
            f"group {frame['group_id'][row]!r} rollout {frame['rollout_id'][row]!r} "
            f"step {step[positions[heads[clashes[0]]]]}",
        )
    # Of rows equal to the winner the earliest stays and the others are its copies.
    earliest = np.empty(len(heads), np.int64)
    earliest[run[equal][::-1]] = positions[equal][::-1]
    winner = earliest[run]
    lost = positions != winner
    keep = np.ones(len(order), bool)
    keep[positions[lost]] = False
    new_position = np.cumsum(keep) - 1
    copied = lost & equal
    copies = np.stack([order[positions[copied]], new_position[winner[copied]]], axis=1)
    discarded = order[positions[lost & ~equal]]
    tally.copies += len(copies)
    tally.discarded += len(discarded)
    return keep, copies, discarded
