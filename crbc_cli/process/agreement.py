"""Anchors against what other rollouts saw, and against the true state where it is known.

Each visit is predicted by what happened to the visits of other rollouts at the same
(anchor, action): the share of them that saw the same outcome is its hit, the rest its miss.
Splitting anchors in vain loses hits and misses alike; splitting aliased anchors loses misses.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Agreement", "TruthScores", "agreement", "codes", "distinct_per", "truth_scores"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def codes(*columns: Ints) -> Ints:
    """Dense code of each row of integer columns, int64 (n,)."""
    whole = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, part = np.unique(column, return_inverse=True)
        _, whole = np.unique(whole * (part.max(initial=0) + 1) + part, return_inverse=True)
    return whole


@dataclass(frozen=True)
class Agreement:
    """How well other rollouts foretell each visit.

    Attributes:
      hit: float64 (n,), share of the other rollouts' visits at the pair with the same outcome; 0
        where there are none.
      known: bool (n,), other rollouts visited the pair.
    """

    hit: Floats
    known: Bools

    @property
    def miss(self) -> Floats:
        """Share of the other rollouts' visits with another outcome, float64 (n,)."""
        return self.known - self.hit

    @cached_property
    def hits(self) -> float:
        """Expected number of visits foretold."""
        return float(self.hit.sum())

    @cached_property
    def misses(self) -> float:
        """Expected number of visits foretold wrongly."""
        return float(self.known.sum() - self.hit.sum())


def agreement(pair: Ints, rollout: Ints, outcome: Ints) -> Agreement:
    """Agreement of each visit with the visits of other rollouts at its pair.

    Args:
      pair, rollout, outcome: int64 (n,), any codes.
    """
    same = codes(pair, outcome)
    own, own_same = codes(pair, rollout), codes(pair, rollout, outcome)
    whole = codes(pair)

    def sizes(code: Ints) -> Ints:
        return np.bincount(code)[code]

    others = sizes(whole) - sizes(own)
    known = others > 0
    hit = np.where(known, (sizes(same) - sizes(own_same)) / np.maximum(others, 1), 0.0)
    return Agreement(hit, known)


@dataclass(frozen=True)
class TruthScores:
    """Anchors against the true state.

    Attributes:
      visits: visits scored.
      aliased: share of the visits on anchors visited at least twice whose anchor holds several
        true states; None where no anchor is visited twice.
      shared: share of the visits on anchors that at least two rollouts visited; None without
        visits.
      keys_per_state: mean number of anchors per true state of a group.
    """

    visits: int
    aliased: float | None
    shared: float | None
    keys_per_state: float | None


def truth_scores(group: Ints, anchor: Ints, rollout: Ints, truth: Ints) -> TruthScores:
    """Scores of anchors whose true state is known.

    Args:
      group: int64 (n,), group of each visit; true states of different groups are different.
      anchor: int64 (n,), any code that is unique over groups.
      rollout: int64 (n,).
      truth: int64 (n,), code of the true state.
    """
    n = len(anchor)
    if not n:
        return TruthScores(0, None, None, None)
    at = codes(anchor)
    size = np.bincount(at)
    repeated = size > 1
    states, rollouts = (distinct_per(at, code) for code in (truth, rollout))
    aliased = int(size[repeated & (states > 1)].sum())
    several = int(size[repeated].sum())
    keys = distinct_per(codes(group, truth), at)
    return TruthScores(
        n,
        aliased / several if several else None,
        float(size[rollouts > 1].sum() / n),
        float(keys.mean()),
    )


def distinct_per(code: Ints, value: Ints) -> Ints:
    """Distinct values of each dense code, int64 (codes,)."""
    cell = codes(code, value)
    of = np.empty(int(cell.max(initial=-1)) + 1, np.int64)
    of[cell] = code
    return np.bincount(of, minlength=int(code.max(initial=-1)) + 1)
