"""One row per rollout: lengths, steps, ending, rewards, and how often each oddity occurs in it."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.part import NULL_KEY
from crbc_cli.engine.checks.facts import ENDINGS, NO_PLACE
from crbc_cli.engine.growth import growth
from crbc_cli.engine.prepare import Prepared

__all__ = ["rollout_facts"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def rollout_facts(log: Prepared, row_code: Ints) -> pl.DataFrame:
    """Facts of each rollout of a log that has rows.

    Args:
      log: the log.
      row_code: int64, place code of each row of the step table.
    Returns:
      Frame with `group, rollout_id, source, batch, rows, first_step, first, last` (place codes),
      `ending` (a name of ENDINGS), `truncated, unterminated, success, scored, counts`, the reward
      columns, `visits, growth, first_bytes, last_bytes, first_key`, and for each oddity of
      `_oddities` how many rows show it (`n:NAME`) and the first of them (`at:NAME`).
    """
    r, outcomes, frame = log.rollouts, log.outcomes, log.frame
    code = row_code[r.row]
    truncated, undone = _end_flags(log)
    conditions = (~outcomes.scored, outcomes.success, truncated, undone)
    endings = np.select(
        list(conditions), ["unscored", "success", "truncated", "unterminated"], "failure"
    )
    columns: dict[str, object] = {
        "group": r.group,
        "rollout_id": frame["rollout_id"][r.first].cast(pl.String),
        "source": frame["source"][r.last].cast(pl.Int64),
        "batch": _batches(log),
        "rows": r.lengths,
        "first_step": r.step[r.offsets[:-1]],
        "first": code[r.offsets[:-1]],
        "last": code[r.offsets[1:] - 1],
        "ending": pl.Series(endings, dtype=pl.Enum(ENDINGS)),
        "truncated": truncated & ~outcomes.success,
        "unterminated": undone & ~truncated,
        "success": outcomes.success,
        "scored": outcomes.scored,
        "counts": outcomes.counts,
        "first_key": log.anchor_key[r.offsets[:-1]],
        **_rewards(log),
        **_anchor_lengths(log),
    }
    copy, original = r.copies[np.lexsort((r.copies[:, 0], r.copies[:, 1]))].T
    flagged = {name: (r.rollout[mask], code[mask]) for name, mask in _oddities(log).items()} | {
        "copy": (r.rollout[original], row_code[copy])
    }
    for name, (rollout, place) in flagged.items():
        columns[f"n:{name}"] = np.bincount(rollout, minlength=len(r.group))
        columns[f"at:{name}"] = _first_place(rollout, place, len(r.group))
    return pl.DataFrame(columns)


def _row_flag(log: Prepared, name: str) -> Bools | None:
    """A flag column in canonical order, null as false; None if the log has none."""
    if name not in log.frame.columns:
        return None
    flag: Bools = log.frame[name].fill_null(False).to_numpy()[log.rollouts.row]
    return flag


def _end_flags(log: Prepared) -> tuple[Bools, Bools]:
    """(last row truncated, last row not done though the log has `done`), each bool (r,)."""
    ends = log.rollouts.offsets[1:] - 1
    none = np.zeros(len(ends), bool)
    truncated, done = _row_flag(log, "truncated"), _row_flag(log, "done")
    return (
        none if truncated is None else truncated[ends],
        none if done is None else ~done[ends],
    )


def _oddities(log: Prepared) -> Mapping[str, Bools]:
    """Rows that show something odd, by name, each bool (n,) in canonical order."""
    r, frame = log.rollouts, log.frame
    n = len(r.row)
    none = np.zeros(n, bool)
    is_last = np.zeros(n, bool)
    is_last[r.offsets[1:] - 1] = True
    follows = np.ones(n, bool)
    follows[r.offsets[:-1]] = False
    done, truncated, success = (_row_flag(log, c) for c in ("done", "truncated", "success"))
    ended = (none if done is None else done) | (none if truncated is None else truncated)
    by_step = log.settings.log.order_by == "step"
    size = _bytes(log)
    # A reply that rules take for "nothing changed" is no anchor of its own.
    says_something = log.loaded.frame["reply_key"].is_not_null().to_numpy()[r.row]
    no_reward = none
    if "reward" in frame.columns:
        no_reward = frame["reward"].is_null().to_numpy()[r.row] & log.outcomes.scored[r.rollout]
    return {
        "negative": r.step < 0,
        "gap": follows & by_step & (np.diff(r.step, prepend=0) > 1),
        "unsorted": follows & (np.diff(r.row, prepend=0) < 0),
        "ended": ended & ~is_last,
        "early_success": none if success is None else success & ~is_last,
        "no_reward": no_reward,
        "no_anchor": ~log.has_anchor & ~log.thought,
        "empty": log.is_visit & (size == 0) & says_something,
        "null_action": (log.action_key == NULL_KEY) & ~log.thought,
        "invalid": log.invalid,
        "longer": follows & (np.diff(size, prepend=0) > 0),
        "shorter": follows & (np.diff(size, prepend=0) < 0),
    }


def _first_place(rollout: Ints, place: Ints, rollouts: int) -> Ints:
    """First of the places of each rollout, NO_PLACE where it has none, int64 (r,)."""
    hit, first = np.unique(rollout, return_index=True)
    at = np.full(rollouts, NO_PLACE, np.int64)
    at[hit] = place[first]
    return at


def _bytes(log: Prepared) -> Ints:
    size: Ints = log.frame["anchor_bytes"].to_numpy().astype(np.int64)[log.rollouts.row]
    return size


def _rewards(log: Prepared) -> dict[str, object]:
    """Sum and range of each rollout's step rewards, and its logged episode reward."""
    r, frame, extra = log.rollouts, log.frame, log.loaded.extra
    total: Floats = np.zeros(len(r.group))
    known: Ints = np.zeros(len(r.group), np.int64)
    low = high = last = total
    if "reward" in frame.columns:
        logged = frame["reward"][r.row]
        is_known = logged.is_not_null().to_numpy()
        value = logged.fill_null(0.0).to_numpy()
        known = np.bincount(r.rollout, is_known, len(r.group)).astype(np.int64)
        total = np.bincount(r.rollout, value, len(r.group)).astype(np.float64)
        low = np.minimum.reduceat(np.where(is_known, value, np.inf), r.offsets[:-1])
        high = np.maximum.reduceat(np.where(is_known, value, -np.inf), r.offsets[:-1])
        last = value[r.offsets[1:] - 1]
    episode = pl.Series([None] * len(r.group), dtype=pl.Float64)
    for name in ("extra:episode_reward", "extra:episode_rewards"):
        if name in extra.columns:
            episode = episode.zip_with(episode.is_not_null(), extra[name][r.last].cast(pl.Float64))
    return {
        "rewards": known,
        "reward_sum": total,
        "reward_min": low,
        "reward_max": high,
        "reward_last": last,
        "episode_reward": episode,
    }


def _anchor_lengths(log: Prepared) -> dict[str, object]:
    """Visits of each rollout, and how the length of its anchors moves with the step."""
    r = log.rollouts
    at = np.flatnonzero(log.is_visit)
    size, rollout = _bytes(log), r.rollout[at]
    return {
        "visits": np.bincount(rollout, minlength=len(r.group)),
        "growth": pl.Series(growth(rollout, r.step[at], size[at], len(r.group)), nan_to_null=True),
        "first_bytes": size[r.offsets[:-1]],
        "last_bytes": size[r.offsets[1:] - 1],
    }


def _batches(log: Prepared) -> pl.Series:
    """Training step of each rollout as text; null where the log has none that groups agree on."""
    r, extra = log.rollouts, log.loaded.extra
    for name in ("extra:global_step", "extra:step"):
        if name not in extra.columns:
            continue
        logged = extra[name][r.first]
        if logged.dtype.is_float() and bool((logged.round() == logged).all()):
            logged = logged.cast(pl.Int64)
        per_group = pl.DataFrame({"group": r.group, "batch": logged}).group_by("group").n_unique()
        if (per_group["batch"] == 1).all():
            return logged.cast(pl.String)
    return pl.Series([None] * len(r.group), dtype=pl.String)
