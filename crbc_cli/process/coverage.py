"""How much cross-rollout evidence stands behind a visit (CRBC, appendix D.2, figure 5).

    Reach_K(s) = states at distance at most K from s over observed transitions (s included)
    cover_K(s) = number of distinct rollouts that visit some state of Reach_K(s)

Sets of rollouts are bits of words, 64 rollouts in each. They spread against the transitions in
waves, and a wave goes on from the states that the one before widened. Full reach contracts chains
first, as the closure does, and takes one word of all states at a time.
"""

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.buckets import Buckets
from crbc_cli.process.empirical import EmpiricalProcess

__all__ = ["coverage_by_depth", "reachable_rollouts", "reachable_sets"]

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_BLOCK_WORDS = 1 << 22


def reachable_rollouts(process: EmpiricalProcess, depth: float = math.inf) -> Ints:
    """Distinct rollouts reachable from each state, int64 (states,).

    Args:
      process: merged groups.
      depth: whole number K ≥ 0, or math.inf for everything that can be reached.
    """
    total = np.zeros(process.states, np.int64)
    for reach in _own_words(process):
        if depth == math.inf:
            reach = _full_reach(process, reach)
        else:
            for _ in islice(_waves(reach[:, None], *process.edges), _rounds(depth)):
                pass
        total += np.bitwise_count(reach)
    return total


def reachable_sets(process: EmpiricalProcess, depth: float) -> list[int]:
    """The rollouts themselves, as a set of bits for each state; bit j is the j-th of its group.

    Args:
      process: merged groups.
      depth: whole number K ≥ 0, or math.inf.
    Returns:
      For each state one whole number of up to as many bits as its group has rollouts.
    """
    sets = [0] * process.states
    for word, reach in enumerate(_own_words(process)):
        for _ in islice(_waves(reach[:, None], *process.edges), _rounds(depth)):
            pass
        sets = [bits | int(own) << 64 * word for bits, own in zip(sets, reach, strict=True)]
    return sets


def _rounds(depth: float) -> int | None:
    return None if depth == math.inf else int(depth)


def coverage_by_depth(process: EmpiricalProcess) -> Iterator[tuple[Ints, Ints]]:
    """What changes at depth 0, 1, 2, …: (states, distinct rollouts that each of them reaches now).

    Both int64 (k,). Depth 0 gives all states; the last depth that gives any equals full reach.
    """
    words = [*_own_words(process)]
    reach = np.stack(words, axis=1) if words else np.empty((0, 1), np.uint64)
    states = np.arange(process.states)
    yield states, _counted(reach)
    for widened in _waves(reach, *process.edges):
        yield widened, _counted(reach[widened])


def _counted(reach: Words) -> Ints:
    """Rollouts in each set: (k, words) -> (k,)."""
    number: Ints = np.bitwise_count(reach).sum(axis=1, dtype=np.int64)
    return number


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


def _waves(reach: Words, source: Ints, target: Ints) -> Iterator[Ints]:
    """Widens what each source reaches by what its targets reach, in place, one edge per wave.

    Args:
      reach: uint64 (states, words).
      source, target: int64 (edges,), sorted by source.
    Returns:
      The states that each wave widened, until there are none.
    """
    into = Buckets(target, len(reach))
    widened = np.arange(len(reach))
    while True:
        edges = np.sort(into.of(widened))
        wider = [*_wider(reach, source[edges], target[edges])]
        for states, sets in wider:  # not before all are known: a wave is one step for every state
            reach[states] = sets
        widened = np.concatenate([states for states, _ in wider] or [edges])
        if not len(widened):
            return
        yield widened


def _wider(reach: Words, source: Ints, target: Ints) -> Iterator[tuple[Ints, Words]]:
    """Sources that reach more than they did and what they reach: blocks of (k,), (k, words)."""
    starts = np.flatnonzero(np.diff(source, prepend=-1))
    stops = np.append(starts[1:], len(source))
    blocks = len(source) * reach.shape[1] // _BLOCK_WORDS + 1
    for part in np.array_split(np.arange(len(starts)), min(blocks, len(starts)) or 1):
        if len(part):
            inside = slice(starts[part[0]], stops[part[-1]])
            states, begin = source[starts[part]], starts[part] - starts[part[0]]
            sets = reach[states] | np.bitwise_or.reduceat(reach[target[inside]], begin)
            grown = (sets != reach[states]).any(axis=1)
            yield states[grown], sets[grown]


def _full_reach(process: EmpiricalProcess, own: Words) -> Words:
    """What waves come to in the end: chains of single-successor states by doubling, then the rest.

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
    source, target = source[~single], target[~single]
    reach = along.copy()
    np.bitwise_or.at(reach, source, along[target])
    for _ in _waves(reach[:, None], source, root[target]):
        pass
    return along | reach[root]
