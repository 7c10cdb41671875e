"""Groups as a gate sees them: measured on logs, or read from a table of features."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.ids import dense_ids
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import ColumnError, IdentityError, InputError, OptionError
from crbc_cli.logs.formats.parquet import polars_errors
from crbc_cli.methods.gate_rule import Evidence
from crbc_cli.methods.selective_rollout import Heads, signal
from crbc_cli.notes import Notes

__all__ = ["FEATURES", "GateGroups", "groups_of_features", "groups_of_logs"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FEATURES: dict[str, str] = {
    "distance": "prefix_distance",
    "unique_action": "unique_action_ratio",
    "entropy": "action_entropy",
    "unique_prefix": "unique_prefix_ratio",
    "bigram_jaccard": "action_bigram_jaccard_mean",
    "unique_observation": "obs_unique_ratio",
    "terminated": "termination_fraction",
}
"""Signal -> its column in a table of features."""

_OTHER_NAMES = {
    "group_id": ("group", "task_id"),
    "prefix_distance": ("prefix_edit_distance_mean",),
    "reward_variance": ("reward_var",),
}
"""Column -> what the files published with the paper call it."""


@dataclass(frozen=True)
class GateGroups:
    """N groups at several K.

    Attributes:
      names: N rows, what identifies a group (and `label`: all_fail, all_success, mixed).
      at: int64 (k,), increasing.
      signals: name -> float64 (k, N).
      saved: int64 (k, N), steps beyond K over all rollouts, or None if unknown.
      steps: int64 (N,), or None.
      variance: float64 (N,), population variance of the reward.
      rollouts: int64 (N,).
      t_max: longest rollout.
      left_out: groups in which fewer than two rollouts count.
    """

    names: pl.DataFrame
    at: Ints
    signals: Mapping[str, Floats]
    saved: Ints | None
    steps: Ints | None
    variance: Floats
    rollouts: Ints
    t_max: int
    left_out: int

    def evidence(self, name: str) -> Evidence:
        """What a gate on one signal is judged by."""
        return Evidence(
            self.at,
            self.signals[name],
            self.signals.get("terminated"),
            self.saved,
            self.steps,
            self.variance,
            self.rollouts,
            self.t_max,
            high=name == "terminated",
        )

    def frame(self) -> pl.DataFrame:
        """One row per K and group, in the columns that `groups_of_features` reads."""
        repeated = pl.concat([self.names] * len(self.at))
        number, height = len(self.at), len(self.variance)
        columns = {"K": np.repeat(self.at, height), "rollouts": np.tile(self.rollouts, number)}
        columns["reward_variance"] = np.tile(self.variance, number)
        if self.steps is not None and self.saved is not None:
            columns["steps"] = np.tile(self.steps, number)
            columns["steps_saved"] = self.saved.ravel()
        columns |= {FEATURES[name]: value.ravel() for name, value in self.signals.items()}
        return repeated.with_columns(**{n: pl.Series(n, v) for n, v in columns.items()})


def groups_of_logs(
    logs: Iterable[Prepared],
    clock: Clock,
    notes: Notes,
    *,
    at: Sequence[int],
    signals: Sequence[str],
    pad: bool = True,
    t_max: int = 0,
) -> GateGroups:
    """Measures the groups of logs in which at least two rollouts count.

    Args:
      logs: prepared logs.
      clock: stages "build" and "solve" are added to.
      notes: told about groups left out.
      at: the K, each at least 1.
      signals: names in `crbc_cli.methods.selective_rollout.SIGNALS`.
      pad: compare prefixes padded to K.
      t_max: longest rollout that could be; 0 takes the longest that counts.
    """
    ks = np.unique(np.asarray(at, np.int64))
    parts = [_measure(log, clock, ks, signals, pad) for log in logs]
    left_out = sum(part.left_out for part in parts)
    if left_out:
        notes.say(
            "small_groups", f"{left_out} groups left out: fewer than two of their rollouts count"
        )
    longest = max((part.t_max for part in parts), default=0)
    if t_max and longest > t_max:
        notes.say("t_max", f"--t-max {t_max} is below the longest rollout ({longest} steps)")
    return GateGroups(
        pl.concat([part.names for part in parts], how="diagonal_relaxed"),
        ks,
        {name: np.hstack([part.signals[name] for part in parts]) for name in signals},
        np.hstack([part.saved for part in parts if part.saved is not None]),
        np.hstack([part.steps for part in parts if part.steps is not None]),
        np.hstack([part.variance for part in parts]),
        np.hstack([part.rollouts for part in parts]),
        t_max or longest,
        left_out,
    )


def _measure(
    log: Prepared, clock: Clock, ks: Ints, signals: Sequence[str], pad: bool
) -> GateGroups:
    rollouts, outcomes = log.rollouts, log.outcomes
    with clock("build"):
        size = np.bincount(rollouts.group[outcomes.counts], minlength=rollouts.groups)
        taken = np.flatnonzero(outcomes.counts & (size >= 2)[rollouts.group])
        kept, group = np.unique(rollouts.group[taken], return_inverse=True)
        heads = _heads(log, taken, group, int(ks.max()))
        first = rollouts.first[taken[np.flatnonzero(np.diff(group, prepend=-1))]]
        wins = np.bincount(group, outcomes.success[taken], len(kept))
        names = _names(log, first).with_columns(
            label=pl.Series(
                np.where(wins == 0, "all_fail", np.where(wins == size[kept], "all_success", "mixed")),
                dtype=pl.String,
            )
        )
        length = heads.length
        saved = [np.bincount(group, np.maximum(length - k, 0), len(kept)) for k in ks]
    with clock("solve"):
        measured = {
            name: np.stack([signal(heads, name, int(k), pad=pad) for k in ks])
            if len(kept)
            else np.empty((len(ks), 0))
            for name in signals
        }
    return GateGroups(
        names,
        ks,
        measured,
        np.stack(saved).astype(np.int64),
        np.bincount(group, length, len(kept)).astype(np.int64),
        _variance(group, outcomes.reward[taken], len(kept)),
        size[kept],
        int(length.max(initial=0)),
        rollouts.groups - len(kept),
    )


def _heads(log: Prepared, taken: Ints, group: Ints, depth: int) -> Heads:
    """First steps of the rollouts `taken`, their actions and observations as small numbers."""
    rollouts = log.rollouts
    length = rollouts.lengths[taken]
    inside = np.arange(depth) < length[:, None]
    row = (rollouts.offsets[taken][:, None] + np.arange(depth))[inside]
    scope = np.broadcast_to(group[:, None], inside.shape)[inside]
    # A row without an observation is unlike every anchor; keys are 64-bit hashes.
    seen = np.where(log.has_anchor[row], log.anchor_key[row], np.uint64(0))

    def numbered(key: NDArray[np.uint64]) -> NDArray[np.int32]:
        ids = dense_ids(scope, key)
        starts = np.flatnonzero(np.diff(scope, prepend=-1))
        lowest = np.minimum.reduceat(ids, starts) if len(ids) else ids
        window = np.full(inside.shape, -1, np.int32)
        window[inside] = ids - lowest[scope]
        return window

    return Heads(numbered(log.action_key[row]), numbered(seen), length, group)


def _names(log: Prepared, first: Ints) -> pl.DataFrame:
    """Source, id and key columns of the group of each step-table row in `first`."""
    frame = log.frame[first]
    files = pl.Series([s.name for s in log.loaded.sources], dtype=pl.String)
    keys = [c for c in frame.columns if c.startswith("key:")]
    return frame.select(files.gather(frame["source"]).alias("source_file"), "group_id", *keys)


def _variance(group: Ints, reward: Floats, groups: int) -> Floats:
    """Population variance of each group, exactly 0 where all rewards are equal."""
    number = np.bincount(group, minlength=groups)
    mean = np.bincount(group, reward, groups) / np.maximum(number, 1)
    squares = np.bincount(group, (reward - mean[group]) ** 2, groups)
    first = reward[np.searchsorted(group, np.arange(groups))]
    differ = np.bincount(group, reward != first[group], groups) > 0
    return np.where(differ, squares / np.maximum(number, 1), 0.0)


def groups_of_features(
    path: str, notes: Notes, *, at: Sequence[int] = (), signals: Sequence[str], t_max: int
) -> GateGroups:
    """Reads groups from a CSV with one row per group and K.

    Columns: `group_id` (and `source_file`, `key:…` where ids repeat), `K`, `reward_variance`, a
    column per signal as in FEATURES; optional `label`, `rollouts`, `steps` (of all rollouts
    together) and `steps_saved` (those beyond K). `crbc gate --per-group --csv` writes such a
    table, and the names of the file published with the paper are understood.

    Args:
      path: the file, `-` for stdin.
      notes: told what is missing.
      at: the K to take; all of the file by default.
      signals: those that are needed.
      t_max: longest rollout that could be.
    Raises:
      InputError, ColumnError, IdentityError: the table cannot be used.
      OptionError: a K that the file does not have, or no `t_max`.
    """
    if not t_max:
        raise OptionError(
            "a table of features does not say how long rollouts can be",
            todo="give --t-max, for example --t-max 30",
        )
    frame = _read_csv(path)
    keys = [c for c in frame.columns if c in ("source_file", "group_id") or c.startswith("key:")]
    numbers = ["K", "reward_variance", *(FEATURES[name] for name in signals)]
    lengths = [c for c in ("steps", "steps_saved") if c in frame.columns]
    optional = [c for c in ("rollouts", *lengths) if c in frame.columns]
    frame = _checked(frame, path, ["group_id", *numbers], [*numbers, *optional])
    known = frame["K"].unique().sort().to_list()
    absent = [k for k in at if k not in known]
    if absent:
        listed = ", ".join(f"{k:g}" for k in known)
        raise OptionError(f"--at {absent[0]} is not in {path}", todo=f"it has K = {listed}")
    ks = sorted(set(at)) or [int(k) for k in known]
    names = frame.select(keys).unique(maintain_order=True)
    ordered = (
        frame.filter(pl.col("K").is_in(ks))
        .join(names.with_row_index("position"), on=keys, maintain_order="left")
        .sort("K", "position")
    )
    positions = ordered["position"].to_numpy()
    if not np.array_equal(positions, np.tile(np.arange(names.height), len(ks))):
        raise IdentityError(
            "groups do not occur once at every K", path, "one row per group and K is needed"
        )
    if "rollouts" not in optional:
        notes.say("equal_groups", f"{path} has no rollouts column: groups count as of equal size")
    if len(lengths) < 2:
        notes.say("no_lengths", f"{path} has no steps and steps_saved: no realised saving")
    columns = {c: ordered[c].to_numpy().reshape(len(ks), -1) for c in [*numbers, *optional]}
    whole = {c: columns[c].astype(np.int64) for c in optional}
    label = [c for c in ("label",) if c in frame.columns]
    return GateGroups(
        ordered.head(names.height).select(*keys, *label),
        np.asarray(ks, np.int64),
        {name: columns[FEATURES[name]] for name in signals},
        whole["steps_saved"] if len(lengths) == 2 else None,
        whole["steps"][0] if len(lengths) == 2 else None,
        columns["reward_variance"][0],
        whole["rollouts"][0] if "rollouts" in whole else np.ones(names.height, np.int64),
        t_max,
        0,
    )


def _read_csv(path: str) -> pl.DataFrame:
    with polars_errors(path):
        try:
            frame = pl.read_csv(sys.stdin.buffer if path == "-" else path, infer_schema_length=None)
        except OSError as error:
            raise InputError(f"cannot be opened ({error.strerror or error})", path) from error
    named = {
        other: name
        for name, others in _OTHER_NAMES.items()
        for other in others
        if other in frame.columns and name not in frame.columns
    }
    return frame.rename(named)


def _checked(
    frame: pl.DataFrame, path: str, needed: Sequence[str], numbers: Sequence[str]
) -> pl.DataFrame:
    """The frame with its numbers as Float64, none missing."""
    for name in needed:
        if name not in frame.columns:
            raise ColumnError(
                f"has no column {name}", path, f"columns are {', '.join(frame.columns)}"
            )
    for name in numbers:
        if not frame[name].dtype.is_numeric():
            raise ColumnError(f"column {name} holds no numbers", path)
        odd = (~frame[name].cast(pl.Float64).is_finite()).fill_null(True).arg_true()
        if len(odd):
            raise ColumnError(f"column {name} is missing a number", f"{path}:{odd[0] + 2}")
    if not frame.height:
        raise InputError("holds no rows", path)
    return frame.with_columns(pl.col(list(numbers)).cast(pl.Float64))
