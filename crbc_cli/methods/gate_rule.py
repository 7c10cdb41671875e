"""What a gate that stops groups early saves and costs.

A gate cuts a group when its signal is below a threshold (for "terminated": at or above it). A
positive is a group without reward variance, whose group advantage is 0 anyway. With T_max the
step limit, N groups and A = (r − mean)/(std + 1e-8), ddof 0,

    safe     = Σ over true positives (T_max − K) / (N · T_max)
    raw      = Σ over cut groups     (T_max − K) / (N · T_max)
    realised = Σ over cut groups and their rollouts max(length − K, 0) / Σ all lengths
    L2       = ‖A over kept groups‖ / ‖A over all groups‖

Source: Selective Rollout (arXiv 2605.05802), sections 3-4 and `scripts/10_grpo_offline.py`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Evidence", "Metrics", "cut_groups", "measure", "separation"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_LOW_GRID = np.arange(2, 41) / 100
_TERMINATED_GRID = np.arange(100, 49, -5) / 100
_EPS = 1e-8


@dataclass(frozen=True)
class Evidence:
    """What is known of N groups, at several K where it depends on K.

    Attributes:
      at: int64 (k,), the steps K at which the gate may look.
      signal: float64 (k, N).
      terminated: float64 (k, N), share of rollouts that ended before K; None if unknown.
      saved: int64 (k, N), steps beyond K, summed over rollouts; None if lengths are unknown.
      steps: int64 (N,), all steps; None if lengths are unknown.
      variance: float64 (N,), population variance of the reward, exactly 0 where all are equal.
      rollouts: int64 (N,).
      t_max: step limit of rollouts.
      high: the signal says "stop" where it is high, not where it is low.
    """

    at: Ints
    signal: Floats
    terminated: Floats | None
    saved: Ints | None
    steps: Ints | None
    variance: Floats
    rollouts: Ints
    t_max: int
    high: bool = False

    @property
    def zero(self) -> Bools:
        """Groups without reward variance, bool (N,)."""
        flat: Bools = self.variance == 0
        return flat

    @property
    def nominal(self) -> Ints:
        """Steps a rollout could still take after K, int64 (k,)."""
        return np.maximum(self.t_max - self.at, 0)

    @property
    def grid(self) -> Floats:
        """Thresholds to choose from, the strictest first."""
        return _TERMINATED_GRID if self.high else _LOW_GRID


@dataclass(frozen=True)
class Metrics:
    """What one way of cutting groups saves and costs; None where nothing defines it."""

    groups: int
    cut: int
    true_positives: int
    false_positives: int
    precision: float | None
    recall: float | None
    safe: float | None
    raw: float | None
    realised: float | None
    l2_preserved: float | None
    items_dropped: float | None


def cut_groups(
    evidence: Evidence, position: int, threshold: float | Floats, or_terminated: float | None
) -> Bools:
    """Groups the gate stops at the K of `position`; the comparison is strict.

    Args:
      evidence: the groups.
      position: index into `at`.
      threshold: one, or an array (t,).
      or_terminated: also stop groups with at least this share of ended rollouts.
    Returns:
      bool (N,), or (t, N) for an array of thresholds.
    Raises:
      ValueError: `or_terminated` without `evidence.terminated`.
    """
    value, limit = evidence.signal[position], np.asarray(threshold)[..., None]
    cut: Bools = value >= limit if evidence.high else value < limit
    if or_terminated is not None:
        if evidence.terminated is None:
            raise ValueError("or_terminated needs the share of rollouts that ended")
        cut = cut | (evidence.terminated[position] >= or_terminated)
    return cut


def measure(evidence: Evidence, cut: Bools, position: int | Ints) -> Metrics:
    """What cutting these groups at K saves and costs.

    Args:
      evidence: the groups.
      cut: bool (N,).
      position: index into `at`, one or (N,).
    """
    number, zero = len(cut), evidence.zero
    hits = cut & zero
    nominal = np.broadcast_to(evidence.nominal[position], number)
    whole = number * evidence.t_max
    realised = None
    if evidence.saved is not None and evidence.steps is not None:
        saved = evidence.saved[position, np.arange(number)]
        realised = _ratio(saved[cut].sum(), evidence.steps.sum())
    spread = np.sqrt(evidence.variance)
    power = evidence.rollouts * (spread / (spread + _EPS)) ** 2
    kept = _ratio(power[~cut].sum(), power.sum())
    tp, cuts = int(hits.sum()), int(cut.sum())
    return Metrics(
        number,
        cuts,
        tp,
        cuts - tp,
        _ratio(tp, cuts),
        _ratio(tp, zero.sum()),
        _ratio(nominal[hits].sum(), whole),
        _ratio(nominal[cut].sum(), whole),
        realised,
        None if kept is None else kept**0.5,
        _ratio(cuts, number),
    )


def _ratio(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole else None


def separation(evidence: Evidence, position: int) -> tuple[float | None, float | None]:
    """How well the signal at K tells groups with reward variance from those without.

    Returns:
      Spearman's ρ of the signal with the reward variance, and the AUROC: the chance that a group
      with variance has the higher signal, ties counting half. None where either side is constant.
    """
    rank = _ranks(evidence.signal[position])
    spread = _ranks(evidence.variance)
    varied = ~evidence.zero
    ones, zeros = int(varied.sum()), int((~varied).sum())
    auroc = _ratio(rank[varied].sum() - ones * (ones + 1) / 2, ones * zeros)
    a, b = rank - (len(rank) + 1) / 2, spread - (len(rank) + 1) / 2
    return _ratio(float(a @ b), math.sqrt((a @ a) * (b @ b))), auroc


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, ties sharing their mean, float64 (n,)."""
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[inverse]
