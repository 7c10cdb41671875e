"""Standard errors, intervals and sign reliability: by hand, against slow resampling, calibrated."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import polars as pl
import pytest
from conftest import GOLDEN, ROOT, crbc, golden_rows
from helpers import INF, Columns, Rows, oracle_options, package_credit, rollout, table_of
from scipy.stats import t as student
from test_closed_forms import random_walks
from test_shares import cut

import crbc_cli
import crbc_cli.methods.uncertainty as module
from crbc_cli.errors import OptionError
from crbc_cli.methods.uncertainty import resampling_plan
from crbc_cli.options import UncertaintyOptions
from crbc_cli.tables import UNCERTAINTY_COLUMNS

SOKOBAN = ROOT / "sample_logs" / "sokoban.parquet"
NUMBERS = ("state_value", "action_value", "credit")
BETA = 0.98


def unsure(rows: Rows, **options: Any) -> Columns:
    return package_credit(rows, uncertainty=True, **options)


# --- by hand --------------------------------------------------------------------------------------


def test_two_rollouts_by_hand() -> None:
    """S-a succeeds, S-b fails. Left out in turn, V is 0 and 0.98, 0.49 away from what it is; the
    actions are in one resample each, worth the same there, and alone there, so without credit."""
    found = unsure(rollout("t0", "S-a", 1) + rollout("t1", "S-b", 0))
    jackknife = 1 / 2 * 2 * 0.49**2
    p_state, p_a, p_b = (2 * 0.49 + 0.5) / 3, (0.98 + 0.5) / 2, 0.5 / 2
    pseudo = [p * (1 - p) / n**2 for p, n in ((p_state, 3), (p_a, 2), (p_b, 2))]
    assert found["state_value_se"] == pytest.approx([math.sqrt(jackknife + pseudo[0])] * 2)
    q_a, q_b = BETA**2 * pseudo[1], BETA**2 * pseudo[2]
    assert found["action_value_se"] == pytest.approx([math.sqrt(q_a), math.sqrt(q_b)])
    of_credit = 1 / 2 * 0.49**2 + 1 / 4 * q_a + 1 / 4 * q_b
    assert found["credit_se"] == pytest.approx([math.sqrt(of_credit)] * 2)
    assert found["sign_reliability"] == [0, 0]
    width = student.ppf(0.95, 1) * math.sqrt(q_b)
    assert found["action_value_low"][1] == 0
    assert found["action_value_high"][1] == pytest.approx(min(width, BETA))


def test_groups_that_ended_alike_have_the_whole_posterior() -> None:
    """Three failures: no resample differs, so what is left is Jeffreys' prior with three votes."""
    found = unsure([row for i in range(3) for row in rollout(i, "S-a", 0)])
    p = 0.5 / 4
    assert found["state_value_se"] == pytest.approx([math.sqrt(p * (1 - p) / 5)] * 3)
    assert found["state_value_high"][0] == pytest.approx(
        student.ppf(0.95, 2) * math.sqrt(p * (1 - p) / 5)
    )


# --- against slow resampling ----------------------------------------------------------------------


def numbers_of(rows: Rows, **options: Any) -> dict[Any, tuple[float, float, float]]:
    """V, Q and credit by (observation, action), by the oracle."""
    settings = oracle.Options(**oracle_options(options))
    found = {}
    for group in oracle.read_groups(rows, settings):
        if group.visits:
            values, action_values = oracle.values_at(group, settings.depth)
            for pair, credit in oracle.centered(group, settings.depth).items():
                found[pair] = (float(values[pair[0]]), float(action_values[pair]), credit)
    return found


def resample(rows: Rows, drawn: Sequence[int]) -> Rows:
    """Some rollouts of a group, in the order of their ids, as many times as they are drawn."""
    names = sorted({row["rollout_id"] for row in rows})
    return [
        row | {"rollout_id": copy}
        for copy, number in enumerate(drawn)
        for row in rows
        if row["rollout_id"] == names[number]
    ]


