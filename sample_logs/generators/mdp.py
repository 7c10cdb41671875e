"""Enumerated Markov decision processes with deterministic transitions, and their exact values.

An environment whose states can all be listed is an `EnumeratedMdp`: states, goal flags and one
entry per state-action pair. Under a known behaviour policy π its values follow by dynamic
programming. The reward is 0 on every step and the boundary SUCCESS is worth 1, so with discount β

    Q(s, a) = β · V(s′)          V(s) = Σ_a π(a|s) · Q(s, a)          V(goal) = 1

and a success that is n actions away is worth βⁿ. Two families are computed:

* timed: a rollout that has not succeeded after `step_limit` actions is a failure, so V depends on
  the step;
* untimed: the same policy without a limit, V = the fixed point.

Needs numpy and scipy only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

DISCOUNT = 0.98


@dataclass(frozen=True)
class EnumeratedMdp:
    """All states reachable from state 0 and all their state-action pairs.

    Attributes:
      states: text of every true state, shape (n_states,); state 0 is the start.
      is_goal: bool, shape (n_states,); goal states have no pairs.
      pair_source: state of each pair, ascending, shape (n_pairs,).
      pair_successor: next state of each pair, shape (n_pairs,).
      pair_action: action text of each pair, shape (n_pairs,).
    """

    states: Sequence[str]
    is_goal: BoolArray
    pair_source: IntArray
    pair_successor: IntArray
    pair_action: Sequence[str]

    def __post_init__(self) -> None:
        if np.any(np.diff(self.pair_source) < 0):
            raise ValueError("pairs must be sorted by their source state")
        if np.any(self.is_goal[self.pair_source]):
            raise ValueError("a goal state must have no pairs")

    @cached_property
    def first_pair(self) -> IntArray:
        """Pairs of state s are first_pair[s] : first_pair[s + 1]; shape (n_states + 1,)."""
        return np.searchsorted(self.pair_source, np.arange(len(self.states) + 1)).astype(np.int64)

    def transition_matrix(self, policy: FloatArray) -> sp.csr_array:
        """State-to-state probabilities under `policy`; rows of goal states are empty."""
        size = len(self.states)
        return sp.csr_array((policy, self.pair_successor, self.first_pair), shape=(size, size))

    def distance_to_goal(self) -> FloatArray:
        """Fewest actions to a goal state, inf where none can be reached; shape (n_states,)."""
        distance = np.where(self.is_goal, 0.0, np.inf)
        while True:
            shorter = distance.copy()
            np.minimum.at(shorter, self.pair_source, distance[self.pair_successor] + 1)
            if np.array_equal(shorter, distance):
                return distance
            distance = shorter

    def progress(self) -> FloatArray:
        """Change of the distance to the goal per pair, in [-1, 1]; shape (n_pairs,).

        +1 comes one action closer, -1 moves away or loses the goal for good, 0 keeps the distance
        or acts where the goal is lost already.
        """
        distance = self.distance_to_goal()
        before, after = distance[self.pair_source], distance[self.pair_successor]
        change = np.full(len(before), -1.0)
        reachable = np.isfinite(after)
        change[reachable] = np.clip(before[reachable] - after[reachable], -1.0, 1.0)
        change[np.isinf(before)] = 0.0
        return change


def softmax_policy(mdp: EnumeratedMdp, logits: FloatArray) -> FloatArray:
    """Behaviour probabilities π(a|s) of every pair from its logit; both of shape (n_pairs,)."""
    highest = np.full(len(mdp.states), -np.inf)
    np.maximum.at(highest, mdp.pair_source, logits)
    weight = np.exp(logits - highest[mdp.pair_source])
    total = np.bincount(mdp.pair_source, weight, len(mdp.states))
    return np.asarray(weight / total[mdp.pair_source], dtype=np.float64)


def timed_values(
    mdp: EnumeratedMdp, policy: FloatArray, step_limit: int, discount: float = DISCOUNT
) -> FloatArray:
    """V at every step under a step limit; shape (step_limit + 1, n_states).

    Row t holds V before step t; in the last row only goal states have value 1.
    """
    goal = mdp.is_goal.astype(np.float64)
    backup = discount * mdp.transition_matrix(policy)
    values = np.empty((step_limit + 1, len(goal)))
    values[step_limit] = goal
    for step in range(step_limit - 1, -1, -1):
        values[step] = goal + backup @ values[step + 1]
    return values


def untimed_values(
    mdp: EnumeratedMdp, policy: FloatArray, discount: float = DISCOUNT, tolerance: float = 1e-12
) -> FloatArray:
    """V without a step limit, by value iteration; shape (n_states,).

    The backup is a contraction with factor β < 1, so the error is at most β/(1-β) times the last
    change; iteration stops when that bound is below `tolerance`.
    """
    goal = mdp.is_goal.astype(np.float64)
    backup = discount * mdp.transition_matrix(policy)
    largest_change = tolerance * (1.0 - discount) / discount
    values = goal
    while True:
        improved = goal + backup @ values
        if np.max(np.abs(improved - values)) <= largest_change:
            return np.asarray(improved, dtype=np.float64)
        values = improved


def success_probability(mdp: EnumeratedMdp, policy: FloatArray, step_limit: int) -> float:
    """Probability that a rollout from state 0 reaches a goal within `step_limit` actions."""
    goal = mdp.is_goal.astype(np.float64)
    transition = mdp.transition_matrix(policy)
    reached = goal
    for _ in range(step_limit):
        reached = goal + transition @ reached
    return float(reached[0])


def calibrated_policy(
    mdp: EnumeratedMdp,
    logits_at: Callable[[float], FloatArray],
    target: float,
    step_limit: int,
    strength_range: tuple[float, float],
) -> FloatArray:
    """The softmax policy at `calibrated_strength`; behaviour probabilities, shape (n_pairs,)."""
    strength = calibrated_strength(mdp, logits_at, target, step_limit, strength_range)
    return softmax_policy(mdp, logits_at(strength))


def calibrated_strength(
    mdp: EnumeratedMdp,
    logits_at: Callable[[float], FloatArray],
    target: float,
    step_limit: int,
    strength_range: tuple[float, float],
    halvings: int = 14,
) -> float:
    """The strength whose success probability comes closest to `target`, by bisection.

    Args:
      mdp: the process.
      logits_at: logits of all pairs at a given strength; more strength must mean more success.
      target: wanted success probability within `step_limit` actions.
      step_limit: most actions of a rollout.
      strength_range: lowest and highest strength tried; the nearer end is taken if the target lies
        outside.
      halvings: number of bisection rounds.
    """
    low, high = strength_range
    for _ in range(halvings):
        middle = (low + high) / 2
        policy = softmax_policy(mdp, logits_at(middle))
        if success_probability(mdp, policy, step_limit) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def sample_rollout(
    mdp: EnumeratedMdp, policy: FloatArray, step_limit: int, rng: np.random.Generator
) -> list[int]:
    """Indices of the pairs taken by one rollout from state 0, at most `step_limit` of them."""
    taken: list[int] = []
    state = 0
    while len(taken) < step_limit and not mdp.is_goal[state]:
        first, end = int(mdp.first_pair[state]), int(mdp.first_pair[state + 1])
        cumulative = np.cumsum(policy[first:end])
        choice = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        pair = min(first + choice, end - 1)
        taken.append(pair)
        state = int(mdp.pair_successor[pair])
    return taken
