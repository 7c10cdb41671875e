"""State and action values at any closure depth (CRBC, eqs. 6-10).

The exact solve. An anchor that was always left for one and the same place is an affine function of
that place's value, V(s) = b(s) + c(s)·V(d(s)); following such chains by pointer doubling leaves a
linear system in the branching anchors only, about one in eight on agent logs. What is left of a
group is dense and small and is solved with others of its size in one LAPACK call; a group with many
branching anchors is solved alone, by sparse LU or, where its factors could fill up, by iteration.
No group's arithmetic touches another's.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crbc_cli.errors import ClosureError
from crbc_cli.process.buckets import Buckets
from crbc_cli.process.empirical import EmpiricalProcess, renumbered

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = [
    "Values",
    "closed_states",
    "exact_values",
    "local_values",
    "solve_sparse",
    "solve_values",
    "sweep",
    "swept",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_RESIDUAL = 1e-9
# From 100 unknowns on OpenBLAS solves with as many threads as there are cores, and bits follow.
_DENSE_LIMIT = 96
_DENSE_BATCH = 1 << 21
# Random transitions between n anchors fill the factors with about n² numbers in n³ time.
_LU_LIMIT = 2_000
_MOST_SWEEPS = 20_000


@dataclass(frozen=True)
class Values:
    """V and Q of one depth.

    Attributes:
      state: float64 (states,), V^(K).
      pair: float64 (pairs,), Q^(K).
    """

    state: Floats
    pair: Floats

    def credit(self, process: EmpiricalProcess) -> Floats:
        """Q − V per pair, float64 (pairs,); sums to 0 over the visits of each state.

        A lone action's credit is exactly 0, and differences that are rounding (relative size
        below 1e-13) are written as 0, so that "no credit" can be tested by equality.
        Source: CRBC, section 4.2.
        """
        value = self.state[process.pair_state]
        credit = self.pair - value
        size = np.maximum(np.abs(value), np.abs(self.pair))
        flat = (np.abs(credit) <= 1e-13 * size) | (process.state_actions[process.pair_state] == 1)
        return np.where(flat, 0.0, credit)


def solve_values(process: EmpiricalProcess, discount: float, depth: float) -> Values:
    """V^(K) = 𝓣^K V₀ and Q^(K) = 𝓑V^(K−1), Q^(0) = Q₀; at K = inf the fixed point.

    Args:
      process: merged groups.
      discount: β in [0, 1].
      depth: whole number K ≥ 0, or math.inf.
    Raises:
      ClosureError: see `exact_values`.
    Source: CRBC, eqs. 6-10.
    """
    if depth == math.inf:
        state, backed_up = _fixed_point(process, discount)
        return Values(state, process.pair_mean(backed_up))
    return swept(process, local_values(process, discount), discount, int(depth))


def local_values(process: EmpiricalProcess, discount: float) -> Values:
    """Depth 0: mean suffix return over the visits of each state and of each pair (eq. 6)."""
    returns = process.suffix_returns(discount)
    return Values(process.state_mean(returns), process.pair_mean(returns))


def sweep(process: EmpiricalProcess, values: Values, discount: float) -> Values:
    """One more Bellman backup: (𝓣V, 𝓑V) of depth K from V of depth K − 1 (eq. 10)."""
    backed_up = _backup(process, values.state, discount)
    return Values(process.state_mean(backed_up), process.pair_mean(backed_up))


def swept(process: EmpiricalProcess, values: Values, discount: float, times: int) -> Values:
    """That many backups, or fewer where one changes no bit of V: no further one does then."""
    for _ in range(times):
        before, values = values.state, sweep(process, values, discount)
        if np.array_equal(before, values.state):
            break
    return values


def _backup(process: EmpiricalProcess, state: Floats, discount: float) -> Floats:
    """r + β·V(successor) of each visit, float64 (n,)."""
    following = np.append(state, [0.0, 0.0])[process.successor]
    backed_up = discount * (following + process.exit_value)
    return backed_up if process.reward is None else process.reward + backed_up


def exact_values(process: EmpiricalProcess, discount: float) -> Floats:
    """State values of the behaviour policy at the Bellman fixed point.

    V = βMV + b with M[s, s'] = N(s, ·, s')/N(s) and b[s] = β·N(s, ·, z⁺)/N(s), solved as
    (I − βM)V = b. I − βM is non-singular for 0 ≤ β < 1, and at β = 1 when every rollout ends in a
    boundary. A closed class without exit (bootstrapped ends) has value 0, the limit β → 1.

    Args:
      process: merged groups.
      discount: β in [0, 1].
    Returns:
      float64, shape (states,), in [0, β] for 0/1 outcomes.
    Raises:
      ClosureError: ‖βMV + b − V‖∞ exceeds 1e-9 (times the largest value, if above 1), or a closed
        class collects rewards at β = 1.
    Source: CRBC (arXiv 2609.35082), eqs. 8-9.
    """
    return _fixed_point(process, discount)[0]


def _fixed_point(process: EmpiricalProcess, discount: float) -> tuple[Floats, Floats]:
    """(V of each state, r + β·V(successor) of each visit); see `exact_values`."""
    if not process.states:
        return np.empty(0), np.empty(0)
    constant = discount * process.exit_value
    if process.reward is not None:
        constant = constant + process.reward
    b = process.state_mean(constant)
    chain = _contract(process, b, discount)
    values = chain.values(_solve_branching(process, chain, b, discount))
    backed_up = _backup(process, values, discount)
    residual = np.abs(process.state_mean(backed_up) - values)
    worst = int(np.argmax(residual))
    scale = max(1.0, float(np.abs(values).max()))
    if not residual[worst] <= _RESIDUAL * scale:
        raise ClosureError(
            f"linear solve of the closure left a residual of {residual[worst]:.1e}",
            f"group number {int(process.state_group[worst])}",
            "please report this log; --depth with a whole number avoids the solve",
        )
    return values, backed_up


@dataclass(frozen=True)
class _Chain:
    """V(s) = add(s) + factor(s)·U(root(s)), each (states,); U is V at branching states, else 0."""

    root: Ints
    add: Floats
    factor: Floats
    branching: Bools

    def values(self, at_branching: Floats) -> Floats:
        return self.add + self.factor * at_branching[self.root]


def _contract(process: EmpiricalProcess, b: Floats, discount: float) -> _Chain:
    """Resolves single-destination states by pointer doubling."""
    states = np.arange(process.states)
    leaves = process.successor < 0
    destination = np.where(leaves, -1, process.successor)
    only = np.empty(process.states, np.int64)
    only[process.state[::-1]] = destination[::-1]
    several = np.zeros(process.states, bool)
    several[process.state[destination != only[process.state]]] = True
    known = ~several & (only == -1)
    closed = closed_states(process)
    if process.reward is not None and discount < 1:
        several |= closed
    elif closed.any():
        _refuse_rewards(process, closed)
        known, several = known | closed, several & ~closed
    chained = ~several & ~known
    root = np.where(chained, only, states)
    factor = np.where(chained, discount, 1.0)
    add = np.where(chained, b, 0.0)
    while not np.array_equal(further := root[root], root):
        add = add + factor * add[root]
        factor = factor * factor[root]
        root = further
    at_known = np.where(known, b, 0.0)
    return _Chain(root, add + factor * at_known[root], factor, several)


def _refuse_rewards(process: EmpiricalProcess, closed: Bools) -> None:
    """Raises ClosureError where a closed class collects rewards that nothing discounts."""
    if process.reward is None:
        return
    endless = closed[process.state] & (process.reward != 0)
    if endless.any():
        raise ClosureError(
            "rewards in a cycle without exit have no finite value at discount 1",
            f"group number {int(process.visit_group[endless][0])}",
            "use a discount below 1",
        )


def closed_states(process: EmpiricalProcess) -> Bools:
    """States from which no boundary can be reached, bool (states,); only continued rollouts can
    make any."""
    closed = np.ones(process.states, bool)
    last = np.diff(process.rollout, append=-1) != 0
    if not (process.successor[last] >= 0).any():
        return ~closed
    source, target = process.edges
    into = Buckets(target, process.states)
    found = np.unique(process.state[process.successor < 0])
    while len(found):
        closed[found] = False
        before = source[into.of(found)]
        found = np.unique(before[closed[before]])
    return closed


def _solve_branching(
    process: EmpiricalProcess, chain: _Chain, b: Floats, discount: float
) -> Floats:
    """Values of branching states, float64 (states,), 0 elsewhere.

    Row s of a group's system: V(s) − β Σ_x M[s,x]·factor(x)·V(root(x)) = b(s) + β Σ_x M·add(x).
    """
    values = np.zeros(process.states)
    branching = np.flatnonzero(chain.branching)
    if not len(branching):
        return values
    _, group = renumbered(process.state_group[branching])
    size = np.bincount(group)
    first = np.cumsum(size) - size
    local = np.full(process.states, -1)
    local[branching] = np.arange(len(branching)) - first[group]
    block = np.full(process.states, -1)
    block[branching] = group

    inner = (process.successor >= 0) & chain.branching[process.state]
    row, column = process.state[inner], process.successor[inner]
    weight = discount / process.state_visits[row]
    right = b + np.bincount(row, weight * chain.add[column], process.states)
    weight, target = weight * chain.factor[column], chain.root[column]
    linked = chain.branching[target] & (weight != 0)
    row, target, weight = row[linked], target[linked], weight[linked]
    entry_block = block[row]

    cell = local[row] * size[entry_block] + local[target]
    for part in _dense_batches(size):
        squares = size[part] ** 2
        start = np.full(len(size), -1)
        start[part] = np.cumsum(squares) - squares
        mine = start[entry_block] >= 0
        flat = -np.bincount(start[entry_block[mine]] + cell[mine], weight[mine], squares.sum())
        for width in np.flatnonzero(np.bincount(size[part])):
            members = part[size[part] == width]
            begin = start[members[0]]
            matrix: Floats = flat[begin : begin + len(members) * width * width].astype(np.float64)
            matrix = matrix.reshape(len(members), width, width)
            matrix[:, np.arange(width), np.arange(width)] += 1.0
            where = branching[first[members][:, None] + np.arange(width)]
            values[where] = np.linalg.solve(matrix, right[where][..., None])[..., 0]
    for number in np.flatnonzero(size > _DENSE_LIMIT):
        mine = entry_block == number
        where = branching[first[number] : first[number] + size[number]]
        values[where] = solve_sparse(
            local[row[mine]], local[target[mine]], weight[mine], right[where]
        )
    return values


def _dense_batches(size: Ints) -> list[Ints]:
    """Groups to solve densely, by size, as many at a time as their matrices leave room for."""
    dense = np.flatnonzero(size <= _DENSE_LIMIT)
    dense = dense[np.argsort(size[dense], kind="stable")]
    batch = np.cumsum(size[dense] ** 2) // _DENSE_BATCH
    return [part for part in np.split(dense, np.flatnonzero(np.diff(batch)) + 1) if len(part)]


def solve_sparse(row: Ints, column: Ints, weight: Floats, right: Floats) -> Floats:
    """x = Wx + right of one large group, by sparse LU (SuperLU, sequential) or by iteration.

    Args:
      row, column, weight: entries of W, which are added up; rows or columns sum to at most β.
      right: float64 (n,).
    Returns:
      float64 (n,).
    """
    from scipy.sparse import coo_matrix, identity
    from scipy.sparse.linalg import splu

    n = len(right)
    weights = coo_matrix((weight, (row, column)), (n, n)).tocsr()
    if n > _LU_LIMIT:
        iterated = _iterated(weights, right)
        if iterated is not None:
            return iterated
    solution: Floats = splu((identity(n, format="csr") - weights).tocsc()).solve(right)
    return solution


def _iterated(weights: "csr_matrix[np.float64]", right: Floats) -> Floats | None:
    """x ← Wx + right until no step is larger than rounding; None where that takes too long.

    What is left after a step of size δ is at most δ·β/(1 − β).
    """
    x = right
    for _ in range(_MOST_SWEEPS):
        following: Floats = weights @ x + right
        step = float(np.abs(following - x).max())
        x = following
        if step <= 4e-16 * float(np.abs(x).max()):
            return x
    return None