def slow(rows: Rows, plans: Sequence[Sequence[int]], jackknife: bool, **options: Any) -> Any:
    """(variances of V, Q and credit over resamples, sign share) by (observation, action)."""
    full = numbers_of(rows, **options)
    group = len({row["rollout_id"] for row in rows})
    found: dict[Any, list[tuple[float, float, float]]] = defaultdict(list)
    states: dict[Any, list[float]] = defaultdict(list)
    for drawn in plans:
        sample = numbers_of(resample(rows, drawn), **options)
        for pair, numbers in sample.items():
            found[pair].append(numbers)
        for state, value in {pair[0]: v for pair, (v, _, _) in sample.items()}.items():
            states[state].append(value)
    result = {}
    for pair, (v, q, credit) in full.items():
        of = (
            (v, states[pair[0]]),
            (q, [x[1] for x in found[pair]]),
            (credit, [x[2] for x in found[pair]]),
        )
        if jackknife:
            scales = [(group - 1) / group] * 3
        else:
            scales = [group / (group - 1) / max(len(xs), 1) for _, xs in of]
        variances = [
            s * sum((x - full_x) ** 2 for x in xs)
            for s, (full_x, xs) in zip(scales, of, strict=True)
        ]
        same = [x[2] * credit > 0 for x in found[pair]]
        result[pair] = (variances, sum(same) / len(same) if credit and same else None)
    return result


def pseudo(rows: Rows, **options: Any) -> dict[Any, list[float]]:
    """The pseudo-rollout's variances of V, Q and credit, visit by visit."""
    settings = oracle.Options(**oracle_options(options))
    [group] = oracle.read_groups(rows, settings)
    values, action_values = oracle.values_at(group, settings.depth)
    ends = {v.rollout: v.suffix for v in group.visits[::-1]}
    low = min(0.0, *ends.values()) if settings.intermediate_rewards else 0.0
    high = max(1.0, *ends.values()) if settings.intermediate_rewards else 1.0
    outcomes = (
        ends
        if settings.intermediate_rewards
        else {v.rollout: group.rollouts[v.rollout].end_value for v in group.visits}
    )
    constant = len(set(outcomes.values())) == 1

    def visitors(of: Any) -> int:
        return len({v.rollout for v in group.visits if of in (v.state, v.pair)})

    def moved(value: Any, number: int, posterior: bool) -> float:
        share = min(max((float(value) - low) / (high - low), 0.0), 1.0)
        p = (number * share + 0.5) / (number + 1)
        return p * (1 - p) * (high - low) ** 2 / (number + 2 if posterior else (number + 1) ** 2)

    def of_state(state: Any, posterior: bool) -> float:
        return moved(values[state], visitors(state), posterior)

    def of_pair(pair: Any, posterior: bool) -> float:
        own = moved(action_values[pair], visitors(pair), posterior)
        if settings.depth == 0:
            return own
        ahead = [
            own if v.ends else of_state(v.successor, posterior)
            for v in group.visits
            if v.pair == pair
        ]
        return float(group.beta) ** 2 * sum(ahead) / len(ahead)

    result = {}
    for pair in {v.pair for v in group.visits}:
        here = [v.pair for v in group.visits if v.state == pair[0]]
        others = {b: here.count(b) / len(here) for b in set(here)}
        credit = sum(((b == pair) - mu) ** 2 * of_pair(b, False) for b, mu in others.items())
        result[pair] = [of_state(pair[0], constant), of_pair(pair, constant), credit]
    return result


def walks(seed: int, rollouts: int = 5, steps: int = 6) -> Rows:
    """Walks over few anchors, some of them cut, with rewards."""
    rng = np.random.default_rng(seed)
    rows = cut(random_walks(seed, 5, rollouts, steps))
    return [row | {"reward": float(rng.integers(-2, 3)) / 4} for row in rows]


@pytest.mark.parametrize("resampling", ["jackknife", "bootstrap"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"depth": 0},
        {"depth": 2, "discount": 0.9},
        {"truncated": "bootstrap"},
        {"truncated": "bootstrap", "discount": 1.0},
        {"truncated": "censor"},
        {"truncated": "censor", "intermediate_rewards": True},
        {"intermediate_rewards": True, "depth": 1},
    ],
    ids=str,
)
def test_slow_resampling_gives_the_same(options: dict[str, Any], resampling: str) -> None:
    for seed in (1, 2):
        rows = walks(seed)
        how = {"resampling": resampling, "resamples": 9, "seed": 4}
        found = unsure(rows, **how, **options)
        group = len({row["rollout_id"] for row in rows})
        plans = resampling_plan(group, UncertaintyOptions(True, **how)).tolist()
        expected = slow(rows, plans, resampling == "jackknife", **options)
        more = pseudo(rows, **options)
        seen = 0
        for i, row in enumerate(rows):
            if found["credit"][i] is None:
                assert found["credit_se"][i] is None
                continue
            pair = (oracle.canonical(row["observation"]), oracle.canonical(row["action"]))
            variances, share = expected[pair]
            for name, variance, extra in zip(NUMBERS, variances, more[pair], strict=True):
                se = math.sqrt(variance + extra)
                assert found[f"{name}_se"][i] == pytest.approx(se, rel=1e-9, abs=1e-12), name
            assert found["sign_reliability"][i] == pytest.approx(share)
            seen += 1
        assert seen >= 10


