"""How far the rollouts of a group have come apart after K steps (Selective Rollout).

A prefix pᵢ is the first K actions of rollout i, each whole action one token, followed by END where
the rollout is shorter. The paper's signal is the mean over all pairs of

    d(pᵢ, pⱼ) = Levenshtein(pᵢ, pⱼ) / max(|pᵢ|, |pⱼ|)

with unit costs. With padding every length is K and rollouts that both ended agree on their tail;
without it lengths are the steps actually taken. The authors' main code (`src/divergence.py`) pads,
their text and K sweeps do not.

Source: Selective Rollout (arXiv 2605.05802), section 3; the other signals are those of its code.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["SIGNALS", "Heads", "signal"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_PAIRS = 1 << 18
"""Pairs compared at a time, so that groups of many rollouts do not fill the memory."""


@dataclass(frozen=True)
class Heads:
    """The first steps of the rollouts of many groups, each of two rollouts or more.

    Attributes:
      action: int32 (r, m), each step's action as a number from 0 that is dense inside the group;
        -1 after the rollout's end.
      observation: int32 (r, m), likewise.
      length: int64 (r,), all steps of the rollout, also those beyond m; at least 1.
      group: int64 (r,), non-decreasing from 0 without gaps.
    """

    action: NDArray[np.int32]
    observation: NDArray[np.int32]
    length: Ints
    group: Ints

    @cached_property
    def size(self) -> Ints:
        """Rollouts of each group, int64 (groups,)."""
        return np.bincount(self.group)

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """Both members of every pair i < j of one group, each int64 (pairs,)."""
        position = np.arange(len(self.group))
        end = np.cumsum(self.size)[self.group]
        partners = end - position - 1
        first = np.repeat(position, partners)
        rank = np.arange(len(first)) - np.repeat(np.cumsum(partners) - partners, partners)
        return first, first + 1 + rank

    def blocks(self) -> Iterator[tuple[Ints, Ints]]:
        """`pairs`, some at a time."""
        first, second = self.pairs
        for start in range(0, len(first), _PAIRS):
            yield first[start : start + _PAIRS], second[start : start + _PAIRS]

    def mean_over_pairs(self, value: Floats) -> Floats:
        """Mean of a value per pair, float64 (groups,)."""
        group = self.group[self.pairs[0]]
        return np.bincount(group, value, len(self.size)) / (self.size * (self.size - 1) // 2)


def signal(heads: Heads, name: str, k: int, *, pad: bool = True) -> Floats:
    """One signal of every group at step K.

    Args:
      heads: with m ≥ K.
      name: one of SIGNALS.
      k: steps seen, at least 1.
      pad: see the module; it matters to "distance" and "bigram_jaccard".
    Returns:
      float64 (groups,), in [0, 1].
    """
    return _SIGNALS[name](heads, k, pad)


def _distance(heads: Heads, k: int, pad: bool) -> Floats:
    """d_K. Sums of whole numbers are divided once per length, so that the rounding of a mean never
    decides which side of a threshold a group falls on (with padding; else nearly never)."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cpdist

    text = _texts(heads.action[:, :k], pad)
    edits = [
        cpdist(text[a].tolist(), text[b].tolist(), scorer=Levenshtein.distance, dtype=np.int64)
        for a, b in heads.blocks()
    ]
    length = np.full(len(heads.group), k) if pad else np.minimum(heads.length, k)
    first, second = heads.pairs
    cell = heads.group[first] * (k + 1) + np.maximum(length[first], length[second])
    groups = len(heads.size)
    total = np.bincount(cell, np.concatenate(edits), groups * (k + 1)).reshape(groups, k + 1)
    pairs = heads.size * (heads.size - 1) // 2
    mean: Floats = (total[:, 1:] / (np.arange(1, k + 1) * pairs[:, None])).sum(axis=1)
    return mean


