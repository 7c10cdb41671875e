"""Merging anchors whose texts are nearly equal: `--merge-similar`, and GiGPO's similarity mode.

* order-free: texts a and b are alike if 2·LCS(a, b)/(|a| + |b|) reaches the threshold, with LCS
  the length of their longest common subsequence in characters (rapidfuzz's normalised Indel
  similarity; Hyyrö, Bit-parallel LCS-length computation revisited, 2004). Clusters are the
  connected components of that relation: neither order nor direction matters. Two texts of a
  cluster need not be alike themselves; such chains of small steps can lead far, so they are
  counted.
* first-fit, published with GiGPO (`gigpo/core_gigpo.py`): texts in row order, each compared with
  the first member of each cluster so far by `difflib.SequenceMatcher(None, text, first).ratio()`;
  the first cluster that reaches the threshold takes it. What is merged depends on the order of
  rows, and the ratio on which text comes second: for texts of 200 characters and more difflib
  ignores frequent characters of the second one.

Equal texts always meet in one cluster, so each anchor is compared once, at its first visit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_TEXTS", "RULES", "Merged", "merged_anchors", "merged_texts"]

Ints = NDArray[np.int64]

RULES = ("order-free", "first-fit")
MOST_TEXTS = 5000
"""Comparing so many texts of 400 characters takes about half a minute, and the time grows with the
square of their number."""
_BLOCK = 256
_ROUNDING = 1e-9
_SLACK = 1e-5  # rapidfuzz rounds its cutoff: it may miss a score that equals it


def merged_anchors(texts: Sequence[str], group: Ints, rule: str, threshold: float) -> Ints:
    """Cluster of each state; anchors of different groups are never compared.

    Args:
      texts: (s,), text of each state, in order of first visit.
      group: int64 (s,), non-decreasing.
      rule: one of RULES.
      threshold: smallest similarity that merges, in [0, 1].
    Returns:
      int64 (s,), the first state of each state's cluster.
    """
    clusters = first_fit if rule == "first-fit" else order_free
    starts = np.flatnonzero(np.diff(group, prepend=-1)).tolist()
    merged = np.empty(len(group), np.int64)
    for start, stop in pairwise([*starts, len(group)]):
        merged[start:stop] = start + clusters(texts[start:stop], threshold)
    return merged


def first_fit(texts: Sequence[str], threshold: float) -> Ints:
    """Published rule on the texts of one group; index of each cluster's first member."""
    from difflib import SequenceMatcher

    heads: list[tuple[int, SequenceMatcher[str]]] = []
    cluster = np.arange(len(texts))
    for index, text in enumerate(texts):
        for head, matcher in heads:
            matcher.set_seq1(text)
            # The first two bound the third from above and are cheap.
            if (
                matcher.real_quick_ratio() >= threshold
                and matcher.quick_ratio() >= threshold
                and matcher.ratio() >= threshold
            ):
                cluster[index] = head
                break
        else:
            heads.append((index, SequenceMatcher(None, "", text)))
    return cluster


def order_free(texts: Sequence[str], threshold: float) -> Ints:
    """Connected components of the texts of one group; index of each one's first member."""
    member = merged_texts(texts, threshold).member
    _, first, component = np.unique(member, return_index=True, return_inverse=True)
    return first[component]


@dataclass(frozen=True)
class Merged:
    """Connected components of some texts.

    Attributes:
      member: int64 (n,), for each text the index of its component's first text in byte order.
      chains: components of which some two texts are not alike.
      least: lowest similarity of two texts of one component, over the chains if there are any;
        1 if nothing was merged.
    """

    member: Ints
    chains: int
    least: float


def merged_texts(texts: Sequence[str], threshold: float) -> Merged:
    """Connected components of texts that are alike; n²/2 comparisons.

    Args:
      texts: n texts in any order.
      threshold: least similarity that merges, in [0, 1]; rounding errors count as reached.
    """
    order = sorted(range(len(texts)), key=lambda i: texts[i].encode("utf-8", "replace"))
    ordered = [texts[i] for i in order]
    one, other = _alike(ordered, threshold)
    root = _components(len(ordered), one, other)
    member = np.empty(len(texts), np.int64)
    member[order] = np.array(order, np.int64)[root]
    size = np.bincount(root, minlength=len(texts))
    pairs = np.bincount(root[one], minlength=len(texts))
    chains = np.flatnonzero(2 * pairs < size * (size - 1))
    merged = chains if len(chains) else np.flatnonzero(size > 1)
    least = [_least([ordered[i] for i in np.flatnonzero(root == r)]) for r in merged]
    return Merged(member, len(chains), min(least, default=1.0))


def _alike(texts: Sequence[str], threshold: float) -> tuple[Ints, Ints]:
    """Index pairs i < j of texts whose similarity reaches the threshold."""
    least = threshold - _ROUNDING
    ones, others = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, len(texts), _BLOCK):
        found = _similarities(
            texts[start : start + _BLOCK], texts[start:], max(least - _SLACK, 0.0)
        )
        one, other = np.nonzero(found >= least)
        upper = one < other
        ones.append(start + one[upper])
        others.append(start + other[upper])
    return np.concatenate(ones), np.concatenate(others)


def _least(texts: Sequence[str]) -> float:
    """Lowest similarity of any two texts."""
    blocks = range(0, len(texts), _BLOCK)
    return min(float(_similarities(texts[b : b + _BLOCK], texts[b:], 0.0).min()) for b in blocks)


def _similarities(some: Sequence[str], others: Sequence[str], cutoff: float) -> NDArray[np.float64]:
    """Similarity of each of `some` with each of `others`, 0 below the cutoff."""
    from rapidfuzz.distance import Indel
    from rapidfuzz.process import cdist

    scorer = Indel.normalized_similarity
    return cdist(some, others, scorer=scorer, score_cutoff=cutoff, dtype=np.float64)


def _components(count: int, one: Ints, other: Ints) -> Ints:
    """Lowest index of the connected component of each node, int64 (count,).

    Args:
      count: number of nodes.
      one, other: int64 (m,), ends of the edges.
    """
    lowest = np.arange(count)
    while True:
        reached = np.minimum(lowest[one], lowest[other])
        lower = lowest.copy()
        np.minimum.at(lower, one, reached)
        np.minimum.at(lower, other, reached)
        lower = lower[lower]
        if np.array_equal(lower, lowest):
            return lowest
        lowest = lower