def test_excluded_rollouts_are_not_resampled() -> None:
    rows = walks(1)
    left = [
        r for r in rows if r["rollout_id"] not in {x["rollout_id"] for x in rows if x["truncated"]}
    ]
    found, alone = (unsure(x, truncated="exclude") for x in (rows, left))
    taking_part = [i for i, credit in enumerate(found["credit"]) if credit is not None]
    for name in (c.name for c in UNCERTAINTY_COLUMNS):
        assert [found[name][i] for i in taking_part] == alone[name]


# --- what must hold -------------------------------------------------------------------------------


def test_intervals_hold_their_estimates_and_widen_with_the_level() -> None:
    rows = random_walks(5, 8, 8, 12)
    narrow, wide = (unsure(rows, level=level) for level in (0.5, 0.99))
    for name, lowest in zip(NUMBERS, (0, 0, -BETA), strict=True):
        for i, number in enumerate(narrow[name]):
            ends = [
                found[f"{name}_{end}"][i] for end in ("low", "high") for found in (wide, narrow)
            ]
            assert lowest <= ends[0] <= ends[1] <= number <= ends[3] <= ends[2] <= BETA
    assert narrow["credit_se"] == wide["credit_se"]


def test_lone_actions_have_no_credit_to_doubt() -> None:
    found = unsure(golden_rows() + rollout("t4", "L-a", True, group="golden"))
    assert (found["credit"][-1], found["credit_se"][-1], found["credit_high"][-1]) == (0, 0, 0)
    assert found["sign_reliability"][-1] is None
    assert found["state_value_se"][-1] > 0


def test_groups_of_one_rollout_have_no_intervals() -> None:
    for singleton in ("zero", "drop"):
        found = unsure(rollout("t0", "S-a M-p", 1), singleton=singleton)
        for column in UNCERTAINTY_COLUMNS:
            assert found[column.name] == [None, None]


def test_more_rollouts_make_surer() -> None:
    """Four copies of a group: no number changes, and standard errors halve at least nearly."""
    rows = random_walks(9, 4, 8, 6)
    copies = [row | {"rollout_id": f"{row['rollout_id']}-{i}"} for i in range(4) for row in rows]
    once, often = unsure(rows), unsure(copies)
    assert often["state_value"][: len(rows)] == pytest.approx(once["state_value"])
    for name in NUMBERS:
        before, after = np.array(once[f"{name}_se"]), np.array(often[f"{name}_se"])[: len(rows)]
        assert (after < before).all()
        assert np.median(after / before) < 0.55


