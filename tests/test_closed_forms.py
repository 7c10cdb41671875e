"""Groups whose values are known in closed form, and some large enough for the sparse solve."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
from helpers import INF, Rows, one, package_credit, process_of, rollout, table_of
from numpy.typing import NDArray

import crbc_cli
from crbc_cli.errors import ClosureError
from crbc_cli.process import closure
from crbc_cli.process.closure import exact_values, solve_values

Floats = NDArray[np.float64]


def values_of(rows: Rows, discount: float, **options: object) -> dict[str, float]:
    """V per observation."""
    table = package_credit(rows, discount=discount, **options)
    return dict(zip((row["observation"] for row in rows), table["state_value"], strict=True))


def birth_death(size: int, up: int, down: int) -> Rows:
    """A walk on 1..size-1 that goes up with frequency p = up/(up+down), and down otherwise.

    `up` rollouts climb the whole chain to success and `down` rollouts descend it to failure, so
    that each interior state is left upwards `up` times and downwards `down` times.
    """
    climb = " ".join(f"{state}-up" for state in range(1, size))
    descent = " ".join(f"{state}-down" for state in reversed(range(1, size)))
    rows = [row for i in range(up) for row in rollout(i, climb, True)]
    return rows + [row for i in range(up, up + down) for row in rollout(i, descent, False)]


@pytest.mark.parametrize("size", [2, 5, 12, 200])
@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 1), (1, 3)])
def test_gamblers_ruin_undiscounted(size: int, up: int, down: int) -> None:
    """β = 1: V(i) = i/n for p = 1/2, else (1 − (q/p)^i)/(1 − (q/p)^n) (Feller I, XIV.2)."""
    values = values_of(birth_death(size, up, down), 1.0)
    odds = down / up
    for i in range(1, size):
        expected = i / size if odds == 1 else (1 - odds**i) / (1 - odds**size)
        assert values[str(i)] == pytest.approx(expected, rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("size", [2, 5, 12, 200])
@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 1), (1, 3)])
@pytest.mark.parametrize("discount", [0.5, 0.98])
def test_gamblers_ruin_discounted(size: int, up: int, down: int, discount: float) -> None:
    """V(i) = β(p·V(i+1) + q·V(i−1)), V(0) = 0, V(n) = 1: V(i) = (x^i − y^i)/(x^n − y^n) with
    x, y = (1 ± sqrt(1 − 4β²pq))/(2βp), the roots of βp·z² − z + βq."""
    p = up / (up + down)
    root = math.sqrt(1 - 4 * discount**2 * p * (1 - p))
    x, y = ((1 + sign * root) / (2 * discount * p) for sign in (1, -1))
    values = values_of(birth_death(size, up, down), discount)
    for i in range(1, size):
        expected = x ** (i - size) * (1 - (y / x) ** i) / (1 - (y / x) ** size)
        assert values[str(i)] == pytest.approx(expected, rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("discount", [0.5, 0.98, 1.0])
@pytest.mark.parametrize("length", [1, 2, 7, 300])
def test_single_chain(length: int, discount: float) -> None:
    """One path to success: n steps before the end every depth has V = Q = β^n, credit 0."""
    rows = rollout("r", " ".join(f"{i}-go" for i in range(length)), True)
    for depth in (0, 1, 3, INF):
        table = package_credit(rows, depth=depth, discount=discount)
        expected = [discount ** (length - i) for i in range(length)]
        assert table["state_value"] == pytest.approx(expected, rel=1e-12)
        assert table["action_value"] == pytest.approx(expected, rel=1e-12)
        assert table["credit"] == [0.0] * length


@pytest.mark.parametrize("loops", [1, 3, 50])
def test_self_loop(loops: int) -> None:
    """s is left to itself n times and once to success: V = β/(n+1) / (1 − βn/(n+1)), the waiting
    action is worth βV, so its credit is −(1 − β)V."""
    beta = 0.98
    table = package_credit(rollout("r", "s-wait " * loops + "s-go", True), singleton="raw")
    value = beta / (loops + 1) / (1 - beta * loops / (loops + 1))
    assert table["state_value"] == pytest.approx([value] * (loops + 1), rel=1e-13)
    expected = [-(1 - beta) * value] * loops + [beta - value]
    assert table["credit"] == pytest.approx(expected, abs=1e-13)


def test_two_state_cycle_with_exit() -> None:
    """A → B always; B goes back to A twice and once to success: V(B) = β/3 + (2/3)β²V(B)."""
    rows = rollout("r", "A-x B-back A-x B-back A-x B-out", True)
    for beta in (0.5, 0.98, 1.0):
        v_b = beta / 3 / (1 - 2 / 3 * beta**2)
        values = values_of(rows, beta)
        assert values["B"] == pytest.approx(v_b, rel=1e-13)
        assert values["A"] == pytest.approx(beta * v_b, rel=1e-13)


def test_one_step_bandit() -> None:
    """n wins of a and m losses of b at one anchor: V = βn/(n+m), σ² = β²nm/(n+m)²."""
    for n, m in ((1, 1), (3, 1), (2, 5)):
        rows = [one(i, "s", "a", True) for i in range(n)]
        rows += [one(n + i, "s", "b", False) for i in range(m)]
        table = package_credit(rows)
        assert table["state_value"] == pytest.approx([0.98 * n / (n + m)] * (n + m), rel=1e-14)
        expected = [math.sqrt(m / n)] * n + [-math.sqrt(n / m)] * m
        assert table["step_credit"] == pytest.approx(expected, rel=1e-13)


def test_rounding_is_no_credit() -> None:
    """Two actions into one place are worth the same; that the mean of n equal numbers is rounded
    must not show."""
    rounded = 0
    for n in range(3, 30):
        rows: Rows = []
        for i in range(n):
            rows += rollout(i, f"s-{'ab'[i % 2]} t-c", i % 3 == 0)
        table = package_credit(rows)
        assert table["credit"] == table["step_credit"] == [0.0] * (2 * n)
        pairs = zip(table["action_value"], table["state_value"], strict=True)
        rounded += sum(q != v for q, v in pairs)
    assert rounded


def closed_class(exit_too: bool) -> Rows:
    """One success through M; one cut rollout whose next observation closes a class {P, R}, or,
    with `exit_too`, leads back to M."""
    rows = rollout("t0", "S-a M-p", True) + rollout("t1", "S-b", False)
    following = "M" if exit_too else "R"
    cut = rollout("t2", "S-b M-q P-u R-v", False, truncated=True, next_observation=following)
    return rows + cut


@pytest.mark.parametrize("discount", [0.5, 0.98, 1.0])
def test_closed_class_without_exit_is_worth_nothing(discount: float) -> None:
    """R → R: V(R) = V(P) = 0 at every β, the limit β → 1 included, so V(M) = β/2."""
    values = values_of(closed_class(False), discount, truncated="bootstrap")
    assert values["R"] == values["P"] == 0
    assert values["M"] == pytest.approx(discount / 2, rel=1e-14)
    # Two of S's three visits lead to M and one to failure.
    assert values["S"] == pytest.approx(discount * 2 / 3 * discount / 2, rel=1e-14)


@pytest.mark.parametrize("discount", [0.5, 0.98, 1.0])
def test_class_closed_by_bootstrap_with_exit(discount: float) -> None:
    """R → M: Q(M,q) = β³V(M), so V(M) = β/(2 − β³); at β = 1 success is certain."""
    values = values_of(closed_class(True), discount, truncated="bootstrap")
    assert values["M"] == pytest.approx(discount / (2 - discount**3), rel=1e-14)


def test_rewards_in_a_closed_class() -> None:
    """r + βr + … = r/(1 − β) below β = 1; no finite value at 1, unless the rewards are 0."""
    rows = [row | {"reward": 0.0} for row in closed_class(False)]
    options = {"truncated": "bootstrap", "intermediate_rewards": True}
    assert values_of(rows, 1.0, **options)["R"] == 0
    loop = rollout("t3", "L-x L-x", False, done=False, next_observation="L", reward=9.0)
    loop[0]["reward"] = 1.0  # half of L's two visits are rewarded; the last row's is the end's
    assert values_of(rows + loop, 0.9, **options)["L"] == pytest.approx(0.5 / 0.1, rel=1e-12)
    with pytest.raises(ClosureError, match="discount 1"):
        crbc_cli.credit(table_of(rows + loop), discount=1.0, **options)


def random_walks(seed: int, anchors: int, rollouts: int, steps: int) -> Rows:
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for number in range(rollouts):
        path = rng.integers(anchors, size=steps)
        moves = rng.integers(3, size=steps)
        text = " ".join(f"{s}-{a}" for s, a in zip(path, moves, strict=True))
        rows += rollout(number, text, bool(rng.integers(2)))
    return rows


@pytest.mark.parametrize("discount", [0.98, 1.0])
@pytest.mark.parametrize(("anchors", "lu_limit"), [(60, 2000), (400, 2000), (400, 100)])
def test_large_groups_against_dense_numpy(
    anchors: int, lu_limit: int, discount: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 anchors have more branching ones than one dense block may; 60 stay below."""
    monkeypatch.setattr(closure, "_LU_LIMIT", lu_limit)
    rows = random_walks(3, anchors, 60, 40)
    process = process_of(rows)
    branching = int((process.state_successors >= 2).sum())
    assert (branching > closure._DENSE_LIMIT) == (anchors == 400)
    [m] = oracle.group_matrices(rows, discount=discount)
    dense = np.linalg.solve(np.eye(len(m.states)) - discount * m.M, m.b)
    values = exact_values(process, discount)
    np.testing.assert_allclose(values, dense, rtol=0, atol=1e-12)
    closed = solve_values(process, discount, INF)
    np.testing.assert_allclose(closed.pair, m.B(dense), rtol=0, atol=1e-12)
    assert np.abs(m.T(values) - values).max() < 1e-13
