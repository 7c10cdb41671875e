"""Merging anchors whose texts are nearly equal: the similarity mode of GiGPO, in two variants.

* first-fit, the published one (`gigpo/core_gigpo.py`): texts in row order, each compared with the
  first member of each cluster so far by `difflib.SequenceMatcher(None, text, first).ratio()`; the
  first cluster that reaches the threshold takes it. What is merged depends on the order of rows,
  and the ratio on which text comes second: for texts of 200 characters and more difflib ignores
  frequent characters of the second one.
* order-free: texts a and b are alike if 2·LCS(a, b)/(|a| + |b|) reaches the threshold, with LCS
  the length of their longest common subsequence; clusters are the connected components of that
  relation. Neither order nor direction matters; texts may be merged through others between them.

Equal texts always meet in one cluster, so each anchor is compared once, at its first visit.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["RULES", "common_subsequence", "merged_anchors", "similarity"]

Ints = NDArray[np.int64]

RULES = ("order-free", "first-fit")


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
    cluster = np.arange(len(texts))
    letters = [Counter(text) for text in texts]
    for later in range(1, len(texts)):
        for earlier in range(later):
            if cluster[earlier] == cluster[later]:
                continue
            total = len(texts[earlier]) + len(texts[later])
            shared = (letters[earlier] & letters[later]).total()
            if 2 * shared < threshold * total:
                continue
            if similarity(texts[earlier], texts[later]) >= threshold:
                one, other = sorted((cluster[earlier], cluster[later]))
                cluster[cluster == other] = one
    return cluster


def similarity(a: str, b: str) -> float:
    """2·LCS(a, b)/(|a| + |b|), 1 for two empty texts; symmetric, in [0, 1]."""
    total = len(a) + len(b)
    return 2 * common_subsequence(a, b) / total if total else 1.0


def common_subsequence(a: str, b: str) -> int:
    """Length of the longest common subsequence.

    Source: Hyyrö, Bit-parallel LCS-length computation revisited (2004): one addition of |a|-bit
    integers per character of b. What both texts begin and end with is counted beforehand.
    """
    shorter = min(len(a), len(b))
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    shorter -= head
    tail = next((i for i in range(shorter) if a[-1 - i] != b[-1 - i]), shorter)
    a, b = a[head : len(a) - tail], b[head : len(b) - tail]
    where: dict[str, int] = {}
    for i, letter in enumerate(a):
        where[letter] = where.get(letter, 0) | 1 << i
    full = (1 << len(a)) - 1
    row = full
    for letter in b:
        match = row & where.get(letter, 0)
        row = ((row + match) | (row - match)) & full
    return head + tail + len(a) - row.bit_count()
