"""Exact facts about the package's values and credit on random groups.

Equation numbers are those of CRBC (arXiv 2609.35082). The operators M, P, b come from the oracle,
which counts them visit by visit; values, sweeps, solve and credit are the package's own.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import oracle
import pytest
from helpers import INF, Rows, process_of
from numpy.typing import NDArray
from oracle import GroupMatrices
from strategies import TEXTS, build_log, seeded

from crbc_cli.methods.crbc import crbc, gate, sigma
from crbc_cli.options import CreditOptions
from crbc_cli.process.closure import exact_values, local_values, solve_values, sweep
from crbc_cli.process.coverage import coverage_by_depth, reachable_rollouts
from crbc_cli.process.empirical import EmpiricalProcess

SEEDS = range(16)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """One random group: the oracle's operators, and the package's values at some discount."""

    rows: Rows
    matrices: GroupMatrices
    process: EmpiricalProcess
    discount: float

    def at(self, depth: float) -> tuple[Floats, Floats]:
        values = solve_values(self.process, self.discount, depth)
        return values.state, values.pair

    def credit(self, depth: float) -> Floats:
        return solve_values(self.process, self.discount, depth).credit(self.process)


@functools.cache
def random_group(seed: int, discount: float) -> Group:
    """Up to six rollouts of one group, without duplicates."""
    rows = build_log(seeded(seed), groups=1, kinds=(TEXTS,), duplicates=False).rows
    [matrices] = oracle.group_matrices(rows, discount=discount, unscored="fail")
    return Group(rows, matrices, process_of(rows, unscored="fail"), discount)


@pytest.fixture(params=SEEDS)
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[0.5, 0.98])
def group(request: pytest.FixtureRequest, seed: int) -> Group:
    return random_group(seed, request.param)


def close(left: Any, right: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(left, right, atol=tolerance, rtol=0)


def test_values_solve_the_closure_and_average_to_it(group: Group) -> None:
    """Eqs. 6-9, with the residual of the solve checked against the oracle's operators."""
    m = group.matrices
    values, action_values = group.at(INF)
    close(m.T(values), values)
    close(m.B(values), action_values)
    close(m.average(action_values), values)
    close(values, m.V)
    local, local_action = group.at(0)
    close(local, m.V0)
    close(local_action, m.Q0)
    close(m.average(local_action), local)


def test_credit_sums_to_zero_over_the_visits_of_an_anchor(group: Group) -> None:
    for depth in (0, 1, 2, 3, INF):
        per_visit = group.credit(depth)[group.process.pair]
        close(np.bincount(group.process.state, per_visit), 0)


def test_distance_between_depths(group: Group) -> None:
    """d = (I − βM)⁻¹ dbar and eqs. 12, 22, 23."""
    m, beta = group.matrices, group.discount
    values, action_values = group.at(INF)
    local, _ = group.at(0)
    d, d_bar = values - local, m.T(local) - local
    close((np.eye(len(d)) - beta * m.M) @ d, d_bar)
    credit = action_values - values[m.state_of]
    for depth in range(6):
        v, q = group.at(depth)
        close(values - v, np.linalg.matrix_power(beta * m.M, depth) @ d)
        if depth:
            before = np.linalg.matrix_power(beta * m.M, depth - 1)
            close(action_values - q, beta * m.P @ before @ d)
            bound = 2 * beta**depth / (1 - beta) * np.abs(d_bar).max()
            assert np.abs(credit - (q - v[m.state_of])).max() <= bound + 1e-12


def test_what_the_first_backup_changes(group: Group) -> None:
    """Eqs. 21 and 24: delta is how much a successor's mean differs from the mean on arrival."""
    m, beta = group.matrices, group.discount
    local, local_action = group.at(0)
    delta = m.B(local) - local_action
    d = group.at(INF)[0] - local
    close(group.at(INF)[1] - local_action, delta + beta * m.P @ d)
    difference = group.credit(INF) - group.credit(0)
    close(difference, delta + beta * m.P @ d - d[m.state_of])
    for pair, state in itertools.product(range(len(m.pairs)), range(len(m.states))):
        arrived = m.arrival_value(pair, state)
        assert (arrived is None) == (m.P[pair, state] == 0)
    arrival = np.array(
        [[m.arrival_value(p, x) or 0.0 for x in range(len(m.states))] for p in range(len(m.pairs))]
    )
    close(delta, beta * (m.P * (local - arrival)).sum(axis=1))


