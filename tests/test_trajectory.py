"""The group advantage: GRPO, Dr.GRPO and RLOO, their conventions and penalties.

Numbers to four decimals are those that verl-agent's `compute_grpo_outcome_advantage` and
`compute_rloo_outcome_advantage` give in float32; the others are worked out beside the test.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import GOLDEN, Rows, approx, four, one, package_credit, rollout
from numpy.typing import NDArray
from strategies import build_log, seeded

from crbc_cli.methods.trajectory import Episodes, group_advantage
from crbc_cli.options import GroupAdvantageOptions

WON = [True, True, False, False, True, True, True, False, False]  # rows of GOLDEN


def close(left: Any, right: Any) -> None:
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-12)


def term(rows: Rows, **options: Any) -> list[Any]:
    return package_credit(rows, **options)["group_advantage"]


def test_golden_group_with_row_statistics() -> None:
    """Nine rows, five of them in successes, rewards 10 and 0: mean 50/9, std with ddof 1."""
    rows = {"success_reward": 10.0, "episode_stats": "rows"}
    assert term(GOLDEN, **rows) == approx([0.8433 if won else -1.0541 for won in WON], 1e-4)
    rloo = term(GOLDEN, estimator="rloo", **rows)
    assert rloo == approx([5.0 if won else -6.25 for won in WON], 1e-12)
    mean_only = term(GOLDEN, estimator="dr-grpo", **rows)
    assert mean_only == approx([10 - 50 / 9 if won else -50 / 9 for won in WON], 1e-12)


def test_golden_group_with_rollout_statistics() -> None:
    """One vote each: mean 1/2, std sqrt(1/3) with ddof 1, 1/2 with ddof 0."""
    half = [0.5 if won else -0.5 for won in WON]
    expected = {
        ("grpo", 1): [x / (math.sqrt(1 / 3) + 1e-6) for x in half],
        ("grpo", 0): [x / (0.5 + 1e-6) for x in half],
        ("dr-grpo", 1): half,
        ("rloo", 1): [x * 4 / 3 for x in half],
    }
    for (estimator, ddof), values in expected.items():
        assert term(GOLDEN, estimator=estimator, ddof=ddof) == approx(values, 1e-14)
    assert term(GOLDEN) == four([0.8660 if won else -0.8660 for won in WON])
    # RLOO is the reward less the mean of the three others: 1 - 1/3, 0 - 2/3.
    assert term(GOLDEN, estimator="rloo")[0] == approx(2 / 3, 1e-14)


def test_combination() -> None:
    """w_G·A_G + w_S·A_S: ±0.8660 and 5 times 1, ±0.7071 or -1.4142."""
    table = package_credit(GOLDEN)
    expected = [5.8660, 4.4016, 4.1340, -7.9371, -4.1340, 5.8660, 4.4016, -5.8660, -5.8660]
    assert table["advantage"] == four(expected)
    alone = package_credit(GOLDEN, w_s=0.0, w_g=2.0)
    assert alone["advantage"] == [2 * x for x in table["group_advantage"]]


LENGTHS = [*rollout("short", "s-win", True), *rollout("long", "s-try t-try u-try", False)]


@pytest.mark.parametrize(
    ("options", "short", "long"),
    [
        ({}, math.sqrt(0.5), -math.sqrt(0.5)),
        ({"episode_stats": "rows"}, 1.5, -0.5),  # mean 1/4, std 1/2
        ({"episode_stats": "rows", "ddof": 0}, math.sqrt(3), -math.sqrt(1 / 3)),
        ({"estimator": "dr-grpo"}, 0.5, -0.5),
        ({"estimator": "dr-grpo", "episode_stats": "rows"}, 0.75, -0.25),
        ({"estimator": "rloo"}, 1.0, -1.0),
        ({"estimator": "rloo", "episode_stats": "rows"}, 1.0, -1 / 3),
    ],
)
def test_weight_of_long_rollouts(options: dict[str, Any], short: float, long: float) -> None:
    assert term(LENGTHS, eps=0.0, **options) == approx([short, long, long, long], 1e-14)


def test_eps_is_added_to_the_std() -> None:
    rows = [one(0, "s", "a", True), one(1, "s", "b", False)]
    for eps in (1e-6, 1e-4, 1.0):
        assert term(rows, eps=eps)[0] == approx(0.5 / (math.sqrt(0.5) + eps), 1e-15)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("stats", ["rollout", "rows"])
@pytest.mark.parametrize("won", [True, False])
def test_equal_scores_give_exactly_zero(ddof: int, stats: str, won: bool) -> None:
    """Also with eps = 0, where 0/0 would be NaN, and with rewards whose mean is rounded."""
    rows = [row | {"success": won, "reward": 0.1} for row in LENGTHS + rollout("third", "s-a", 1)]
    options = {"ddof": ddof, "eps": 0.0, "episode_stats": stats}
    for reward in ("outcome", "last"):
        assert term(rows, reward=reward, success_reward=0.3, **options) == [0.0] * 5


INVALID = [
    row | {"is_action_valid": valid}
    for row, valid in zip(
        [*rollout(0, "s-a t-b", True), *rollout(1, "s-c t-d", False)],
        (True, False, False, None),
        strict=True,
    )
]


@pytest.mark.parametrize(
    ("unit", "stats", "expected"),
    [
        # Row scores 10, 9.9 | -0.1, 0. First rows: mean 4.95; all rows: mean 19.8/4 = 4.95.
        ("row", "rollout", [5.05, 4.95, -5.05, -4.95]),
        ("row", "rows", [5.05, 4.95, -5.05, -4.95]),
        # One invalid action each: 9.9 and -0.1.
        ("sum", "rollout", [5.0, 5.0, -5.0, -5.0]),
        ("sum", "rows", [5.0, 5.0, -5.0, -5.0]),
    ],
)
@pytest.mark.parametrize("where", ["trajectory", "both"])
def test_penalties(unit: str, stats: str, expected: list[float], where: str) -> None:
    options: dict[str, Any] = {"invalid_penalty": where, "success_reward": 10.0}
    options |= {"penalty_unit": unit, "episode_stats": stats, "estimator": "dr-grpo"}
    assert term(INVALID, **options) == approx(expected, 1e-12)
    doubled = term(INVALID, penalty=0.2, **options)  # the penalty's part is linear in its size
    without = term(INVALID, penalty=0.0, **options)
    close(np.subtract(doubled, without), 2 * np.subtract(expected, without))


def test_penalties_that_do_not_enter() -> None:
    options: dict[str, Any] = {"success_reward": 10.0, "estimator": "dr-grpo"}
    for where in ("none", "step"):
        assert term(INVALID, invalid_penalty=where, **options) == [5.0, 5.0, -5.0, -5.0]


def test_a_penalty_alone_is_blown_up_to_unit_scale() -> None:
    """All failures, one of four rows invalid: scores -0.1, 0, 0, 0, std 0.05."""
    rows = [*rollout(0, "s-x s-y", False), *rollout(1, "s-y t-y", False)]
    for index, row in enumerate(rows):
        row["is_action_valid"] = index != 0
    options = {"invalid_penalty": "both", "episode_stats": "rows"}
    table = package_credit(rows, **options)
    assert table["group_advantage"] == approx([-1.5, 0.5, 0.5, 0.5], 1e-4)
    assert table["group_status"] == ["all_fail"] * 4


def test_step_penalty_is_centred_at_the_anchor() -> None:
    """All failures, so A = 0 and A' = -p/R·(share at (s,a) - share at s), over the floor 0.1."""
    rows = [one(0, "s", "a", 0), one(1, "s", "b", 0, is_action_valid=False), one(2, "s", "b", 0)]
    table = package_credit(rows, invalid_penalty="step", penalty=0.1, success_reward=1.0)
    assert table["step_credit"] == approx([1 / 3, -1 / 6, -1 / 6], 1e-12)
    assert table["credit"] == [0.0] * 3
    scaled = package_credit(rows, invalid_penalty="step", penalty=1.0, success_reward=10.0)
    assert scaled["step_credit"] == approx(table["step_credit"], 1e-12)


