"""The oracle against published and hand-computed numbers.

Groups solved by hand, the problems of test_cases.py, and identities on random groups. Rows are
written as paths: rollout("t0", "S-a M-p", 1) visits S with action a, then M with p, and succeeds.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from helpers import GOLDEN, INF, Rows, approx, four, one, rollout
from oracle import OracleError, canonical, coverage_counts, coverage_table, group_matrices


def credit(rows: Rows, **options: Any) -> dict[str, list[Any]]:
    """The credit table as columns, checked to be the same in exact and in float arithmetic."""
    exact, floats = (oracle.credit_rows(rows, exact=flag, **options) for flag in (True, False))
    columns = {name: [cells[name] for cells in exact] for name in exact[0]}
    for name, values in columns.items():
        others = [cells[name] for cells in floats]
        assert others == (values if name in TEXT else approx(values, 1e-12)), name
    return columns


TEXT = ("group_status", "reason")


S, M, N = 0, 1, 5  # one row of each anchor


def test_the_oracle_never_imports_the_package() -> None:
    source = Path(oracle.__file__).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            assert not any(name.name.startswith("crbc") for name in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert not (node.module or "").startswith("crbc")


# --- the golden group -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "v_s", "v_n", "a_s", "a_n", "step_s"),
    [
        (0, 0.475398, 0.480200, 0.004802, 0.480200, 0.0480),
        (1, 0.555431, 0.320133, 0.084835, 0.320133, 0.8484),
        (2, 0.476999, 0.320133, 0.163268, 0.320133, 1.0),
        (3, 0.476999, 0.320133, 0.163268, 0.320133, 1.0),
        (INF, 0.476999, 0.320133, 0.163268, 0.320133, 1.0),
    ],
)
def test_golden_values(
    depth: float, v_s: float, v_n: float, a_s: float, a_n: float, step_s: float
) -> None:
    table = credit(GOLDEN, depth=depth)
    assert [table["state_value"][row] for row in (S, M, N)] == approx([v_s, 0.653333, v_n])
    m_p, m_q = 0.326667, -0.653333
    assert table["credit"] == approx([a_s, m_p, a_s, m_q, -a_s, a_n, m_p, -a_s, -a_n])
    expected = [step_s, 0.7071, step_s, -1.4142, -step_s, 1, 0.7071, -step_s, -1]
    assert table["step_credit"] == four(expected)
    assert table["anchor"] == [0, 1, 0, 1, 0, 2, 1, 0, 2]
    assert table["visits"] == [4, 3, 4, 3, 4, 2, 3, 4, 2]
    assert table["actions"] == [2] * 9
    assert table["reachable_rollouts"] == [4, 3, 4, 3, 4, 4, 3, 4, 4]
    assert table["group_status"] == ["ok"] * 9
    assert table["reason"] == [None] * 9


def test_golden_closure_q_and_combination() -> None:
    table = credit(GOLDEN)
    q = table["action_value"]
    assert [q[0], q[5], q[4], q[1]] == approx([0.640267, 0.640267, 0.313731, 0.98])
    a = 0.8660
    assert table["group_advantage"] == four([a, a, -a, -a, a, a, a, -a, -a])
    expected = [5.8660, 4.4016, 4.1340, -7.9371, -4.1340, 5.8660, 4.4016, -5.8660, -5.8660]
    assert table["advantage"] == four(expected)


def test_golden_coverage() -> None:
    local, full = [4, 3, 4, 3, 4, 2, 3, 4, 2], [4, 3, 4, 3, 4, 4, 3, 4, 4]
    assert coverage_counts(GOLDEN, 0) == local
    for depth in (1, 2, 3, INF):
        assert coverage_counts(GOLDEN, depth) == full
    table = coverage_table(GOLDEN)
    assert table.eligible == 9
    assert [table.full[k] for k in (0, 1, 2, 3, INF)] == [4, 6, 6, 6, 6]
    assert table.distribution[0] == {4: 4, 3: 3, 2: 2}
    assert table.distribution[INF] == {4: 6, 3: 3}
    assert table.paired == {(4, 4): 4, (3, 3): 3, (2, 4): 2}
    assert table.expanded == 2


def test_golden_trajectory_terms() -> None:
    """Episode (row-weighted, ddof 1) and RLOO, success reward 10."""
    episode = credit(GOLDEN, episode_stats="rows", success_reward=10)
    rloo = credit(GOLDEN, episode_stats="rows", success_reward=10, estimator="rloo")
    won = [True, True, False, False, True, True, True, False, False]
    assert episode["group_advantage"] == four([0.8433 if w else -1.0541 for w in won])
    assert rloo["group_advantage"] == approx([5.0 if w else -6.25 for w in won])


# --- endings --------------------------------------------------------------------------------------

ENDINGS = [
    *rollout("t0", "S-a M-p", True),
    *rollout("t1", "S-b", False),
    *rollout("t2", "S-b M-q P-u R-v", False, truncated=True, next_observation="M"),
]
ROOT2 = math.sqrt(2)


@pytest.mark.parametrize(
    ("rule", "v_m", "q_a", "q_b", "v_s", "s_a", "s_b", "m_p", "m_q"),
    [
        ("fail", 0.49, 0.4802, 0.2401, 0.320133, 1.4142, -0.7071, 1, -1),
        ("censor", 0.98, 0.9604, 0.4802, 0.640267, 1.4142, -0.7071, 0, None),
        ("exclude", 0.98, 0.9604, 0, 0.4802, 1, -1, 0, None),
        ("bootstrap", 0.925569, 0.907058, 0.453529, 0.604705, 1.4142, -0.7071, 0.5443, -0.5443),
    ],
)
def test_endings(
    rule: str,
    v_m: float,
    q_a: float,
    q_b: float,
    v_s: float,
    s_a: float,
    s_b: float,
    m_p: float,
    m_q: float | None,
) -> None:
    table = credit(ENDINGS, truncated=rule)
    t0_s, t0_m, t1_s, t2_m = 0, 1, 2, 4
    assert table["state_value"][t0_m] == approx(v_m)
    assert table["state_value"][t0_s] == approx(v_s)
    assert table["action_value"][t0_s] == approx(q_a)
    assert table["action_value"][t1_s] == approx(q_b)
    steps = [table["step_credit"][row] for row in (t0_s, t1_s, t0_m, t2_m)]
    assert steps == four([s_a, s_b, m_p, m_q])


def test_endings_by_hand() -> None:
    beta = 0.98
    table = credit(ENDINGS, truncated="bootstrap")
    v_m = beta / (2 - beta**3)
    assert table["state_value"][1] == approx(v_m, 1e-14)
    assert table["action_value"][4] == approx(beta**3 * v_m, 1e-14)
    sigma = math.sqrt((table["credit"][1] ** 2 + table["credit"][4] ** 2) / 2)
    assert sigma == approx(0.0544, 5e-5)


@pytest.mark.parametrize(
    ("rule", "v_s", "v_m"),
    [
        ("fail", 0.320133, 0.49),
        ("censor", 0.320133, 0.98),
        ("exclude", 0.4802, 0.98),
        ("bootstrap", 0.320133, 0.49),
    ],
)
def test_endings_at_depth_zero(rule: str, v_s: float, v_m: float) -> None:
    table = credit(ENDINGS, truncated=rule, depth=0)
    assert table["state_value"][:2] == approx([v_s, v_m])


def test_endings_group_advantage_and_reasons() -> None:
    """Under censor and exclude a cut rollout does not count and gets null."""
    a3, a2 = 1.1547, 0.7071
    for rule in ("fail", "bootstrap"):
        table = credit(ENDINGS, truncated=rule)
        assert table["group_advantage"] == four([a3, a3] + [-a3 / 2] * 5)
        assert table["reason"] == [None] * 7
    for rule in ("censor", "exclude"):
        table = credit(ENDINGS, truncated=rule)
        assert table["group_advantage"] == four([a2, a2, -a2, None, None, None, None])
        assert table["advantage"][3:] == [None] * 4
        assert table["reason"] == [None] * 3 + [f"{rule}ed".replace("ee", "e")] * 4
        assert table["group_status"] == ["ok"] * 7
    censor = credit(ENDINGS, truncated="censor")
    assert censor["anchor"] == [0, 1, 0, 0, None, None, None]
    assert censor["visits"] == [3, 1, 3, 3, None, None, None]
    assert censor["reachable_rollouts"] == [3, 1, 3, 3, None, None, None]
    exclude = credit(ENDINGS, truncated="exclude")
    assert exclude["visits"] == [2, 1, 2, None, None, None, None]
    assert credit(ENDINGS, truncated="bootstrap")["reachable_rollouts"] == [3, 2, 3, 3, 2, 2, 2]


@pytest.mark.parametrize("discount", [0.98, 1])
def test_bootstrap_into_a_closed_class(discount: float) -> None:
    rows = [row | {"next_observation": "R"} for row in ENDINGS]
    table = credit(rows, truncated="bootstrap", discount=discount)
    fail = credit(rows, truncated="fail", discount=discount)
    assert table["state_value"] == approx(fail["state_value"], 1e-12)
    if discount == 1:
        assert table["state_value"][:2] == approx([1 / 3, 1 / 2], 1e-12)
    assert table["state_value"][-2:] == [0, 0]


def test_an_ending_rule_needs_to_know_what_is_cut() -> None:
    rows = [{k: v for k, v in row.items() if k not in ("done", "truncated")} for row in ENDINGS]
    assert credit(rows)["state_value"][0] == approx(0.320133)
    with pytest.raises(OracleError, match="done or truncated"):
        oracle.credit_rows(rows, truncated="censor")


# --- small examples -------------------------------------------------------------------------------


def test_smallest_example_of_a_constant_state_sequence() -> None:
    rows = [*rollout("t0", "A-f B-h", True), *rollout("t1", "A-f2 B-k", False)]
    local, one_round, closure = (credit(rows, depth=k) for k in (0, 1, INF))
    assert local["credit"][0] == approx(0.4802)
    assert local["credit"][2] == approx(-0.4802)
    assert [local["step_credit"][row] for row in (0, 2)] == approx([1, -1])
    for table in (one_round, closure):
        assert table["state_value"] == approx(local["state_value"], 1e-15)
        assert [table["credit"][row] for row in (0, 2)] == [0, 0]


def test_one_action_has_no_credit() -> None:
    rows = [*rollout(0, "S-a T-x", 1), *rollout(1, "S-a U-y", 0), *rollout(2, "S-a", 1)]
    for depth in (0, 1, INF):
        for gate in ("actions", "successors", "none"):
            table = credit(rows, depth=depth, gate=gate)
            assert table["credit"] == [0] * 5
            assert table["step_credit"] == [0] * 5


def test_nearly_flat_anchor_of_an_all_success_group() -> None:
    rows = [*rollout(0, "s-a", True), *rollout(1, "s-b t-c", True)]
    table = credit(rows)
    assert table["credit"] == approx([0.0098, -0.0098, 0])
    assert table["step_credit"] == approx([0.098, -0.098, 0])
    assert table["group_advantage"] == [0, 0, 0]
    assert table["group_status"] == ["all_success"] * 3
    assert credit(rows, discount=1)["step_credit"] == [0, 0, 0]


def test_all_failure_group_is_zero() -> None:
    table = credit([*rollout(0, "s-a t-b", False), *rollout(1, "s-c", False)])
    for name in ("state_value", "action_value", "credit", "step_credit", "group_advantage"):
        assert table[name] == [0, 0, 0]
    assert table["group_status"] == ["all_fail"] * 3


def test_self_loop() -> None:
    """A pure self-loop action has Q = βV and A = −(1−β)V: w −.194, g +.097."""
    table = credit([*rollout(0, "S-w S-g", True), *rollout(1, "S-g", True)])
    v = 0.98 * (2 / 3) / (1 - 0.98 / 3)
    assert table["state_value"] == approx([v] * 3, 1e-15)
    assert table["credit"][0] == approx(-0.02 * v, 1e-15)
    assert table["step_credit"] == approx([-0.194, 0.097, 0.097], 5e-4)


def test_two_step_birth_death_chain() -> None:
    """Closed form: from the middle of 0..4 with fair moves, V = E[β^T; exit above]."""
    rows: Rows = []
    for number, path in enumerate(["2-u 3-u", "2-d 1-d", "2-u 3-d 2-d 1-u 2-d 1-d", "2-u 3-u"]):
        rows += rollout(number, path, path.endswith("3-u"))
    [process] = group_matrices(rows)
    p = {"2": 3 / 6, "3": 2 / 3, "1": 1 / 3}  # shares of u
    v2 = 0.98**2 * p["2"] * p["3"]
    v2 /= 1 - 0.98**2 * (p["2"] * (1 - p["3"]) + (1 - p["2"]) * p["1"])
    value = dict(zip(process.states, process.V, strict=True))
    assert value[canonical("2")] == approx(v2, 1e-14)
    assert value[canonical("3")] == approx(0.98 * (p["3"] + (1 - p["3"]) * v2), 1e-14)
    assert value[canonical("1")] == approx(0.98 * p["1"] * v2, 1e-14)


def test_group_of_one_rollout_with_repeats_is_well_defined() -> None:
    table = credit([*rollout(0, "S-w S-g", True)], singleton="raw")
    assert table["group_advantage"] == [1, 1]
    assert table["step_credit"][0] < 0 < table["step_credit"][1]
    assert table["reason"] == ["singleton_group"] * 2


# --- worked cases ---------------------------------------------------------------------------------


def test_group_key_too_fine() -> None:
    rows = [one("0", "home", f"go {i % 2}", i % 2 == 0, group_id=f"traj-{i}") for i in range(4)]
    table = credit(rows)
    assert table["state_value"] == approx([0.98, 0, 0.98, 0])
    assert table["step_credit"] == [0] * 4
    assert table["group_advantage"] == [0] * 4
    assert table["group_status"] == ["singleton"] * 4


def test_uneven_groups() -> None:
    cells = [("g0", "aba", (5, 1, 5)), ("g1", "ab", (5, 5)), ("g2", "abb", (1, 5, 5))]
    rows = [
        one(str(i), "s", action, reward == 5, group_id=group, reward=reward)
        for group, actions, rewards in cells
        for i, (action, reward) in enumerate(zip(actions, rewards, strict=True))
    ]
    plain = credit(rows, reward="last", scale="none")
    x = 4 / 3
    assert plain["group_advantage"] == approx([x, -2 * x, x, 0, 0, -2 * x, x, x])
    assert plain["group_advantage"][3:5] == [0, 0]
    std = credit(rows, reward="last")
    y = 1 / math.sqrt(3)
    assert std["group_advantage"] == four([y, -2 * y, y, 0, 0, -2 * y, y, y])
    z = ROOT2 / 2
    assert std["step_credit"] == approx([z, -2 * z, z, 0, 0, -2 * z, z, z])


def test_same_anchor_two_tasks() -> None:
    rows = [one(i % 2, "menu", "xy"[i % 2], i in (0, 3), group_id="AB"[i // 2]) for i in range(4)]
    table = credit(rows)
    assert table["step_credit"] == [1, -1, -1, 1]
    assert table["state_value"] == approx([0.49] * 4)


def test_repeated_ids() -> None:
    rows = [*rollout("0", "A-x B-y", True), *rollout("0", "A-z C-w", False)]
    rows[0]["success"] = False
    with pytest.raises(OracleError, match="share group, rollout and step"):
        oracle.credit_rows(rows)
    last = credit(rows, on_duplicate="last")
    assert last["state_value"] == [None, None, 0, 0]
    assert last["credit"] == [None, None, 0, 0]
    assert last["anchor"] == [None, None, 0, 1]
    assert last["reason"] == ["duplicate"] * 2 + ["singleton_group"] * 2
    first = credit(rows, on_duplicate="first")
    assert first["state_value"] == approx([0.9604, 0.98, None, None])
    assert first["credit"] == [0, 0, None, None]
    assert first["group_status"] == ["singleton"] * 4


def test_identical_duplicates_count_once() -> None:
    rows = [*GOLDEN, dict(GOLDEN[3])]
    table, clean = credit(rows), credit(GOLDEN)
    for name in clean:
        assert table[name][:9] == clean[name]
        assert name == "reason" or table[name][9] == clean[name][3]
    assert table["reason"][9] == "duplicate"
    assert coverage_counts(rows, 0)[9] == 3
    assert coverage_table(rows) == coverage_table(GOLDEN)


def test_the_same_ids_in_two_files() -> None:
    """Two files are two groups; spanning groups merge them, but not their rollouts."""
    rows = [row | {"source_file": file} for file in ("b.jsonl", "a.jsonl") for row in GOLDEN]
    apart, merged = credit(rows), credit(rows, spanning_groups=True)
    for name, values in credit(GOLDEN).items():
        assert apart[name] == values * 2
    assert merged["visits"] == [2 * n for n in apart["visits"]]
    assert merged["step_credit"] == approx(apart["step_credit"], 1e-12)
    assert merged["reachable_rollouts"] == [2 * n for n in apart["reachable_rollouts"]]


def test_long_rollout_weighting() -> None:
    rows = [*rollout("short", "s-win", True), *rollout("long", "s-try t-try u-try", False)]
    by_rollout = credit(rows)
    assert by_rollout["group_advantage"] == four([0.7071] + [-0.7071] * 3)
    assert credit(rows, episode_stats="rows")["group_advantage"] == four([1.5] + [-0.5] * 3)
    assert by_rollout["step_credit"] == [1, -1, 0, 0]


def test_rows_out_of_order() -> None:
    r0, r1 = rollout("r0", "A-f B-h", True), rollout("r1", "A-f2 B-k", False)
    rows = [r0[1], r1[0], r0[0], r1[1]]
    table = credit(rows)
    assert [table["action_value"][i] for i in (1, 2)] == approx([0.4802, 0.4802])
    assert table["credit"][1:3] == [0, 0]
    assert [table["step_credit"][i] for i in (0, 3)] == approx([1, -1])
    assert table["state_value"][0] == approx(0.49)
    assert table["anchor"] == [1, 0, 0, 1]
    assert credit(rows, depth=0)["step_credit"][1:3] == approx([-1, 1])


def test_varying_turn_counts() -> None:
    rows = [
        *rollout("a", "s0-x s1-stop", True),
        *rollout("b", "s0-stop", True),
        *rollout("c", "s0-x s1-x s2-stop", False),
    ]
    table = credit(rows)
    assert table["state_value"][0] == approx(0.6468)
    z = ROOT2 / 2
    assert table["step_credit"] == approx([-z, 1, 2 * z, -z, -1, 0])


def test_group_of_one() -> None:
    rows = rollout("r0", "s-a", True, group="solo")
    zero, raw, drop = (credit(rows, singleton=rule) for rule in ("zero", "raw", "drop"))
    assert zero["state_value"] == zero["action_value"] == approx([0.98])
    assert (zero["step_credit"], zero["group_advantage"]) == ([0], [0])
    assert raw["group_advantage"] == [1]
    for table in (zero, raw, drop):
        assert table["reason"] == ["singleton_group"]
        assert (table["anchor"], table["visits"], table["actions"]) == ([0], [1], [1])
    for name in ("state_value", "action_value", "credit", "step_credit", "advantage"):
        assert drop[name] == [None]


def test_constant_outcome_groups() -> None:
    rows = [
        *rollout("r0", "s-a", True, group="win", reward=1),
        *rollout("r1", "s-b t-c", True, group="win", reward=1),
        *rollout("r0", "s-a t-a", False, group="fail", reward=0),
        *rollout("r1", "s-b", False, group="fail", reward=0),
    ]
    rows[3]["reward"] = 0.2
    table = credit(rows)
    assert table["group_status"] == ["all_success"] * 3 + ["all_fail"] * 3
    assert table["state_value"][:2] == approx([0.9702] * 2)
    assert table["credit"] == approx([0.0098, -0.0098, 0, 0, 0, 0])
    assert table["step_credit"] == approx([0.098, -0.098, 0, 0, 0, 0])
    assert table["group_advantage"] == [0] * 6
    summed = credit(rows, reward="sum", scale="none")
    assert summed["group_advantage"][3:] == approx([0.1, 0.1, -0.1])
    assert summed["group_status"] == table["group_status"]


def test_nan_and_null_outcomes_are_unscored() -> None:
    rows = [
        one("0", "s", "a", True, reward=1.0),
        one("1", "s", "b", None, reward=math.nan),
        one("2", "s", "b", False, reward=0.0),
        one("3", "s", "a", math.nan, reward=None),
    ]
    table = credit(rows, scale="none")
    assert table["step_credit"] == [1, None, -1, None]
    assert table["state_value"] == approx([0.49, None, 0.49, None])
    assert table["group_advantage"] == [0.5, None, -0.5, None]
    assert table["reason"] == [None, "unscored", None, "unscored"]
    assert table["anchor"] == [0, None, 0, None]
    failed = credit(rows, unscored="fail")
    assert failed["state_value"] == approx([0.245] * 4)
    assert failed["step_credit"] == approx([1, -1, -1, 1])
    with pytest.raises(OracleError, match="no outcome"):
        oracle.credit_rows(rows, unscored="error")
    assert credit(rows[1:2])["group_status"] == ["unscored"]
    for reward in ("last", "sum"):  # a sum of nothing but nulls is no reward either
        by_reward = credit([row | {"success": True} for row in rows], reward=reward)
        assert by_reward["reason"] == [None, "unscored", None, "unscored"]


def test_std_conventions() -> None:
    rows = [one("r0", "s", "a", True), one("r1", "s", "b", False)]
    assert credit(rows)["group_advantage"] == four([0.7071, -0.7071])
    assert credit(rows, ddof=0)["group_advantage"] == four([1, -1])
    assert credit(rows, scale="none")["group_advantage"] == [0.5, -0.5]
    assert credit(rows, estimator="rloo")["group_advantage"] == [1, -1]
    assert credit(rows)["step_credit"] == [1, -1]
    trl = credit(rows, eps=1e-4)["group_advantage"]  # case logged-advantage
    assert trl == approx([0.7070068, -0.7070068], 6e-8)
    assert credit(rows)["group_advantage"][0] == approx(0.7071058, 6e-8)


def test_intermediate_rewards_are_ignored_by_default() -> None:
    rows = [*rollout("r0", "s-push t-push u-finish", True), *rollout("r1", "s-wait s-wait", False)]
    for row, reward in zip(rows, (0.1, 1.0, 10.0, -0.1, -0.1), strict=True):
        row |= {"reward": reward, "success": reward == 10}
    table = credit(rows)
    assert table["state_value"][0] == approx(0.465937)
    assert table["step_credit"] == approx([ROOT2, 0, 0, -ROOT2 / 2, -ROOT2 / 2])
    total = credit(rows, reward="sum", scale="none")["group_advantage"]
    assert total == approx([5.65] * 3 + [-5.65] * 2)
    # By hand: V(u) = β, V(t) = 1 + βV(u), V(s) = (0.1 + βV(t) − 0.1 + βV(s) + 0)/3.
    shaped = credit(rows, intermediate_rewards=True)
    v_t = 1 + 0.98**2
    v_s = 0.98 * v_t / (3 - 0.98)
    assert shaped["state_value"] == approx([v_s, v_t, 0.98, v_s, v_s], 1e-12)
    assert shaped["action_value"][0] == approx(0.1 + 0.98 * v_t, 1e-12)
    assert shaped["action_value"][3] == approx((-0.1 + 0.98 * v_s) / 2, 1e-12)
    local = credit(rows, intermediate_rewards=True, depth=0)
    assert local["action_value"] == approx([0.1 + 0.98 * v_t, v_t, 0.98, -0.05, -0.05], 1e-12)


@pytest.mark.parametrize(
    ("rule", "v_s", "v_t", "steps"),
    [
        ("fail", 0.320133, 0.49, [0.7071, 1, 0.7071, -1, -1.4142]),
        ("censor", 0.640267, 0.98, [0.7071, 0, 0.7071, None, -1.4142]),
        ("exclude", 0.4802, 0.98, [1, 0, None, None, -1]),
        ("bootstrap", 0.470877, 0.720730, [0.7071, 1, 0.7071, -1, -1.4142]),
    ],
)
def test_time_limit_truncation(rule: str, v_s: float, v_t: float, steps: list[float]) -> None:
    rows = [
        *rollout("r0", "S-a T-c", True),
        *rollout("r1", "S-a T-d", False, truncated=True, next_observation="S"),
        *rollout("r2", "S-b", False),
    ]
    table = credit(rows, truncated=rule)
    assert table["state_value"][:2] == approx([v_s, v_t])
    assert table["step_credit"] == four(steps)


def test_missing_terminal_row() -> None:
    rows = [*rollout("r0", "A-x B-y", False, done=False), *rollout("r1", "A-x B-z", True)]
    for rule in ("fail", "bootstrap"):
        table = credit(rows, truncated=rule)
        assert table["state_value"] == approx([0.4802, 0.49] * 2)
        assert table["step_credit"] == approx([0, -1, 0, 1])
    undiscounted = credit(rows, discount=1.0)
    assert undiscounted["state_value"] == [0.5] * 4
    assert undiscounted["step_credit"] == approx([0, -1, 0, 1])
    censored = credit(rows, truncated="censor")
    assert censored["state_value"] == approx([0.9604, None, 0.9604, 0.98])
    assert censored["step_credit"] == [0, None, 0, 0]
    assert censored["group_status"] == ["singleton"] * 4


def test_dict_and_null_observation() -> None:
    observations = [{"page": "cart", "modal": None}, {"modal": None, "page": "cart"}]
    rows = [one(i, observations[i], ["pay", "back"][i], i == 0) for i in range(2)]
    table = credit(rows)
    assert table["step_credit"] == [1, -1]
    assert table["state_value"] == approx([0.49] * 2)


def test_volatile_tokens_and_stable_anchor() -> None:
    texts = ["[12:01:07] kitchen", "[12:01:09] kitchen"]
    apart = [one(i, text, f"open {i}", i == 0) for i, text in enumerate(texts)]
    assert credit(apart)["credit"] == [0, 0]
    assert credit(apart)["visits"] == [1, 1]
    masked = [row | {"observation": "kitchen"} for row in apart]
    assert credit(masked)["step_credit"] == [1, -1]


def test_aliased_observation() -> None:
    rows = [*rollout("r0", "hall-take hall-open", True), *rollout("r1", "hall-open", False)]
    table = credit(rows)
    assert table["state_value"] == approx([0.485149] * 3)
    assert table["step_credit"] == four([-0.0970, 0.0485, 0.0485])
    rows[1]["observation"] = {"text": "hall", "inventory": "key"}
    assert credit(rows)["step_credit"] == [1, 0, -1]


def test_history_in_observation() -> None:
    """A gap in the steps changes nothing."""
    rows = [one(i, "desk, lamp", ["use", "leave"][i], i == 0, step=i + 1) for i in range(2)]
    assert credit(rows)["step_credit"] == [1, -1]
    assert credit(rows)["state_value"] == approx([0.49] * 2)


def test_long_prompt_columns() -> None:
    rows = rollout("r0", "page0-next page1-next page2-next page3-next", True)
    table = credit(rows)
    assert table["state_value"] == approx([0.922368, 0.941192, 0.960400, 0.98])
    assert table["credit"] == [0] * 4


def test_drifting_schema() -> None:
    rows = [one("r0", "s", "a", 1), one("r1", "s", "b", 0), one("r2", "s", "b", 0)]
    table = credit(rows)
    assert table["state_value"] == approx([0.326667] * 3)
    assert table["step_credit"] == four([1.4142, -0.7071, -0.7071])


def test_rollout_in_several_rows() -> None:
    """Three rows of one rollout count once; the outcome is an expression on the last row."""
    rows = [
        {"group_id": 0, "rollout_id": r, "step": i, "action": "x", "reward": x, "truncated": r == 1}
        for i, (r, x) in enumerate([(0, 1.0), (0, 1.0), (0, 1.0), (1, 0.0)])
    ]

    def won(row: Any) -> bool:
        return bool(row["reward"] >= 1)

    for reward in ("outcome", "last"):
        plain = credit(rows, success_when=won, reward=reward, scale="none")
        assert plain["group_advantage"] == [0.5, 0.5, 0.5, -0.5]
        assert plain["advantage"] == plain["group_advantage"]
        assert plain["reason"] == ["no_anchor"] * 4
    std = credit(rows, success_when=won)["group_advantage"]
    assert std == four([0.7071] * 3 + [-0.7071])
    with pytest.raises(OracleError, match="never guessed"):
        oracle.credit_rows(rows)


def test_explain_one_step() -> None:
    table = credit(GOLDEN)
    row = {name: values[0] for name, values in table.items()}
    assert (row["anchor"], row["visits"], row["actions"]) == (0, 4, 2)
    assert row["action_value"] == approx(0.98 * table["state_value"][M])
    assert table["action_value"][4] == approx(0.98 * table["state_value"][N])
    assert [row["state_value"], row["credit"]] == approx([0.476999, 0.163268])
    assert row["step_credit"] == approx(1)


# --- options without a published number, by hand --------------------------------------------------


def test_missing_observation_is_skipped_by_the_chain() -> None:
    gap = {"group_id": "g", "rollout_id": "t0", "step": 9, "observation": None, "action": "z"}
    rows = [dict(row) for row in GOLDEN]
    for row in rows:
        row["step"] *= 10
    rows.insert(1, gap | {"done": False, "success": True})
    table, clean = credit(rows), credit(GOLDEN)
    for name, values in clean.items():
        if name != "reason":
            assert values == table[name][:1] + table[name][2:]
    assert (table["anchor"][1], table["credit"][1], table["visits"][1]) == (None, None, None)
    assert table["reason"][1] == "no_anchor"
    assert table["advantage"][1] == table["group_advantage"][1] == clean["group_advantage"][0]


def test_trajectory_penalties() -> None:
    rows = [*rollout(0, "s-a t-b", 1), *rollout(1, "s-c t-d", 0)]
    for row, valid in zip(rows, (True, False, False, None), strict=True):
        row["is_action_valid"] = valid
    options: dict[str, Any] = {"penalty": "trajectory", "success_reward": 10, "scale": "none"}
    # Row scores 10, 9.9 | -0.1, 0.
    per_row = credit(rows, **options)["group_advantage"]  # first rows: mean 4.95
    assert per_row == approx([5.05, 4.95, -5.05, -4.95], 1e-12)
    pooled = credit(rows, episode_stats="rows", **options)["group_advantage"]  # mean 4.95
    assert pooled == approx([5.05, 4.95, -5.05, -4.95], 1e-12)
    summed = credit(rows, penalty_unit="sum", **options)["group_advantage"]  # 9.9 and -0.1
    assert summed == approx([5.0, 5.0, -5.0, -5.0], 1e-12)
    assert credit(rows, **options)["step_credit"] == credit(rows)["step_credit"]
    invalid_later = [dict(row) | {"success": 1} for row in rows[:2] + rows[3:]]
    table = credit(invalid_later, penalty="trajectory", success_reward=10)
    assert table["group_advantage"] == [0] * 3  # the first rows are equal: no spread to divide by


def test_step_penalty_enters_the_step_credit_only() -> None:
    rows = [one(0, "s", "a", 1), one(1, "s", "b", 0, is_action_valid=False), one(2, "s", "b", 0)]
    plain = credit(rows)
    table = credit(rows, penalty="step", penalty_size=1, success_reward=10)
    assert table["credit"] == plain["credit"]
    assert table["group_advantage"] == credit(rows, success_reward=10)["group_advantage"]
    raw = [a - 0.1 * x for a, x in zip(plain["credit"], (-1 / 3, 1 / 6, 1 / 6), strict=True)]
    sigma = math.sqrt(sum(a * a for a in raw) / 3)
    assert table["step_credit"] == approx([a / sigma for a in raw], 1e-12)
    all_fail = [row | {"success": 0} for row in rows]  # A = 0, so only the penalty, floored
    table = credit(all_fail, penalty="both")
    assert table["step_credit"] == approx([1 / 3, -1 / 6, -1 / 6], 1e-12)


def test_sigma_of_the_closure() -> None:
    depth_1 = credit(GOLDEN, depth=1, sigma="closure")
    assert depth_1["credit"] == credit(GOLDEN, depth=1)["credit"]
    assert depth_1["step_credit"][S] == approx(0.084835 / 0.163268, 1e-5)
    assert depth_1["state_value"] == credit(GOLDEN, depth=1)["state_value"]


def test_gate_on_successors() -> None:
    """Two actions into one state are gated out by successors, in by actions."""
    rows = [*rollout(0, "S-a M-p", 1), *rollout(1, "S-b M-q", 0)]
    at_zero = {gate: credit(rows, depth=0, gate=gate)["step_credit"] for gate in GATES}
    assert at_zero["actions"] == at_zero["none"] == approx([1, 1, -1, -1])
    assert at_zero["successors"] == approx([0, 1, 0, -1])


GATES = ("actions", "successors", "none")


def test_graded_boundary() -> None:
    rows = [*rollout(0, "s-a", 1, score=1), *rollout(1, "s-b t-c", 0, score=0.25)]
    rows += rollout(2, "s-a t-c", 0, score=0.75, done=False)  # cut: worth 0
    table = credit(rows, boundary="score")
    v_t = 0.98 * 0.125
    assert table["state_value"][2] == approx(v_t, 1e-15)
    assert table["action_value"][:2] == approx([(0.98 + 0.98 * v_t) / 2, 0.98 * v_t], 1e-15)
    local = credit(rows, boundary="score", depth=0)["action_value"]
    assert local[:3] == approx([0.49, 0.98**2 * 0.25, 0.98 * 0.125], 1e-15)
    equal = [one(0, "s", "a", 1, score=0.5), one(1, "s", "b", 0, score=0.5)]
    assert credit(equal, boundary="score")["group_status"] == ["constant"] * 2
    assert credit(equal, boundary="score")["credit"] == [0, 0]


def test_group_status() -> None:
    assert credit(GOLDEN, expected_group_size=5)["group_status"] == ["incomplete"] * 9
    assert credit(GOLDEN, expected_group_size=4)["group_status"] == ["ok"] * 9
    equal = [row | {"reward": 2.0} for row in GOLDEN]
    assert credit(equal, reward="last")["group_status"] == ["constant"] * 9
    assert credit(equal, reward="last")["group_advantage"] == [0] * 9
    only_cut = rollout(0, "S-a S-b", 0, done=False)
    assert credit(only_cut, truncated="exclude")["group_status"] == ["unscored"] * 2
    kept = credit(only_cut, truncated="censor")
    assert kept["reason"] == ["censored"] * 2
    assert kept["state_value"] == [0, None]  # S -> S is left, a closed class


def test_canonical_values() -> None:
    nan = float("nan")
    equal: list[tuple[Any, Any]] = [(1, 1.0), (nan, float("nan")), ({"a": None}, {})]
    equal += [({"a": 1, "b": [2]}, {"b": [2.0], "a": 1})]
    for left, right in equal:
        assert canonical(left) == canonical(right)
        assert hash(canonical(left)) == hash(canonical(right))
    different: list[tuple[Any, Any]] = [
        (1, True),
        (0, False),
        ("1", 1),
        ("", None),
        ([1, 2], [2, 1]),
        ([], {}),
    ]
    different += [("nan", nan), ([None], []), ("a", b"a"), ('{"a": 1}', {"a": 1})]
    for left, right in different:
        assert canonical(left) != canonical(right)


def test_anchor_order_and_rollout_ids() -> None:
    """Anchors are numbered by (rollout, step): integers by value, strings by bytes."""
    by_value = [*rollout(10, "A-x", 1), *rollout(9, "B-x", 0)]
    by_bytes = [*rollout("9", "A-x", 1), *rollout("10", "B-x", 0)]
    assert credit(by_value)["anchor"] == [1, 0]
    assert credit(by_bytes)["anchor"] == [1, 0]


# --- identities, on random groups -----------------------------------------------------------------


def close(left: Any, right: Any) -> None:
    np.testing.assert_allclose(left, right, atol=1e-12, rtol=0)


def random_group(seed: int) -> Rows:
    """A walk on a few states with cycles, self-loops and repeated actions."""
    rng = random.Random(seed)
    rows: Rows = []
    for number in range(rng.randint(2, 7)):
        steps = rng.randint(1, 9)
        path = " ".join(f"{rng.choice('ABCDE')}-{rng.choice('xyz')}" for _ in range(steps))
        rows += rollout(number, path, rng.random() < 0.5)
    return rows


@pytest.mark.parametrize("seed", range(40))
def test_identities(seed: int) -> None:
    rows = random_group(seed)
    [g] = group_matrices(rows)
    beta, n = g.discount, len(g.states)
    inverse = np.linalg.inv(np.eye(n) - beta * g.M)

    close(g.T(g.V), g.V)  # eq. 9
    close(g.average(g.Q), g.V)
    close(g.average(g.Q0), g.V0)  # eq. 6
    close(g.transitions_under(g.mu), g.M)
    d, d_bar, delta = g.V - g.V0, g.T(g.V0) - g.V0, g.B(g.V0) - g.Q0
    close(d, inverse @ d_bar)
    close(g.Q - g.Q0, delta + beta * g.P @ d)  # eq. 24
    a_inf = g.Q - g.V[g.state_of]
    for depth in range(6):
        v, q = g.at(depth)
        power = np.linalg.matrix_power(beta * g.M, depth)
        close(g.V - v, power @ d)  # eq. 22
        a = q - v[g.state_of]
        close(g.average(a), 0)  # centering
        if depth:
            before = np.linalg.matrix_power(beta * g.M, depth - 1)
            close(g.Q - q, beta * g.P @ before @ d)  # eq. 23
            bound = 2 * beta**depth / (1 - beta) * np.abs(d_bar).max()
            assert np.abs(a_inf - a).max() <= bound + 1e-12  # eq. 12
        table = oracle.credit_rows(rows, depth=depth)
        of_row = {visit.row: g.pairs.index(visit.pair) for visit in g.visits}
        ours = [a[of_row[row]] for row in range(len(rows))]
        assert [cells["credit"] for cells in table] == approx(ours, 1e-12)

    for pair in range(len(g.pairs)):  # eq. 21
        terms = [
            g.P[pair, x] * (g.V0[x] - (g.arrival_value(pair, x) or 0.0))
            for x in range(n)
            if g.P[pair, x]
        ]
        assert delta[pair] == approx(beta * sum(terms), 1e-12)

    weights, alpha = np.linspace(0.2, 1, n), 0.3  # eq. 11, with C = A of the closure
    policy = g.mu * (1 + alpha * weights[g.state_of] * a_inf)
    under = g.solve_under(policy)
    m_nu = g.transitions_under(policy)
    gain = alpha * np.linalg.solve(np.eye(n) - beta * m_nu, weights * g.average(a_inf**2))
    close(under - g.V, gain)
    assert (under >= g.V - 1e-12).all()


@pytest.mark.parametrize("seed", range(40))
def test_step_credit_size_and_invariances(seed: int) -> None:
    rows = random_group(seed)
    table = credit(rows)
    by_anchor: dict[int, list[int]] = {}
    for row, anchor in enumerate(table["anchor"]):
        by_anchor.setdefault(anchor, []).append(row)
    for members in by_anchor.values():
        if table["actions"][members[0]] < 2:
            assert [table["step_credit"][row] for row in members] == [0] * len(members)
            continue
        if table["group_status"][0] == "singleton":
            continue
        sigma2 = sum(table["credit"][row] ** 2 for row in members) / len(members)
        mean = sum(table["step_credit"][row] ** 2 for row in members) / len(members)
        assert mean == approx(min(1, sigma2 / 0.01), 1e-9)
        for row in members:
            same = sum(rows[other]["action"] == rows[row]["action"] for other in members)
            bound = math.sqrt((len(members) - same) / same)
            assert abs(table["step_credit"][row]) <= bound + 1e-9

    twice = rows + [row | {"rollout_id": f"copy {row['rollout_id']}"} for row in rows]
    doubled = credit(twice, singleton="raw")
    once = credit(rows, singleton="raw")
    for name in ("state_value", "action_value", "credit", "step_credit"):
        assert doubled[name] == approx(once[name] * 2, 1e-12)

    size = len({row["rollout_id"] for row in rows})
    counts = [coverage_counts(rows, depth) for depth in (0, 1, 2, 3, INF)]
    for before, after in itertools.pairwise(np.array(counts, dtype=int)):
        assert (before >= 1).all()
        assert (before <= after).all()
        assert (after <= size).all()
    assert counts[-1] == table["reachable_rollouts"]


@pytest.mark.parametrize("rule", ["fail", "censor", "exclude", "bootstrap"])
@pytest.mark.parametrize("discount", [0.5, 0.98, 1])
def test_fractions_and_floats_agree_on_random_groups(rule: str, discount: float) -> None:
    for seed in range(15):
        rng = random.Random(seed)
        rows = random_group(seed)
        for row in rows:
            row["success"] = row["success"] if rng.random() < 0.9 else None
            row["truncated"] = rng.random() < 0.4
            row["next_observation"] = rng.choice("ABCDE")
            row["observation"] = row["observation"] if rng.random() < 0.9 else None
        for depth in (0, 2, INF):
            credit(rows, truncated=rule, discount=discount, depth=depth)
