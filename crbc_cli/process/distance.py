"""Shortest ways to success and discounted maxima over observed transitions, of many groups at once.

Both walk backwards from nodes whose value has changed, one step of all groups at a time, and touch
only transitions into those. Minimum and maximum do not round, so results do not depend on order.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.empirical import SUCCESS

__all__ = ["discounted_maximum", "success_distance"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Incoming:
    """Transitions by target: those into node x are source[offsets[x]:offsets[x + 1]]."""

    source: Ints
    offsets: Ints

    @classmethod
    def build(cls, source: Ints, target: Ints, nodes: int) -> "_Incoming":
        number = np.bincount(target, minlength=nodes)
        return cls(
            source[np.argsort(target, kind="stable")], np.concatenate([[0], np.cumsum(number)])
        )

    def of(self, nodes: Ints) -> tuple[Ints, Ints]:
        """(source, index into `nodes` of its target) of every transition into `nodes`."""
        start = self.offsets[nodes]
        number = self.offsets[nodes + 1] - start
        owner = np.repeat(np.arange(len(nodes)), number)
        before = np.cumsum(number) - number
        return self.source[np.arange(len(owner)) + (start - before)[owner]], owner


def success_distance(source: Ints, target: Ints, nodes: int) -> Ints:
    """Fewest transitions from each node to success.

        d(s) = 1 if an observed transition leads from s to success, else 1 + min over s → x of d(x)

    Args:
      source: int64 (e,), in [0, nodes).
      target: int64 (e,), a node, SUCCESS, or FAILURE (leads nowhere).
      nodes: number of nodes.
    Returns:
      int64 (nodes,), -1 where no observed way leads to success.
    Source: GraphGPO (arXiv 2605.26684): the shortest path with cost 1 per transition.
    """
    distance = np.full(nodes, -1, np.int64)
    inner = target >= 0
    incoming = _Incoming.build(source[inner], target[inner], nodes)
    found = source[target == SUCCESS]
    steps = 1
    while len(found):
        distance[found] = steps
        before, _ = incoming.of(_once(found, distance))
        found = before[distance[before] < 0]
        steps += 1
    return distance


def discounted_maximum(
    source: Ints, target: Ints, own: Floats, discount: float, sweeps: int
) -> Floats:
    """V(s) ← max(V(s), discount · max over s → x of V(x)) from V = own, synchronous sweeps.

    Args:
      source, target: int64 (e,), nodes.
      own: float64 (nodes,), own reward of each node.
      discount: in [0, 1].
      sweeps: at most this many; fewer where nothing changes any more.
    Returns:
      float64 (nodes,).
    Source: RewardFlow (arXiv 2603.18859), `rewardflow/propagation.py`.
    """
    value = own.copy()
    incoming = _Incoming.build(source, target, len(own))
    changed = np.arange(len(own))
    scratch = np.zeros(len(own), np.int64)
    for _ in range(sweeps):
        before, owner = incoming.of(changed)
        offered = discount * value[changed][owner]
        better = offered > value[before]
        before, offered = before[better], offered[better]
        if not len(before):
            break
        np.maximum.at(value, before, offered)
        changed = _once(before, scratch)
    return value


def _once(ids: Ints, scratch: Ints) -> Ints:
    """Distinct ids, in the order of their last occurrence; `scratch` is left as it was."""
    kept = scratch[ids]
    scratch[ids] = np.arange(len(ids))
    last = scratch[ids] == np.arange(len(ids))
    scratch[ids] = kept
    once: Ints = ids[last]
    return once