def test_rewards() -> None:
    rows = [*rollout(0, "s-a t-b", True, score=0.5), *rollout(1, "s-c t-d", False, score=0.25)]
    for row, reward in zip(rows, (1.0, 2.0, None, -4.0), strict=True):
        row["reward"] = reward
    centred = {"outcome": 0.5, "sum": 3.5, "last": 3.0, "score": 0.125}
    for rule, half in centred.items():
        got = term(rows, reward=rule, estimator="dr-grpo")
        assert got == approx([half, half, -half, -half], 1e-15), rule


def test_a_sum_of_nothing_is_no_reward() -> None:
    """A null reward among others is passed over; a rollout without any reward is unscored."""
    rows = [one(i, "s", "a", True, reward=reward) for i, reward in enumerate((1.0, None, 3.0))]
    table = package_credit(rows, reward="sum", estimator="dr-grpo")
    assert table["group_advantage"] == [-1.0, None, 1.0]
    assert table["reason"] == [None, "unscored", None]


def test_one_rollout_that_counts() -> None:
    rows = rollout("r", "s-a t-b", True)
    rows[0]["is_action_valid"] = False
    options: dict[str, Any] = {"success_reward": 10.0, "invalid_penalty": "trajectory"}
    expected = {"zero": [0.0, 0.0], "raw": [9.9, 10.0], "drop": [None, None]}
    for rule, values in expected.items():
        table = package_credit(rows, singleton=rule, **options)
        assert table["group_advantage"] == values
        assert table["reason"] == ["singleton_group"] * 2