def _texts(window: NDArray[np.int32], pad: bool) -> NDArray[np.object_]:
    """One string per rollout, one character per action; numpy drops the trailing NULs."""
    end = 1 if pad else 0
    letters = np.where(window < 0, end, window + 2).astype(np.uint32, order="C")
    return letters.view(f"U{window.shape[1]}").ravel().astype(np.object_)


def _unique_action(heads: Heads, k: int, pad: bool) -> Floats:
    return _distinct(heads, heads.action[:, k - 1 : k]) / heads.size


def _unique_observation(heads: Heads, k: int, pad: bool) -> Floats:
    return _distinct(heads, heads.observation[:, k - 1 : k]) / heads.size


def _unique_prefix(heads: Heads, k: int, pad: bool) -> Floats:
    return _distinct(heads, heads.action[:, :k]) / heads.size


def _distinct(heads: Heads, window: NDArray[np.int32]) -> Ints:
    """Distinct rows of `window` in each group, int64 (groups,)."""
    rows = np.unique(np.column_stack([heads.group, window]), axis=0)
    return np.bincount(rows[:, 0], minlength=len(heads.size))


def _entropy(heads: Heads, k: int, pad: bool) -> Floats:
    """−Σ p log p of the K-th action (END counts as one), to base G."""
    kth = np.column_stack([heads.group, heads.action[:, k - 1]])
    kinds, count = np.unique(kth, axis=0, return_counts=True)
    group = kinds[:, 0]
    p = count / heads.size[group]
    return np.bincount(group, -p * np.log2(p), len(heads.size)) / np.log2(heads.size)


def _bigram_jaccard(heads: Heads, k: int, pad: bool) -> Floats:
    """Mean over pairs of 1 − |Bᵢ ∩ Bⱼ|/|Bᵢ ∪ Bⱼ| with B the set of a prefix's bigrams."""
    from scipy.sparse import csr_array

    window = heads.action[:, :k].astype(np.int64)
    width = int(window.max()) + 2
    code = (window[:, :-1] + 1) * width + window[:, 1:] + 1
    taken = np.ones(code.shape, bool) if pad else window[:, 1:] >= 0
    rollout = np.broadcast_to(np.arange(len(window))[:, None], code.shape)[taken]
    _, bigram = np.unique(code[taken], return_inverse=True)
    kinds = int(bigram.max(initial=0)) + 1
    row, column = np.divmod(np.unique(rollout * kinds + bigram), kinds)
    sets = csr_array((np.ones(len(row)), (row, column)), shape=(len(window), kinds))
    number = np.bincount(row, minlength=len(window))
    distances = []
    for a, b in heads.blocks():
        common: Floats = np.asarray(sets[a].multiply(sets[b]).sum(axis=1)).ravel()
        union = number[a] + number[b] - common
        distances.append(np.where(union > 0, 1 - common / np.maximum(union, 1), 0.0))
    return heads.mean_over_pairs(np.concatenate(distances))


def _terminated(heads: Heads, k: int, pad: bool) -> Floats:
    """τ_K, the share of rollouts of at most K − 1 steps."""
    return np.bincount(heads.group, heads.length < k, len(heads.size)) / heads.size


_SIGNALS: dict[str, Callable[[Heads, int, bool], Floats]] = {
    "distance": _distance,
    "unique_action": _unique_action,
    "entropy": _entropy,
    "unique_prefix": _unique_prefix,
    "bigram_jaccard": _bigram_jaccard,
    "unique_observation": _unique_observation,
    "terminated": _terminated,
}

SIGNALS: dict[str, str] = {
    "distance": "mean pairwise edit distance of the first K actions, over the longer length",
    "unique_action": "distinct K-th actions over rollouts",
    "entropy": "entropy of the K-th action, to base G",
    "unique_prefix": "distinct first K actions over rollouts",
    "bigram_jaccard": "mean pairwise Jaccard distance of the action bigrams in the first K",
    "unique_observation": "distinct observations before the K-th action over rollouts",
    "terminated": "share of rollouts that ended before the K-th action",
}
"""Signal -> meaning. Low means alike, except for "terminated", where high means over."""