def test_a_small_step_along_the_closure_credit_improves(group: Group) -> None:
    """Eq. 11 with C = A at full closure: re-solving under ν = μ + αμwC gives the predicted gain."""
    m, beta = group.matrices, group.discount
    credit, values = group.credit(INF), group.at(INF)[0]
    weights, alpha = np.linspace(0.2, 1, len(m.states)), 0.3
    policy = m.mu * (1 + alpha * weights[m.state_of] * credit)
    assert (policy >= 0).all()
    close(m.average(np.ones(len(policy)), policy), 1)
    spread = sigma(group.process, credit)
    close(spread**2, m.average(credit**2))
    matrix = np.eye(len(values)) - beta * m.transitions_under(policy)
    gain = alpha * np.linalg.solve(matrix, weights * spread**2)
    under = m.solve_under(policy)
    close(under - values, gain)
    assert (under >= values - 1e-12).all()


@pytest.mark.parametrize("depth", [0, 1, INF])
@pytest.mark.parametrize("floor", [0.1, 1e-9])
def test_size_of_step_credit(group: Group, depth: float, floor: float) -> None:
    """Visit mean of A_S² = min(1, (σ/σ_min)²), and |A_S| ≤ sqrt((N(s) − N(s,a))/N(s,a))."""
    process = group.process
    step = crbc(process, CreditOptions(depth=depth, discount=group.discount, floor=floor))
    mean_square = process.state_mean(step.step_credit**2)
    spread = sigma(process, group.credit(depth))
    open_gate = gate(process, "actions")
    close(mean_square[open_gate], np.minimum(1, spread / floor)[open_gate] ** 2, 1e-9)
    close(mean_square[~open_gate], 0, 0)
    alike = process.pair_visits[process.pair]
    bound = np.sqrt((process.state_visits[process.state] - alike) / alike)
    assert (np.abs(step.step_credit) <= bound + 1e-9).all()


def test_sweeps_converge_to_the_closure(group: Group) -> None:
    """Proposition 1: each sweep contracts by β in the sup norm, from any depth."""
    exact = exact_values(group.process, group.discount)
    values = local_values(group.process, group.discount)
    distance = np.abs(values.state - exact).max()
    for _ in range(60 if group.discount < 0.9 else 40):
        values = sweep(group.process, values, group.discount)
        now = np.abs(values.state - exact).max()
        assert now <= group.discount * distance + 1e-14
        distance = now
    if group.discount < 0.9:  # 0.5 to the 60th
        close(values.state, exact, 1e-15)
        close(values.pair, group.at(INF)[1], 1e-15)


def test_values_are_discounted_probabilities(group: Group) -> None:
    for depth in (0, 1, INF):
        for values in group.at(depth):
            assert (values >= 0).all()
            assert (values <= group.discount).all()
    undiscounted = exact_values(group.process, 1.0)
    assert (undiscounted >= exact_values(group.process, group.discount) - 1e-15).all()
    assert (undiscounted <= 1 + 1e-12).all()


def test_local_credit_is_a_difference_of_returns(seed: int) -> None:
    """A at K = 0 is the mean return of (s, a) less that of s, with returns
    computed backwards along each rollout as R_t = r_t + γ·R_{t+1}, success worth 10 (GiGPO)."""
    group = random_group(seed, 0.98)
    rows = sorted(group.rows, key=lambda row: (row["rollout_id"], row["step"]))
    success = {row["rollout_id"]: row["success"] == 1 for row in rows}
    following: dict[object, float] = {}
    returns: dict[int, float] = {}
    for index in reversed(range(len(rows))):
        row = rows[index]
        if row["observation"] is None:
            continue
        name = row["rollout_id"]
        returns[index] = 0.98 * following[name] if name in following else 10.0 * success[name]
        following[name] = returns[index]
    scaled = 0.98 * np.array([returns[index] for index in sorted(returns)]) / 10
    process = group.process
    expected = process.pair_mean(scaled) - process.state_mean(scaled)[process.pair_state]
    close(group.credit(0), expected)


def test_coverage_grows_with_depth_up_to_the_group(group: Group) -> None:
    process = group.process
    visitors = [len(set(process.rollout[process.state == s])) for s in range(process.states)]
    depths = coverage_by_depth(process)
    states, reach = next(depths)
    assert states.tolist() == list(range(process.states))
    assert reach.tolist() == visitors
    for depth, (widened, wider) in enumerate(depths, 1):
        assert (reach[widened] <= wider).all()
        reach[widened] = wider
        assert (reach == reachable_rollouts(process, depth)).all()
    assert (reach <= len(set(process.rollout))).all()
    assert (reach == reachable_rollouts(process, math.inf)).all()
