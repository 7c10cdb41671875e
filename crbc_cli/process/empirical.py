"""The empirical process of many groups, as flat arrays (CRBC, section 4.1, eq. 5)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.buckets import Buckets

__all__ = [
    "FAILURE",
    "SUCCESS",
    "EmpiricalProcess",
    "Visits",
    "build_process",
    "distinct",
    "renumbered",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

SUCCESS = -1
FAILURE = -2

DenseIds = Callable[[Ints, Words], Ints]
"""(scope, key) -> ids by first occurrence, contiguous per scope where scope is sorted."""


@dataclass(frozen=True)
class Visits:
    """What happened, one entry per visit, sorted by (group, rollout, step).

    Attributes:
      group: int64 (n,), non-decreasing from 0.
      rollout: int64 (n,), non-decreasing from 0; each of the r rollouts has a visit.
      anchor_key, action_key: uint64 (n,), content keys.
      success: bool (r,), boundary reached.
      boundary: float64 (r,), its value.
      dropped: bool (r,), the last transition is not observed (censored).
      next_key: uint64 (r,), anchor after the last visit; used where `continues`.
      continues: bool (r,), the last transition leads to `next_key` if the group visits it.
      reward: float64 (n,) immediate rewards added to values, or None.
      invalid: bool (n,), the environment refused the action.
    """

    group: Ints
    rollout: Ints
    anchor_key: Words
    action_key: Words
    success: Bools
    boundary: Floats
    dropped: Bools
    next_key: Words
    continues: Bools
    reward: Floats | None
    invalid: Bools

    def select(self, keep: Bools) -> "Visits":
        """The visits where `keep`; rollouts left without visits disappear."""
        left, rollout = renumbered(self.rollout[keep])
        return Visits(
            self.group[keep],
            rollout,
            self.anchor_key[keep],
            self.action_key[keep],
            self.success[left],
            self.boundary[left],
            self.dropped[left],
            self.next_key[left],
            self.continues[left],
            None if self.reward is None else self.reward[keep],
            self.invalid[keep],
        )


def renumbered(ids: Ints) -> tuple[Ints, Ints]:
    """(distinct ids, position of each among them) of non-decreasing ids, int64."""
    new = np.diff(ids, prepend=-1) != 0
    return ids[new], np.cumsum(new) - 1


def distinct(codes: Ints) -> Ints:
    """Sorted distinct values; on integers like these several times faster than np.unique."""
    ordered: Ints = np.sort(codes)
    first: Bools = np.diff(ordered, prepend=-1) != 0
    return ordered[first]


@dataclass(frozen=True)
class Rewards:
    """Immediate rewards of all visits, those that censoring removed included: they were received,
    so the suffix returns of earlier visits hold them.

    Attributes:
      value: float64 (m,).
      rollout: int64 (m,), non-decreasing.
      kept: bool (m,), true for the n visits of the process.
    """

    value: Floats
    rollout: Ints
    kept: Bools

    def suffix_sums(self, discount: float) -> Floats:
        """Σ_{k≥t} β^(k−t) r_k inside each rollout, float64 (n,); backwards one step of all
        rollouts at a time."""
        total = self.value.copy()
        ends = np.flatnonzero(np.diff(self.rollout, append=-1))
        length = np.diff(ends, prepend=-1)
        longest_first = ends[np.argsort(-length, kind="stable")]
        longer = len(ends) - np.cumsum(np.bincount(length))  # rollouts of more than so many visits
        for distance, number in enumerate(longer[1:-1].tolist(), 1):
            here = longest_first[:number] - distance
            total[here] += discount * total[here + 1]
        return total[self.kept]


def _remaining(rollout: Ints) -> Ints:
    """Visits from each visit to the end of its rollout, itself included, int64 (n,)."""
    ends = np.flatnonzero(np.diff(rollout, append=-1))
    return np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(rollout)) + 1


@dataclass(frozen=True)
class EmpiricalProcess:
    """Merged groups: states (anchors of one group) and pairs (state, action) with their visits.

    Attributes:
      state: int64 (n,), state of each visit; dense by first visit, contiguous per group.
      pair: int64 (n,), (state, action) of each visit, dense by first visit.
      successor: int64 (n,), state after each visit, or SUCCESS or FAILURE.
      exit_value: float64 (n,), value of the boundary this visit leads to, 0 if it leads to a state.
      rewards: immediate rewards, or None.
      invalid: bool (n,).
      rollout: int64 (n,), rollout of each visit, non-decreasing.
      rollout_success: bool (r,).
      rollout_boundary: float64 (r,), value realised at the end, 0 for a cut rollout.
      visit_group: int64 (n,).
      groups: number of groups spanned by `visit_group` ids.
    """

    state: Ints
    pair: Ints
    successor: Ints
    exit_value: Floats
    rewards: Rewards | None
    invalid: Bools
    rollout: Ints
    rollout_success: Bools
    rollout_boundary: Floats
    visit_group: Ints
    groups: int

    @cached_property
    def reward(self) -> Floats | None:
        """Immediate reward of each visit, float64 (n,), or None."""
        return None if self.rewards is None else self.rewards.value[self.rewards.kept]

    @cached_property
    def states(self) -> int:
        """Number of states."""
        return int(self.state.max()) + 1 if len(self.state) else 0

    @cached_property
    def pairs(self) -> int:
        """Number of (state, action) pairs."""
        return int(self.pair.max()) + 1 if len(self.pair) else 0

    @cached_property
    def state_visits(self) -> Ints:
        """N(s), int64 (states,)."""
        return np.bincount(self.state, minlength=self.states)

    @cached_property
    def pair_visits(self) -> Ints:
        """N(s,a), int64 (pairs,)."""
        return np.bincount(self.pair, minlength=self.pairs)

    @cached_property
    def pair_state(self) -> Ints:
        """State of each pair, int64 (pairs,)."""
        state = np.empty(self.pairs, np.int64)
        state[self.pair] = self.state
        return state

    @cached_property
    def state_group(self) -> Ints:
        """Group of each state, int64 (states,), non-decreasing."""
        group = np.empty(self.states, np.int64)
        group[self.state] = self.visit_group
        return group

    @cached_property
    def state_actions(self) -> Ints:
        """Distinct actions at each state, int64 (states,)."""
        return np.bincount(self.pair_state, minlength=self.states)

    @cached_property
    def transitions(self) -> tuple[Ints, Ints, Ints]:
        """Observed (pair, successor, count N(s,a,x)), sorted by pair, then successor."""
        width = self.states + 2
        code, count = np.unique(self.pair * width + (self.successor - FAILURE), return_counts=True)
        return code // width, code % width + FAILURE, count

    @cached_property
    def edges(self) -> tuple[Ints, Ints]:
        """Distinct (state, next state), boundaries left out, sorted; each int64 (e,)."""
        inner = self.successor >= 0
        code = distinct(self.state[inner] * self.states + self.successor[inner])
        return code // max(self.states, 1), code % max(self.states, 1)

    @cached_property
    def state_successors(self) -> Ints:
        """Distinct successors of each state, boundaries included, int64 (states,)."""
        pair, successor, _ = self.transitions
        width = self.states + 2
        successors = distinct(self.pair_state[pair] * width + (successor - FAILURE)) // width
        return np.bincount(successors, minlength=self.states)

    def state_mean(self, values: Floats) -> Floats:
        """Mean of per-visit values at each state: float64 (n,) -> (states,)."""
        return np.bincount(self.state, values, self.states) / self.state_visits

    def pair_mean(self, values: Floats) -> Floats:
        """Mean of per-visit values of each pair: float64 (n,) -> (pairs,)."""
        return np.bincount(self.pair, values, self.pairs) / self.pair_visits

    def suffix_returns(self, discount: float) -> Floats:
        """G of each visit: β^(T−t+1)·R, plus discounted immediate rewards if there are any.

        float64 (n,). Source: CRBC, eq. 4.
        """
        returns = discount ** _remaining(self.rollout) * self.rollout_boundary[self.rollout]
        return returns if self.rewards is None else returns + self.rewards.suffix_sums(discount)


def build_process(visits: Visits, dense_ids: DenseIds) -> tuple[EmpiricalProcess, Bools]:
    """Merges visits on equal (group, anchor) and (anchor, action).

    Args:
      visits: sorted visits of any number of groups.
      dense_ids: gives ids to (scope, key) pairs, `crbc_cli.anchors.ids.dense_ids`.
    Returns:
      (process, kept): kept is bool (n,), false for visits that censoring removed; the process
      holds the kept ones in order.
    """
    state = dense_ids(visits.group, visits.anchor_key)
    successor = np.roll(state, -1)
    is_last = np.diff(visits.rollout, append=-1) != 0
    kept = np.ones(len(state), bool)
    if visits.dropped.any():
        kept = _without_dead_ends(state, is_last, is_last & visits.dropped[visits.rollout])
    rewards = None if visits.reward is None else Rewards(visits.reward, visits.rollout, kept)
    if not kept.all():
        # A kept visit still leads to the state it led to, also where the visit there is gone.
        visits, is_last = visits.select(kept), is_last[kept]
        renamed = np.zeros(len(kept), np.int64)
        renamed[state[kept]] = dense_ids(visits.group, visits.anchor_key)
        state, successor = renamed[state[kept]], renamed[successor[kept]]
    pair = dense_ids(state, visits.action_key)
    ending = visits.rollout[is_last]
    successor[is_last] = np.where(visits.success[ending], SUCCESS, FAILURE)
    if visits.continues.any():
        successor[is_last] = _continued(visits, state, is_last, successor[is_last])
    leaves = successor < 0
    exit_value = np.where(leaves, visits.boundary[visits.rollout], 0.0)
    process = EmpiricalProcess(
        state,
        pair,
        successor,
        exit_value,
        rewards,
        visits.invalid,
        visits.rollout,
        visits.success,
        visits.boundary,
        visits.group,
        int(visits.group[-1]) + 1 if len(visits.group) else 0,
    )
    return process, kept


def _continued(visits: Visits, state: Ints, is_last: Bools, successor: Ints) -> Ints:
    """Last transitions of continuing rollouts lead to their next anchor where it is visited."""
    ending = visits.rollout[is_last]
    scope = np.concatenate([visits.group, visits.group[is_last]])
    key = np.concatenate([visits.anchor_key, visits.next_key[ending]])
    order = np.lexsort((np.arange(len(key)), key, scope))
    new = (np.diff(scope[order], prepend=-1) != 0) | (
        np.diff(key[order].view(np.int64), prepend=0) != 0
    )
    new[:1] = True
    first = order[np.flatnonzero(new)[np.cumsum(new) - 1]]
    first_of = np.empty(len(order), np.int64)
    first_of[order] = first
    match = first_of[len(state) :]
    known = match < len(state)
    follows = visits.continues[ending] & known
    return np.where(follows, state[np.where(known, match, 0)], successor)


def _without_dead_ends(state: Ints, is_last: Bools, dropped: Bools) -> Bools:
    """Which visits stay when dropped transitions leave states without a way on.

    A visit is one observed transition. The `dropped` ones go first; a state whose transitions are
    all gone takes the transitions into it with it, and so on.
    """
    kept: Bools = ~dropped
    size = int(state.max()) + 1
    into = Buckets(np.where(is_last, -1, np.roll(state, -1)), size)
    left = np.bincount(state[kept], minlength=size)
    dead = np.flatnonzero(left == 0)
    while len(dead):
        gone = into.of(dead)
        gone = gone[kept[gone]]
        kept[gone] = False
        emptied, number = np.unique(state[gone], return_counts=True)
        left[emptied] -= number
        dead = emptied[left[emptied] == 0]
    return kept