def episodes(seed: int) -> tuple[Episodes, NDArray[np.int64], NDArray[np.int64]]:
    """Random groups of 2 to 6 rollouts of 1 to 5 rows, and rewards of many values; with group
    and rollout of each row."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(6), rng.integers(2, 7, size=6))
    rollouts = np.repeat(np.arange(len(group)), rng.integers(1, 6, size=len(group)))
    invalid = rng.random(len(rollouts)) < 0.3
    reward = rng.normal(size=len(group))
    log = Episodes(rollouts, group, 6, reward, np.ones(len(group), bool), invalid)
    return log, group[rollouts], rollouts


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("stats", ["rollout", "rows"])
def test_votes_of_a_group_balance(seed: int, stats: str) -> None:
    """With one vote per unit the term sums to 0; with ddof 0 and eps 0 its squares sum to n."""
    log, group, rollouts = episodes(seed)
    first = np.diff(rollouts, prepend=-1) != 0
    votes = first if stats == "rollout" else np.ones(len(group), bool)
    number = np.bincount(group[votes])
    for estimator in ("grpo", "dr-grpo", "rloo"):
        options = GroupAdvantageOptions(
            estimator=estimator, episode_stats=stats, ddof=0, eps=0.0,
            invalid_penalty="trajectory", penalty=0.5,
        )  # fmt: skip
        value = group_advantage(log, options)
        close(np.bincount(group[votes], value[votes]), 0)
        if estimator == "grpo":
            squares = np.bincount(group[votes], value[votes] ** 2)
            close(squares, number)


@pytest.mark.parametrize("seed", range(8))
def test_rloo_is_the_score_less_the_mean_of_the_others(seed: int) -> None:
    log, _, rollouts = episodes(seed)
    value = group_advantage(log, GroupAdvantageOptions(estimator="rloo"))
    for row, mine in enumerate(rollouts):
        others = (log.group == log.group[mine]) & (np.arange(len(log.group)) != mine)
        assert value[row] == approx(log.reward[mine] - log.reward[others].mean(), 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_scale_and_offset_of_the_reward(seed: int) -> None:
    """GRPO with eps 0 is invariant to a·R + b, the others scale with a."""
    log, _, _ = episodes(seed)
    moved = Episodes(
        log.rollout, log.group, log.groups, 3 * log.reward + 7, log.counts, log.invalid
    )
    for estimator, factor in (("grpo", 1.0), ("dr-grpo", 3.0), ("rloo", 3.0)):
        options = GroupAdvantageOptions(estimator=estimator, eps=0.0)
        before, after = group_advantage(log, options), group_advantage(moved, options)
        close(after, factor * before)


def test_rows_of_rollouts_that_do_not_count_are_null() -> None:
    for seed in range(20):
        log = build_log(seeded(seed), duplicates=False)
        if "done" not in log.columns:
            continue
        table = package_credit(log.rows, truncated="censor", singleton="raw")
        for reason, value in zip(table["reason"], table["group_advantage"], strict=True):
            assert (value is None) == (reason in ("unscored", "censored"))
