"""What every estimator is given: the merged groups, and what the rivals of CRBC read besides."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.empirical import DenseIds, EmpiricalProcess, Rewards

__all__ = ["Evidence", "terminal_states"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

_SLOTS = 1 << 20


@dataclass(frozen=True)
class Evidence:
    """The merged groups, and what the rivals read besides them.

    The process has n visits, r rollouts and s states; rewards are on the scale on which a success
    is worth `success_reward`.

    Attributes:
      process: merged groups.
      rewards: environment reward of each visit (with those that censoring removed).
      episode_reward: float64 (r,), reward of each rollout before penalties, as A_G uses it.
      success_reward: what a success is worth.
      step_penalty: taken off the step signal of invalid visits, each method in its own way.
      terminal_state: int64 (r,), where a rollout that fails was when it ended: a state, an id from
        s on for an observation no visit shows (shared by equal observations), or -1 if it was not
        logged. See `terminal_states`.
      anchor_texts: text of each state, (s,); only methods that merge similar anchors need it.
    """

    process: EmpiricalProcess
    rewards: Rewards
    episode_reward: Floats
    success_reward: float
    step_penalty: float
    terminal_state: Ints
    anchor_texts: Sequence[str] | None = None

    @classmethod
    def from_outcomes(
        cls,
        process: EmpiricalProcess,
        *,
        success_reward: float = 1.0,
        step_penalty: float = 0.0,
        terminal_state: Ints | None = None,
        anchor_texts: Sequence[str] | None = None,
    ) -> "Evidence":
        """Evidence of a log whose only reward is `success_reward` on the last row of a success."""
        reward: Floats = success_reward * process.rollout_success.astype(np.float64)
        last = np.diff(process.rollout, append=-1) != 0
        value = np.where(last, reward[process.rollout], 0.0)
        nowhere = np.full(len(reward), -1, np.int64)
        return cls(
            process,
            Rewards(value, process.rollout, np.ones(len(value), bool)),
            reward,
            success_reward,
            step_penalty,
            nowhere if terminal_state is None else terminal_state,
            anchor_texts,
        )

    @cached_property
    def last(self) -> Ints:
        """Last visit of each rollout, int64 (r,)."""
        return np.flatnonzero(np.diff(self.process.rollout, append=-1))

    @cached_property
    def first(self) -> Ints:
        """First visit of each rollout, int64 (r,)."""
        return np.flatnonzero(np.diff(self.process.rollout, prepend=-1))

    @cached_property
    def rollout_group(self) -> Ints:
        """Group of each rollout, int64 (r,)."""
        return self.process.visit_group[self.last]

    @cached_property
    def to_end(self) -> Ints:
        """Visits after each visit in its rollout, T − t, int64 (n,)."""
        return self.last[self.process.rollout] - np.arange(len(self.process.rollout))

    def final_returns(self, gamma: float) -> Floats:
        """γ^(T−t)·R of each visit, R the rollout's reward; float64 (n,)."""
        powers = gamma ** np.arange(int(self.to_end.max(initial=0)) + 1)
        return powers[self.to_end] * self.episode_reward[self.process.rollout]

    def step_returns(self, gamma: float, penalty: float | None) -> Floats:
        """R_t = Σ_{k≥t} γ^(k−t) r_k less the invalid visit's own penalty, float64 (n,).

        Source: GiGPO (arXiv 2505.10978), eq. 5 and `gigpo/core_gigpo.py`; the penalty comes after
        discounting and is not carried back.
        """
        return self.rewards.suffix_sums(gamma) - self.penalties(penalty)

    def penalties(self, penalty: float | None) -> Floats:
        """Penalty of each visit, float64 (n,): `penalty`, or the run's if it is None."""
        size = self.step_penalty if penalty is None else penalty
        return size * self.process.invalid.astype(np.float64)


def terminal_states(
    process: EmpiricalProcess, anchor_key: Words, next_key: Words, known: Bools, ids: DenseIds
) -> Ints:
    """Where each rollout was after its last action, as `Evidence.terminal_state`.

    Args:
      process: merged groups.
      anchor_key: (n,), content key of each visit's anchor.
      next_key: (r,), content key of the observation after each rollout's last action.
      known: bool (r,), that observation was logged.
      ids: `crbc_cli.anchors.ids.dense_ids`.
    Returns:
      int64 (r,): the state of the rollout's group with this key, else an id from the number of
      states on, equal for equal keys of one group; -1 where `known` is false.
    """
    key = np.empty(process.states, np.uint64)
    key[process.state] = anchor_key
    ends = np.flatnonzero(np.diff(process.rollout, append=-1))
    group = process.visit_group[ends]
    # Few states can be meant: those in whose slot some key of their group is asked for.
    asked = np.zeros(_SLOTS, bool)
    asked[_slot(group, next_key)] = True
    candidates = np.flatnonzero(asked[_slot(process.state_group, key)])
    scope = np.concatenate([process.state_group[candidates], group])
    found = ids(scope, np.concatenate([key[candidates], next_key]))[len(candidates) :]
    unvisited = found - len(candidates) + process.states
    node = np.concatenate([candidates, [-1]])[np.minimum(found, len(candidates))]
    return np.where(known, np.where(node < 0, unvisited, node), -1)


def _slot(group: Ints, key: Words) -> Ints:
    """A number below _SLOTS that depends on both, int64."""
    mixed = key + group.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed % np.uint64(_SLOTS)).astype(np.int64)
