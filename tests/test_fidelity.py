"""Fidelity to a known truth: each definition by hand, against scipy, and on a real log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import ROOT
from numpy.typing import NDArray
from scipy import stats

from crbc_cli import api
from crbc_cli.engine.comparison import Comparison
from crbc_cli.errors import ColumnError, OptionError
from crbc_cli.methods.agreement import average_ranks, pearson
from crbc_cli.methods.fidelity import METRICS, Fidelity, Truth, fidelity
from crbc_cli.methods.intervals import Interval, clustered_mean

SOKOBAN = ROOT / "sample_logs" / "sokoban.parquet"
Floats = NDArray[np.float64]


def truth(
    value: Sequence[float],
    state: str,
    action: str,
    group: Sequence[int] | None = None,
    mixed: Sequence[bool] | None = None,
) -> Truth:
    """Steps with one-letter states and actions."""
    groups = np.array(group if group is not None else [0] * len(value))
    return Truth.build(
        np.array(value, float),
        groups,
        np.array([ord(s) for s in state]),
        np.array([ord(a) for a in action]),
        np.array(mixed if mixed is not None else [True] * (int(groups.max()) + 1)),
    )


def metric(found: Fidelity, name: str) -> list[float]:
    values: list[float] = found.metrics[name].tolist()
    return values


# --- cosine ---------------------------------------------------------------------------------------

TWO_STATES = truth([0.3, 0.3, -0.6, 0.2, -0.2], "ssstt", "aabcd")
"""n = 2, 1 at s and 1, 1 at t; both states are centred: g = (.6, -.6, .2, -.2), ‖g‖² = .8."""


def test_cosine_by_hand() -> None:
    # Equal at s: no gradient there. At t: g = (1, -1). Cosine .4/(√2·√.8) = 1/√10.
    found = fidelity(np.array([1.0, 1.0, 1.0, 1.0, -1.0]), TWO_STATES)
    assert metric(found, "cosine") == pytest.approx([1 / math.sqrt(10)], abs=1e-15)


def test_cosine_averages_the_visits_of_a_cell_and_subtracts_the_baseline_of_its_state() -> None:
    # s: A = (mean(5, 1), 3) = (3, 3), t: A = (2, 1) less the mean 1.5: g = (0, 0, .5, -.5).
    found = fidelity(np.array([5.0, 1.0, 3.0, 2.0, 1.0]), TWO_STATES)
    assert metric(found, "cosine") == pytest.approx([1 / math.sqrt(10)], abs=1e-15)
    # s: A = (1, -2) centred: 2·1 - 2 = 0, g = (2, -2). t: equal. Cosine 2.4/(√8·√.8).
    found = fidelity(np.array([2.0, 0.0, -2.0, 7.0, 7.0]), TWO_STATES)
    assert metric(found, "cosine") == pytest.approx([2.4 / math.sqrt(6.4)], abs=1e-15)


def test_the_gradient_weighs_cells_by_visits() -> None:
    # A = (1, 4), n = (2, 1): baseline 2, g = (2·(1-2), 1·(4-2)) = (-2, 2).
    single = truth([0, 0, 0], "sss", "aab")
    assert single.gradient_of(np.array([1.0, 4.0])).tolist() == [-2, 2]


def test_zero_gradients() -> None:
    # Group 0: no estimated gradient. Group 1: no true one. Group 2: neither.
    two = truth([1, -1, 0, 0, 0.5, 0.5], "ssssss", "ababab", [0, 0, 1, 1, 2, 2])
    cosine = metric(fidelity(np.array([3.0, 3.0, 1.0, -1.0, 0.0, 0.0]), two), "cosine")
    assert cosine[0] == 0
    assert np.isnan(cosine[1:]).all()


def test_groups_without_mixed_outcomes_are_left_out_of_means_but_not_of_errors() -> None:
    both = truth([1, -1, 1, -1], "ssss", "abab", [0, 0, 1, 1], [True, False])
    found = fidelity(np.array([1.0, -1.0, 0.0, 0.0]), both)
    for name in METRICS:
        assert metric(found, name)[0] == pytest.approx(1)
        assert math.isnan(metric(found, name)[1])
    # Errors 0, 0, 1, 1; the best factor is 1; signs 1, 1, 1/2, 1/2.
    assert found.errors.rmse == pytest.approx(math.sqrt(0.5))
    assert found.errors.rmse_scaled == pytest.approx(math.sqrt(0.5))
    assert found.errors.signs == 0.75


# --- correlations ---------------------------------------------------------------------------------


def test_correlations_by_hand() -> None:
    # Steps: x = (0, 2, 1, 3), y = (0, 0, 1, 2); sums of products 3, squares 5 and 2.75.
    four = truth([0, 0, 1, 2], "stuv", "aaaa")
    x = np.array([0.0, 2.0, 1.0, 3.0])
    found = fidelity(x, four)
    assert metric(found, "step_pearson") == pytest.approx([2.5 / math.sqrt(5 * 2.75)])
    # Ranks (1, 3, 2, 4) and (1.5, 1.5, 3, 4): products 3, squares 5 and 4.5.
    assert metric(found, "step_spearman") == pytest.approx([3 / math.sqrt(5 * 4.5)])
    # Each step is a cell of its own with one visit.
    assert metric(found, "cell_pearson") == metric(found, "step_pearson")
    assert metric(found, "cell_spearman") == metric(found, "step_spearman")


def test_cells_pearson_is_weighted_by_visits_and_spearman_is_not() -> None:
    # Cells with 3, 1, 1 visits; weighting is the same as repeating the cell.
    cells = truth([0, 0, 0, 1, 2], "sssst", "aaabc")
    found = fidelity(np.array([3.0, 0.0, 0.0, 5.0, 4.0]), cells)
    expected = stats.pearsonr([1, 1, 1, 5, 4], [0, 0, 0, 1, 2]).statistic
    assert metric(found, "cell_pearson") == pytest.approx([expected], abs=1e-14)
    # Unweighted: ranks (1, 3, 2) against (1, 2, 3).
    assert metric(found, "cell_spearman") == pytest.approx([0.5], abs=1e-15)


def test_a_constant_has_correlation_0() -> None:
    found = fidelity(np.full(5, 0.1 + 0.2), TWO_STATES)
    assert {name: metric(found, name) for name in METRICS} == {name: [0] for name in METRICS}
    flat = truth([0.25, 0.25], "st", "ab")
    assert metric(fidelity(np.array([1.0, 2.0]), flat), "step_pearson") == [0]


def test_values_are_rounded_to_ten_decimals_first() -> None:
    # 1e-12 apart is a tie, in steps and in means over a cell.
    four = truth([0, 1, 2, 3], "sstt", "abab")
    noisy = np.array([1.0, 1.0 + 1e-12, 2.0, 3.0])
    tied = fidelity(np.array([1.0, 1.0, 2.0, 3.0]), four)
    for name in METRICS:
        assert metric(fidelity(noisy, four), name) == metric(tied, name)
    # (.1 + .2)/2 is not .15 in binary: cells s and t tie in both, u is above.
    cells = truth([0, 0, 0, 1], "sstu", "aaaa")
    mean = fidelity(np.array([0.1, 0.2, 0.15, 1.0]), cells)
    assert metric(mean, "cell_spearman") == pytest.approx([1])


def test_correlations_agree_with_scipy_in_every_group() -> None:
    random = np.random.default_rng(7)
    group = np.sort(random.integers(0, 12, 400))
    x, y = random.integers(-3, 4, 400) / 7, random.integers(-3, 4, 400) / 5
    weight = random.integers(1, 5, 400)
    ranks = average_ranks(x, group)
    ours = pearson(x, y, group, 12, weight=weight.astype(float))
    for g in range(12):
        mine = group == g
        assert ranks[mine].tolist() == stats.rankdata(x[mine]).tolist()
        repeated = [np.repeat(v[mine], weight[mine]) for v in (x, y)]
        assert ours[g] == pytest.approx(stats.pearsonr(*repeated).statistic, abs=1e-12)


# --- sizes and signs ------------------------------------------------------------------------------


def test_errors_by_hand() -> None:
    # x = (1, -1, 0, 2), y = (.5, .005, -.5, .5): Σxy = 1.495, Σx² = 6.
    errors = fidelity(
        np.array([1.0, -1.0, 0.0, 2.0]), truth([0.5, 0.005, -0.5, 0.5], "stuv", "aaaa")
    ).errors
    squares = 0.25 + 1.005**2 + 0.25 + 2.25
    assert errors.rmse == pytest.approx(math.sqrt(squares / 4))
    assert errors.rmse_zero == pytest.approx(math.sqrt((0.75 + 0.005**2) / 4))
    left = 0.75 + 0.005**2 - 1.495**2 / 6  # Σy² − (Σxy)²/Σx²
    assert errors.rmse_scaled == pytest.approx(math.sqrt(left / 4))
    # The second step is too close to 0 to have a sign; the third has none: (1 + 1/2 + 1)/3.
    assert errors.signs == pytest.approx(2.5 / 3)


def test_a_step_without_a_number_counts_as_0() -> None:
    x = np.array([1.0, np.nan, 0.0, np.nan, -1.0])
    assert fidelity(x, TWO_STATES).errors == fidelity(np.nan_to_num(x), TWO_STATES).errors
    nothing = fidelity(np.full(5, np.nan), TWO_STATES).errors
    assert nothing.rmse == nothing.rmse_scaled == nothing.rmse_zero
    assert nothing.signs == 0.5


def test_the_truth_itself_is_perfect() -> None:
    found = fidelity(TWO_STATES.value, TWO_STATES)
    for name in METRICS:
        assert metric(found, name) == pytest.approx([1], abs=1e-15)
        opposite = fidelity(-3 * TWO_STATES.value, TWO_STATES)
        assert metric(opposite, name) == pytest.approx([-1], abs=1e-15)
    assert (found.errors.rmse, found.errors.signs) == (0, 1)


# --- intervals ------------------------------------------------------------------------------------


def test_clustered_interval_by_hand() -> None:
    # Mean 3; deviations summed inside tasks: -2 - 1 = -3 and 3; se² = 2/1 · 18/9 = 4.
    found = clustered_mean(np.array([1.0, 2.0, np.nan, 6.0]), np.array([0, 0, 5, 1]))
    assert found == Interval(3.0, 2.0, 3, 2)
    assert (found.margin, found.low, found.high) == pytest.approx((3.92, -0.92, 6.92))


def test_groups_of_their_own_task_give_the_usual_standard_error() -> None:
    x = np.array([1.0, 4.0, 2.0, 9.0])
    found = clustered_mean(x, np.arange(4))
    assert found.se == pytest.approx(stats.sem(x))


def test_intervals_without_spread_or_groups() -> None:
    assert math.isnan(clustered_mean(np.array([1.0, 2.0]), np.array([3, 3])).se)
    nothing = clustered_mean(np.array([np.nan]), np.array([0]))
    assert math.isnan(nothing.mean)
    assert nothing.groups == 0
    one = Interval(0.5, 0.1, 10, 5)
    both = Interval.averaged([one, Interval(0.7, 0.3, 12, 5), nothing])
    assert (both.mean, both.se, both.groups, both.tasks) == pytest.approx((0.6, 0.2, 11, 5))
    assert one.negated().high == pytest.approx(-one.low)


# --- invariances ----------------------------------------------------------------------------------


def random_steps(seed: int) -> tuple[Floats, Floats, list[NDArray[np.int64]]]:
    """(estimate, truth, [group, state, action]) of 200 steps in 5 groups."""
    random = np.random.default_rng(seed)
    group = np.sort(random.integers(0, 5, 200))
    return (
        random.normal(size=200).round(2),
        random.normal(size=200).round(2),
        [group, random.integers(0, 6, 200), random.integers(0, 3, 200)],
    )


def measured(x: Floats, y: Floats, ids: list[NDArray[np.int64]]) -> Fidelity:
    group, state, action = ids
    return fidelity(x, Truth.build(y, group, state, action, np.ones(5, bool)))


def same(a: Fidelity, b: Fidelity, names: Sequence[str] = tuple(METRICS)) -> None:
    for name in names:
        assert a.metrics[name] == pytest.approx(b.metrics[name], abs=1e-9), name


def test_ids_and_the_order_of_steps_do_not_matter() -> None:
    x, y, (group, state, action) = random_steps(1)
    plain = measured(x, y, [group, state, action])
    same(plain, measured(x, y, [group, 17 - 2 * state, 5 * (2 - action)]))
    shuffled = np.random.default_rng(2).permutation(200)
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    moved = measured(x[order], y[order], [group[order], state[order], action[order]])
    same(plain, moved)
    assert plain.errors.rmse == pytest.approx(moved.errors.rmse)


def test_a_positive_factor_changes_only_the_raw_error() -> None:
    x, y, ids = random_steps(3)
    plain, scaled = measured(x, y, ids), measured(8 * x, y, ids)
    same(plain, scaled)
    assert plain.errors.rmse_scaled == pytest.approx(scaled.errors.rmse_scaled)
    assert plain.errors.signs == scaled.errors.signs
    assert plain.errors.rmse < scaled.errors.rmse


def test_a_baseline_per_state_does_not_change_the_cosine() -> None:
    x, y, ids = random_steps(4)
    shifted = x + np.arange(6)[ids[1]]
    same(measured(x, y, ids), measured(shifted, y, ids), ["cosine"])


def test_everything_twice_changes_nothing() -> None:
    x, y, ids = random_steps(5)
    twice = measured(np.repeat(x, 2), np.repeat(y, 2), [np.repeat(i, 2) for i in ids])
    same(measured(x, y, ids), twice)


# --- a real log -----------------------------------------------------------------------------------

RAW = "crbc:floor=1:gate=none"  # sigma is below 1, so that step_credit is the raw credit


@pytest.fixture(scope="module")
def sokoban() -> Comparison:
    methods = f"grpo,g95=gigpo:norm=mean,g98=gigpo:norm=mean:gamma=0.98,k0={RAW}:depth=0"
    methods += f",k3={RAW}:depth=3,kinf={RAW},a_s=crbc,outcome=crbc:w_s=0"
    return api.compare([str(SOKOBAN)], methods, truth="true_advantage", disagreements=0)


def cosine(report: Comparison, name: str) -> Interval:
    index = [entry.name for entry in report.entries].index(name)
    found = next(r for r in report.results if r.entry == index)
    assert found.metrics is not None
    return found.metrics["cosine"]


def less(report: Comparison, a: str, b: str) -> Interval:
    names = [entry.name for entry in report.entries]
    return report.difference(names.index(a), names.index(b), None)["cosine"]


def test_points_lie_inside_their_intervals(sokoban: Comparison) -> None:
    for result in sokoban.results:
        assert result.metrics is not None
        for name, interval in result.metrics.items():
            assert -1 <= interval.mean <= 1
            assert interval.low < interval.mean < interval.high, name
            # The published file has 16 groups in as many tasks, 14 of them with mixed outcomes.
            assert (interval.groups, interval.tasks) == (14, 14)
    for difference in sokoban.differences:
        for interval in difference.metrics.values():
            assert interval.low <= interval.mean <= interval.high


def test_differences_are_differences_of_means(sokoban: Comparison) -> None:
    for a, b in (("k3", "k0"), ("k0", "k3"), ("kinf", "grpo")):
        expected = cosine(sokoban, a).mean - cosine(sokoban, b).mean
        assert less(sokoban, a, b).mean == pytest.approx(expected, abs=1e-12)
    assert less(sokoban, "k3", "k0").low == pytest.approx(-less(sokoban, "k0", "k3").high)


def test_known_relations_hold_on_the_sample_log(sokoban: Comparison) -> None:
    """Relations found on larger logs: recombination, a smaller discount of GiGPO."""
    assert less(sokoban, "k3", "k0").low > 0
    assert less(sokoban, "kinf", "grpo").low > 0
    assert less(sokoban, "g95", "g98").low > 0


def test_on_true_states_depth_0_is_gigpo_with_the_same_discount(sokoban: Comparison) -> None:
    """Both average suffix returns at a state, and boards are states: equal gradients."""
    assert cosine(sokoban, "k0").mean == pytest.approx(cosine(sokoban, "g98").mean, abs=1e-9)
    assert less(sokoban, "k0", "g98").margin == pytest.approx(0, abs=1e-9)


def test_scores(sokoban: Comparison) -> None:
    """Weight 0 of the step credit leaves GRPO; numbers in value units have a raw error."""
    report = api.compare(
        [str(SOKOBAN)],
        "grpo,outcome=crbc:w_s=0",
        truth="true_advantage",
        score="advantage",
        disagreements=0,
    )
    assert cosine(report, "outcome").mean == pytest.approx(cosine(report, "grpo").mean, abs=1e-9)
    raw = {}
    for result in sokoban.results:
        assert result.errors is not None
        raw[sokoban.entries[result.entry].name] = result.errors.rmse
    in_value_units = {name for name, error in raw.items() if not math.isnan(error)}
    assert in_value_units == {"g95", "g98", "k0", "k3", "kinf"}
    assert raw["kinf"] < raw["k0"] < raw["g98"]


def test_cells_are_anchors_where_no_true_state_is_logged(tmp_path: Path) -> None:
    path = str(tmp_path / "log.parquet")
    pl.read_parquet(SOKOBAN).drop("true_state").write_parquet(path)
    report = api.compare([path], "crbc", truth="true_advantage")
    assert (report.state, report.task) == (None, "task_id")
    # Boards are states, so that the cells are the same.
    again = api.compare([str(SOKOBAN)], "crbc", truth="true_advantage", state="true_state")
    assert cosine(report, "crbc").mean == pytest.approx(cosine(again, "crbc").mean, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truth": "nothing"}, "has no column nothing; name another with --truth"),
        ({"truth": "true_advantage", "state": "no"}, "has no column no; name another with --state"),
        ({"task": "no"}, "has no column no; name another with --task"),
        ({"truth": "action"}, "needs numbers"),
    ],
)
def test_columns_that_are_not_there(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ColumnError, match=message):
        api.compare([str(SOKOBAN)], "crbc", **options)


def test_a_state_needs_a_truth() -> None:
    with pytest.raises(OptionError, match="give --truth"):
        api.compare([str(SOKOBAN)], "crbc", state="true_state")
