"""Processes of resampled rollouts, many resamples at once as extra blocks."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.empirical import FAILURE, EmpiricalProcess, Rewards

__all__ = ["Resampled", "resampled", "rollouts_of"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Resampled:
    """Several resamples of one process, side by side.

    Attributes:
      process: their blocks; a block's groups are groups of their own.
      state, pair: int64, which state and pair of the original each one is.
    """

    process: EmpiricalProcess
    state: Ints
    pair: Ints


def resampled(process: EmpiricalProcess, block: Ints, drawn: Ints, *, censored: bool) -> Resampled:
    """The process that each block's rollouts make on their own.

    A rollout that is drawn twice counts as two. An anchor that none of a block's rollouts visits
    is not there: a last transition to it (bootstrapped ends) leads to failure. Under `censored` a
    transition to it was not observed to lead anywhere and is dropped, as is every one that then
    leads nowhere.

    Args:
      process: merged groups.
      block, drawn: int64 (d,), which block gets which rollout; sorted by block, then rollout.
      censored: cut rollouts lost their last transition.
    """
    visit, copy = _members(*rollouts_of(process), drawn)
    at = block[copy]
    state = at * process.states + process.state[visit]
    pair = at * process.pairs + process.pair[visit]
    successor = process.successor[visit]
    inner = successor >= 0
    successor[inner] += (at * process.states)[inner]
    blocks = int(block.max(initial=-1)) + 1
    kept = np.ones(len(visit), bool)
    if censored:
        kept = _without_dead_ends(state, successor, blocks * process.states)
        visit, copy, at = visit[kept], copy[kept], at[kept]
        state, pair, successor = state[kept], pair[kept], successor[kept]
    states, renamed = _dense(state, blocks * process.states)
    pairs, of_pair = _dense(pair, blocks * process.pairs)
    return Resampled(
        replace(
            process,
            state=renamed[state],
            pair=of_pair[pair],
            successor=np.where(successor >= 0, renamed[successor], successor),
            exit_value=process.exit_value[visit],
            rewards=_rewards(process, drawn, kept),
            invalid=process.invalid[visit],
            rollout=copy,
            rollout_success=process.rollout_success[drawn],
            rollout_boundary=process.rollout_boundary[drawn],
            visit_group=at * process.groups + process.visit_group[visit],
            groups=blocks * process.groups,
        ),
        states % max(process.states, 1),
        pairs % max(process.pairs, 1),
    )


def rollouts_of(process: EmpiricalProcess) -> tuple[Ints, Ints]:
    """First visit and number of visits of each rollout that has any, int64 (r,) each."""
    first = np.flatnonzero(np.diff(process.rollout, prepend=-1))
    return first, np.diff(first, append=len(process.rollout))


def _members(first: Ints, length: Ints, drawn: Ints) -> tuple[Ints, Ints]:
    """(positions of the visits of each drawn rollout in turn, which draw each belongs to)."""
    size = length[drawn]
    copy = np.repeat(np.arange(len(drawn)), size)
    begins = np.cumsum(size) - size
    return (first[drawn] - begins)[copy] + np.arange(len(copy)), copy


def _without_dead_ends(state: Ints, successor: Ints, states: int) -> Bools:
    """Visits that stay when those that lead to an unvisited state go, and so on."""
    kept = np.ones(len(state), bool)
    while True:
        visited = np.zeros(states, bool)
        visited[state[kept]] = True
        lost = kept & (successor >= 0) & ~visited[successor]
        if not lost.any():
            return kept
        kept &= ~lost


def _dense(ids: Ints, size: int) -> tuple[Ints, Ints]:
    """(distinct ids in order, new id of each old one, FAILURE for those that do not occur)."""
    occurs = np.zeros(size, bool)
    occurs[ids] = True
    return np.flatnonzero(occurs), np.where(occurs, np.cumsum(occurs) - 1, FAILURE)


def _rewards(process: EmpiricalProcess, drawn: Ints, kept: Bools) -> Rewards | None:
    """Rewards of the drawn rollouts, with `kept` false for further visits that are dropped."""
    rewards = process.rewards
    if rewards is None:
        return None
    first, _ = rollouts_of(process)
    name = rewards.rollout[np.flatnonzero(rewards.kept)[first]]
    begin, end = (np.searchsorted(rewards.rollout, name, side) for side in ("left", "right"))
    position, copy = _members(begin, end - begin, drawn)
    stays = rewards.kept[position]
    stays[np.flatnonzero(stays)[~kept]] = False
    return Rewards(rewards.value[position], copy, stays)
