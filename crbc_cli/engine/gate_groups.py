"""Groups as a gate sees them, measured on logs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.ids import dense_ids
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import OptionError
from crbc_cli.methods.gate_rule import Evidence
from crbc_cli.methods.selective_rollout import Heads, signal
from crbc_cli.notes import Notes, counted
from crbc_cli.options import MOST, refuse_beyond

__all__ = ["FEATURES", "GateGroups", "groups_of_logs"]

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
      t_max: step limit of rollouts.
      longest: steps of the longest rollout there is, or None if unknown.
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
    longest: int | None
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
        """One row per K and group, in the columns that `crbc_cli.engine.gate_features` reads."""
        repeated = pl.concat([self.names] * len(self.at))
        number, height = len(self.at), len(self.variance)
        columns: dict[str, Ints | Floats] = {
            "K": np.repeat(self.at, height),
            "rollouts": np.tile(self.rollouts, number),
            "reward_variance": np.tile(self.variance, number),
        }
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
      t_max: step limit of rollouts; 0 takes the longest rollout of the logs.
    Raises:
      OptionError: a K below 1.
    """
    refuse_beyond("--t-max", t_max, MOST)
    refuse_beyond("--at", max(at), MOST)
    if min(at) < 1:
        raise OptionError(f"--at {min(at)} is not a step count of at least 1")
    ks = np.unique(np.asarray(at, np.int64))
    parts = [_measure(log, clock, ks, signals, pad) for log in logs]
    left_out = sum(part.left_out for part in parts)
    if left_out:
        notes.say(
            "small_groups",
            f"{counted(left_out, 'group')} left out: fewer than two rollouts count there",
        )
    longest = max(part.t_max for part in parts)
    if t_max and longest > t_max:
        steps = counted(longest, "step")
        notes.say("t_max", f"--t-max {t_max} is below the longest rollout ({steps})")
    beyond = ks[ks > longest].tolist()
    if beyond:
        notes.say(
            "beyond",
            f"--at {beyond[0]} is beyond the longest rollout ({counted(longest, 'step')}): "
            "nothing can be saved there",
            warning=True,
        )
    return GateGroups(
        pl.concat([part.names for part in parts], how="diagonal_relaxed"),
        ks,
        {name: np.hstack([part.signals[name] for part in parts]) for name in signals},
        np.hstack([part.saved for part in parts if part.saved is not None]),
        np.hstack([part.steps for part in parts if part.steps is not None]),
        np.hstack([part.variance for part in parts]),
        np.hstack([part.rollouts for part in parts]),
        t_max or longest,
        longest,
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
                np.where(
                    wins == 0, "all_fail", np.where(wins == size[kept], "all_success", "mixed")
                ),
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
        (longest := int(rollouts.lengths.max(initial=0))),
        longest,
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
        lowest = ids[np.flatnonzero(np.diff(scope, prepend=-1))]
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
