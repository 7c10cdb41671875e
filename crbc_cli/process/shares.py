"""Which visits a value is made of.

Every value is linear in what the visits earned. With W the visits' weights, for each number x

    x = Σ_v backed(v)·(r(v) + β·worth(v)) + Σ_v returned(v)·G(v)

where worth(v) is the value of the boundary that v leads to (0 if it leads to an anchor), r(v) its
immediate reward and G(v) its own suffix return. For V^(K)(s), backed(v) is n(u)/N(u), u the anchor
of v and n(u) the expected discounted number of visits to u in the first K steps from s,
Σ_{k<K} e_s (βM)^k; at full closure that is row s of the fundamental matrix (I − βM)⁻¹. The visits
of the anchors that are reached in step K count with their returns, e_s (βM)^K, since V⁰ is the mean
of G. Q^(K)(s,a) is one backup of V^(K−1), and Q^(0) is the mean of G over its visits.
Source: CRBC (arXiv 2609.35082), eqs. 6-10; fundamental matrix: Kemeny and Snell, Finite Markov
Chains, 1960, chapter 3.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.closure import closed_states, solve_sparse
from crbc_cli.process.empirical import EmpiricalProcess

__all__ = ["Uses", "action_uses", "sized_shares", "state_uses"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_NOTHING = 1e-18


@dataclass(frozen=True)
class Uses:
    """How often a number uses each visit, discounted.

    Attributes:
      backed: float64 (n,), as a transition that is backed up.
      returned: float64 (n,), with its own suffix return (finite depths only).
    """

    backed: Floats
    returned: Floats

    def earned(self, process: EmpiricalProcess, discount: float) -> tuple[Floats, Floats]:
        """What each visit adds to the number, as transition and with its return; each (n,)."""
        worth = discount * process.exit_value
        if process.reward is not None:
            worth = worth + process.reward
        if not self.returned.any():
            return self.backed * worth, np.zeros(len(worth))
        return self.backed * worth, self.returned * process.suffix_returns(discount)


def state_uses(process: EmpiricalProcess, state: int, discount: float, depth: float) -> Uses:
    """Uses of each visit by V^(K) of a state."""
    start = np.zeros(process.states)
    start[state] = 1.0
    return _spread(process, np.zeros(len(process.state)), start, discount, depth)


def action_uses(process: EmpiricalProcess, pair: int, discount: float, depth: float) -> Uses:
    """Uses of each visit by Q^(K) of a pair."""
    own = np.where(process.pair == pair, 1.0 / process.pair_visits[pair], 0.0)
    if depth == 0:
        return Uses(np.zeros(len(own)), own)
    return _spread(process, own, _next(process, own, discount), discount, depth - 1)


def sized_shares(contribution: Floats, weight: Floats) -> Floats:
    """Shares of the sizes of contributions; of `weight` where nothing contributes. They sum to 1.

    Both float64 (k,), `weight` not negative and not all 0.
    """
    size = np.abs(contribution)
    size = size if size.any() else weight
    shares: Floats = size / size.sum()
    return shares


def _spread(
    process: EmpiricalProcess, backed: Floats, start: Floats, discount: float, depth: float
) -> Uses:
    """Uses by Σ_s start(s)·V^(K)(s), with `backed` added to the transitions'."""
    per_visit = 1.0 / process.state_visits
    if depth == math.inf:
        expected = _expected_visits(process, start, discount)
        return Uses(backed + (expected * per_visit)[process.state], np.zeros(len(backed)))
    for _ in range(int(depth)):
        if not start.max(initial=0.0) > _NOTHING:
            break
        here = (start * per_visit)[process.state]
        backed, start = backed + here, _next(process, here, discount)
    return Uses(backed, (start * per_visit)[process.state])


def _next(process: EmpiricalProcess, weight: Floats, discount: float) -> Floats:
    """Weights of visits, one step on at the anchors they led to: (n,) -> (states,)."""
    inner = process.successor >= 0
    moved = np.bincount(process.successor[inner], weight[inner], process.states)
    return np.multiply(discount, moved, dtype=np.float64)


def _expected_visits(process: EmpiricalProcess, start: Floats, discount: float) -> Floats:
    """start·(I − βM)⁻¹, float64 (states,): expected discounted visits to each state.

    States that no boundary can be reached from are left out at β = 1, where they are visited
    without end and worth 0.
    """
    kept = ~closed_states(process) if discount == 1 else np.ones(process.states, bool)
    expected = np.zeros(process.states)
    place = np.cumsum(kept) - 1
    linked = (process.successor >= 0) & kept[process.state]
    linked[linked] = kept[process.successor[linked]]
    source, target = process.state[linked], process.successor[linked]
    weight = discount / process.state_visits[source]
    if kept.any():
        expected[kept] = solve_sparse(place[target], place[source], weight, start[kept])
    return expected
