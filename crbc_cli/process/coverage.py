"""How much cross-rollout evidence stands behind a visit (CRBC, appendix D.2, figure 5).

    Reach_K(s) = states at distance at most K from s over observed transitions (s included)
    cover_K(s) = number of distinct rollouts that visit some state of Reach_K(s)

Sets of rollouts are bit words, 64 rollouts at a time; groups with more are done again for the next
64. Depth-K reach takes K sweeps; full reach contracts chains first, as the closure does.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.empirical import EmpiricalProcess

__all__ = ["coverage_by_depth", "reachable_rollouts"]

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


def reachable_rollouts(process: EmpiricalProcess, depth: float = math.inf) -> Ints:
    """Distinct rollouts reachable from each state, int64 (states,).

    Args:
      process: merged groups.
      depth: whole number K ≥ 0, or math.inf for everything that can be reached.
    """
    total = np.zeros(process.states, np.int64)
    for own in _own_words(process):
        if depth == math.inf:
            reach = _full_reach(process, own)
        else:
            reach = own
            for _ in range(int(depth)):
                reach = _spread(process, reach)
        total += np.bitwise_count(reach)
    return total


def coverage_by_depth(process: EmpiricalProcess, most: float = math.inf) -> Iterator[Ints]:
    """Reachable rollouts per state at depth 0, 1, 2, …, each int64 (states,).

    Ends after depth `most`, or after the first depth that equals full reach for every state.
    """
    words = list(_own_words(process))
    depth = 0.0
    while True:
        yield sum(
            (np.bitwise_count(w).astype(np.int64) for w in words),
            np.zeros(process.states, np.int64),
        )
        wider = [_spread(process, w) for w in words]
        done = all(np.array_equal(a, b) for a, b in zip(wider, words, strict=True))
        depth += 1
        if done or depth > most:
            return
        words = wider


def _own_words(process: EmpiricalProcess) -> Iterator[Words]:
    """Bit words of the rollouts that visit each state, one array per 64 rollouts of a group."""
    first = np.zeros(process.groups + 1, np.int64)
    starts = np.flatnonzero(np.diff(process.rollout, prepend=-1))
    np.add.at(first, process.visit_group[starts] + 1, 1)
    number = process.rollout - np.cumsum(first)[process.visit_group]
    for word in range(int(number.max(initial=-1)) // 64 + 1):
        mine = number // 64 == word
        bits = np.zeros(process.states, np.uint64)
        np.bitwise_or.at(
            bits, process.state[mine], np.uint64(1) << (number[mine] % 64).astype(np.uint64)
        )
        yield bits


def _spread(process: EmpiricalProcess, reach: Words) -> Words:
    """reach(s) | reach of every successor of s."""
    source, target = process.edges
    return _or_along(reach, source, reach[target])


def _or_along(reach: Words, source: Ints, bits: Words) -> Words:
    """ORs `bits` of each edge into its source; `source` is sorted."""
    if not len(source):
        return reach
    starts = np.flatnonzero(np.diff(source, prepend=-1))
    wider = reach.copy()
    wider[source[starts]] |= np.bitwise_or.reduceat(bits, starts)
    return wider


def _full_reach(process: EmpiricalProcess, own: Words) -> Words:
    """Fixed point of `_spread`: chains of single-successor states by doubling, then the rest.

    A cycle of such states has all its rollouts in `along` once 2^rounds exceeds its length.
    """
    source, target = process.edges
    degree = np.bincount(source, minlength=process.states)
    single = degree[source] == 1
    root = np.arange(process.states)
    root[source[single]] = target[single]
    along = own
    for _ in range(process.states.bit_length()):
        along, further = along | along[root], root[root]
        if np.array_equal(further, root):
            break
        root = further
    branch_source, branch_target = source[~single], target[~single]
    reach = along
    while True:
        wider = _or_along(reach, branch_source, along[branch_target] | reach[root[branch_target]])
        if np.array_equal(wider, reach):
            break
        reach = wider
    return along | reach[root]