@pytest.mark.parametrize("resampling", ["jackknife", "bootstrap"])
def test_batches_do_not_matter(resampling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of several sizes, all resamples at once or one by one."""
    rows = random_walks(2, 6, 7, 9)
    for size in (1, 2, 4):
        rows += [row | {"group_id": f"of {size}"} for row in random_walks(size, 6, size, 9)]
    how = {"resampling": resampling, "resamples": 11}
    expected = unsure(rows, **how)
    for visits in (1, 200):
        monkeypatch.setattr(module, "_BATCH_VISITS", visits)
        assert repr(unsure(rows, **how)) == repr(expected)


def test_seeds() -> None:
    rows = random_walks(2, 6, 7, 9)
    first, again, other = (
        unsure(rows, resampling="bootstrap", resamples=20, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first["credit_se"] != other["credit_se"]
    assert first["credit"] == other["credit"]


def test_thoughts_whose_credit_is_set_to_0(tmp_path: Path) -> None:
    """A thought carries how sure its step's V and Q are; of the 0 there is nothing to say."""
    rules = tmp_path / "rules.toml"
    rules.write_text('schema = 1\nname = "react"\ntitle = "t"\nthought = ["^think:"]\n')
    rows = rollout("t0", "S-think:x S-a", 1) + rollout("t1", "S-b", 0)
    found = unsure(rows, rules=str(rules), thoughts="zero")
    assert found["state_value_se"][0] == found["state_value_se"][1] > 0
    assert (found["credit"][0], found["credit_se"][0]) == (0, None)
    assert found["sign_reliability"][0] is None
    carried = unsure(rows, rules=str(rules))
    assert carried["credit_se"][0] == carried["credit_se"][1] == found["credit_se"][1]


# --- calibration ----------------------------------------------------------------------------------


def coverage(resampling: str, level: float) -> tuple[dict[str, float], float]:
    """Share of the steps of the Sokoban log whose interval holds the truth, and the share of right
    signs where all resamples agree."""
    log = pl.read_parquet(SOKOBAN)
    options = {"resampling": resampling, "level": level}
    table = pl.from_arrow(crbc_cli.credit(log.to_arrow(), uncertainty=True, **options))
    assert isinstance(table, pl.DataFrame)
    truth = {
        "state_value": "true_value",
        "action_value": "true_action_value",
        "credit": "true_advantage",
    }
    several = (table["actions"] > 1).to_numpy()
    shares = {}
    for name, column in truth.items():
        x = log[column].to_numpy()
        low, high = (table[f"{name}_{end}"].to_numpy() for end in ("low", "high"))
        holds = (low - 1e-9 <= x) & (x <= high + 1e-9)
        shares[name] = float(holds[several if name == "credit" else slice(None)].mean())
    sure = (table["sign_reliability"] == 1).fill_null(False).to_numpy()
    sure &= np.abs(log["true_advantage"].to_numpy()) > 1e-6
    same = np.sign(table["credit"].to_numpy()) == np.sign(log["true_advantage"].to_numpy())
    return shares, float(same[sure].mean())


@pytest.mark.parametrize("resampling", ["jackknife", "bootstrap"])
def test_intervals_hold_the_truth_as_often_as_they_say(resampling: str) -> None:
    """Nominal 90 % intervals of the Sokoban log, whose exact V, Q and Q - V are known."""
    shares, signs = coverage(resampling, 0.9)
    for name, share in shares.items():
        assert 0.8 <= share <= 0.97, (name, share)
    assert signs >= 0.95


# --- on the command line --------------------------------------------------------------------------


def test_columns_of_annotate(tmp_path: Path) -> None:
    output = tmp_path / "credit.parquet"
    arguments = ("--uncertainty", "--level", "0.8", "--resampling", "bootstrap", "--seed", "3")
    assert crbc("annotate", GOLDEN, "-o", output, *arguments, "--profile").code == 0
    frame = pl.read_parquet(output)
    names = [c.name for c in UNCERTAINTY_COLUMNS]
    assert [n for n in frame.columns if n in names] == names
    expected = unsure(golden_rows(), level=0.8, resampling="bootstrap", seed=3)
    for name in names:
        assert frame[name].to_list() == expected[name]
    assert not set(names) & set(crbc_cli.credit(table_of(golden_rows())).column_names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "gigpo"], "use it with --method crbc alone"),
        (["--methods", "crbc,gigpo"], "use it with --method crbc alone"),
        (["--level", "1"], "--level 1.0 is not between 0 and 1"),
        (["--resamples", "1"], "--resamples 1 is below 2"),
        (["--seed", "-1"], "--seed -1 is negative"),
        (["--resampling", "halves"], "use one of jackknife, bootstrap"),
    ],
)
def test_refusals(arguments: list[str], message: str) -> None:
    line = crbc("annotate", GOLDEN, "-o", "-", "--to", "csv", "--uncertainty", *arguments).refused()
    assert message in line


def test_depth_of_a_method_is_that_of_its_uncertainty() -> None:
    own = crbc_cli.credit(table_of(golden_rows()), method="crbc:depth=1", uncertainty=True)
    run = unsure(golden_rows(), depth=1)
    assert own["credit_se"].to_pylist() == run["credit_se"]
    with pytest.raises(OptionError):
        crbc_cli.credit(table_of(golden_rows()), method="grpo", uncertainty=True)
    assert INF not in run["credit_high"]
