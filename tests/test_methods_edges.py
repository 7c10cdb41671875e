"""Edge behaviour of every estimator, and how methods and presets are written.

The numbers of the first part are those of the published code under std scaling, run on the case
described (CRBC: by its equations); success is worth 10 and an invalid row costs 0.1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from evidence import ROWS, Rollout, merged, numbers, random_rollouts, step_credit

from crbc_cli.errors import OptionError
from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.gigpo import GigpoOptions
from crbc_cli.methods.presets import PRESETS, apply_preset
from crbc_cli.methods.registry import METHODS, describe, parse_method, parse_methods
from crbc_cli.options import CreditOptions, GroupAdvantageOptions

STEPS = ("gigpo", "graphgpo", "g2po", "crbc")


def check(rollouts: Sequence[Rollout], expected: dict[str, list[float]], **options: float) -> None:
    """Asserts step credit of each row (group advantage for grpo), to the digits printed."""
    evidence = merged(rollouts, **options)
    penalty = {"invalid_penalty": "both", "penalty": 0.1}
    for name, values in expected.items():
        step, term = numbers(evidence, name, ROWS | penalty)
        computed = term if name == "grpo" else step.step_credit
        assert computed == pytest.approx(values, abs=6e-4), name


def test_all_failure() -> None:
    rollouts = [Rollout("S-a T-b", False), Rollout("S-b", False), Rollout("T-a S-a", False)]
    check(rollouts, dict.fromkeys(["grpo", *STEPS], [0.0] * 5))


def test_all_failure_with_one_invalid_row_at_a_three_row_anchor() -> None:
    """The std blows the penalty up to unit scale. The rows are S, S, S and T; A_G has 4 votes."""
    rollouts = [
        Rollout("S-a", False, invalid=[0]),
        Rollout("S-a", False),
        Rollout("S-b T-a", False),
    ]
    blown_up = [-1.155, 0.577, 0.577, 0.0]
    check(
        rollouts,
        {"grpo": [-1.5, 0.5, 0.5, 0.5], "gigpo": blown_up, "graphgpo": blown_up, "g2po": blown_up},
        penalty=0.1,
    )
    # CRBC's own penalty only in so far as the run asks for one in the step credit.
    check(rollouts, {"crbc": [0.0] * 4}, penalty=0.0)


def test_all_success_of_lengths_one_and_two() -> None:
    """Rows S-b, S-a, T-c. V(S) = 9.2625 for G2PO: next values 10, 9.5; gains .7375, .2375, .5."""
    check(
        [Rollout("S-b", True), Rollout("S-a T-c", True)],
        {
            "grpo": [0, 0, 0],
            "gigpo": [0.707, -0.707, 0],
            "graphgpo": [0.707, -0.707, 0],
            "g2po": [1.690, -1.723, 0.033],
            "crbc": [0.098, -0.098, 0],
        },
    )


def test_self_loop_before_success() -> None:
    """S-w → S-g → success, and S-g → success."""
    check(
        [Rollout("S-w S-g", True), Rollout("S-g", True)],
        {
            "grpo": [0, 0, 0],
            "gigpo": [-1.155, 0.577, 0.577],
            "graphgpo": [-1.155, 0.577, 0.577],
            "g2po": [-2.309, 1.155, 1.155],
            "crbc": [-0.194, 0.097, 0.097],
        },
    )


def test_a_failure_that_ends_where_another_rollout_succeeded_from() -> None:
    """S-b fails, its last observation is M, from which M-p succeeds (distance 1)."""
    evidence = merged([Rollout("S-a M-p", True), Rollout("S-b", False, then="M")])
    raw = {name: numbers(evidence, name)[0].action_value[2] for name in STEPS}
    assert raw == pytest.approx({"gigpo": 0, "graphgpo": 10 * 0.1**1, "g2po": 0, "crbc": 0})
    assert step_credit(evidence, "graphgpo").tolist() == [0, 0, 0]
    nowhere = numbers(evidence, "graphgpo:failed_ends=nowhere")[0]
    assert nowhere.action_value[2] == pytest.approx(10 * 0.1**3)  # one beyond d(S) = 2


def test_pairs_and_two_to_one_splits_have_one_size() -> None:
    """With ddof 1 two rows are always ±0.7071 and a 2:1 split 0.5774 and 1.1547, whatever the
    gap; CRBC's floor keeps the small gap small."""
    pair = merged([Rollout("S-a", True, rewards=[1.0]), Rollout("S-b", True, rewards=[0.999])])
    assert step_credit(pair, "gigpo") == pytest.approx([0.7071, -0.7071], abs=2e-3)
    split = merged(
        [*[Rollout("S-a", True, rewards=[1.0])] * 2, Rollout("S-b", True, rewards=[0.9])]
    )
    assert step_credit(split, "gigpo") == pytest.approx([0.5774, 0.5774, -1.1547], abs=1e-3)


# --- every method on every size -------------------------------------------------------------------

SPECS = [
    *METHODS,
    "crbc:depth=0",
    "gigpo:similarity=first-fit",
    "gigpo:similarity=order-free",
    "graphgpo:variant=paper",
    "graphgpo:unreachable=zero:normalize_distance=true",
    "g2po:variant=paper:norm=mean",
    "gated-bepo:success=reward:backup=transitions:sweeps=3",
    "gated-bepo:scope=batch",
    "hgpo:base_group=true:history=4",
    "rtmc:norm=std:prior=0",
    "rewardflow:edges=both:last=difference:norm=mean_std",
]

SIZES = {
    "one row, success": [Rollout("S-a", True)],
    "one row, failure": [Rollout("S-a", False)],
    "one row, invalid": [Rollout("S-a", False, invalid=[0], then="S")],
    "one rollout in a cycle": [Rollout("S-a T-a S-a S-b", False, then="T")],
    "all failures": [replace(r, success=False) for r in random_rollouts(1)],
    "all successes": [replace(r, success=True) for r in random_rollouts(2)],
    "a hundred rollouts": [replace(r, group=0) for r in random_rollouts(4, groups=34)][:100],
    "groups of one": [
        Rollout("S-a T-b", True),
        Rollout("S-a T-b", False, group=1),
        Rollout("S-c", True, group=2),
    ],
    "shaped rewards": random_rollouts(6, shaped=True),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spec", SPECS)
def test_numbers_are_finite(spec: str, size: str) -> None:
    """Step methods give a number to every visit; trajectory methods give A_G alone."""
    evidence = merged(SIZES[size], penalty=0.1)
    step, term = numbers(evidence, spec, ROWS)
    assert np.isfinite(step.advantage(term)).all()
    columns = [step.state_value, step.action_value, step.credit, step.step_credit]
    if parse_method(spec).method.kind == "trajectory":
        assert np.isnan(columns).all()
        assert (step.advantage(term) == term).all()
    else:
        assert np.isfinite(columns).all()


@pytest.mark.parametrize("spec", SPECS)
def test_a_lone_row_has_nothing_to_be_compared_with(spec: str) -> None:
    """Exactly 0, but for RTMC (a lone action still gets Q − V') and unscaled Bellman residuals."""
    computed = step_credit(merged([Rollout("S-a", True)]), spec)
    if parse_method(spec).method.kind == "trajectory":
        return
    if spec.startswith("rtmc"):
        # Q = 10; V' = (10 + 2·10)/3 = 10 in a group that always succeeds.
        assert computed == pytest.approx([0.0], abs=1e-12)
        return
    assert computed.tolist() == [0.0]


def test_a_hundred_rollouts_are_in_one_group() -> None:
    evidence = merged(SIZES["a hundred rollouts"])
    assert np.bincount(evidence.rollout_group).tolist() == [100]


def test_no_visits_at_all() -> None:
    evidence: Evidence = merged([Rollout("S-a", True)])
    process = evidence.process
    empty = replace(
        process,
        **{
            f.name: getattr(process, f.name)[:0]
            for f in fields(process)
            if isinstance(getattr(process, f.name), np.ndarray)
        },
        groups=0,
    )
    nothing = Evidence.from_outcomes(empty, anchor_texts=[])
    for spec in SPECS:
        assert len(parse_method(spec).compute(nothing, np.empty(0)).step_credit) == 0


def test_a_rollout_that_does_not_count_has_no_advantage() -> None:
    """A_G is NaN there: the advantage is NaN too, also where the weight of A_G is 0."""
    step, term = numbers(merged([Rollout("S-a", True), Rollout("S-b", False)]), "crbc")
    term[1] = math.nan
    assert np.isnan(step.advantage(term)).tolist() == [False, True]


def test_similarity_needs_texts() -> None:
    evidence = replace(merged([Rollout("S-a", True)]), anchor_texts=None)
    with pytest.raises(OptionError, match="compares texts"):
        step_credit(evidence, "gigpo:similarity=order-free")


# --- methods as typed -----------------------------------------------------------------------------


def test_a_specification_is_read() -> None:
    base, crbc, gigpo, graph, mean = parse_methods(
        "base=crbc:depth=0, crbc,gigpo:gamma=0.9:norm=mean-std,graphgpo:variant=paper:omega=0.8,"
        "my-mean=Dr_GRPO:episode-stats=rows"
    )
    assert (base.label, base.method.name, base.options.depth) == ("base", "crbc", 0)
    assert crbc.options == CreditOptions()
    assert (gigpo.options.gamma, gigpo.options.norm) == (0.9, "mean_std")
    assert graph.options.resolved("statistics") == "transitions"
    assert (mean.label, mean.method.name) == ("my_mean", "dr-grpo")
    assert parse_method("gated-bepo:lambda=0.5").options.lambda_ == 0.5
    assert parse_method("gated-bepo").label == "gated_bepo"
    assert parse_method("hgpo:base-group=TRUE:history=4").options.history == 4


def test_methods_start_from_the_options_of_the_run() -> None:
    credit = CreditOptions(discount=0.9, w_s=1.0)
    run = GroupAdvantageOptions(episode_stats="rows", ddof=0, estimator="rloo")
    crbc = parse_method("crbc:depth=1", credit, run)
    assert crbc.options == replace(credit, depth=1.0)
    assert crbc.trajectory(run) == run
    assert parse_method("grpo:eps=0.001", credit, run).trajectory(run) == replace(
        run, estimator="grpo", eps=0.001
    )
    # The verl-agent family scales A_G if and only if it scales its step term.
    for name in ("gigpo", "graphgpo", "g2po", "rewardflow"):
        for norm, estimator in (("mean", "dr-grpo"), ("mean_std", "grpo")):
            rule = parse_method(f"{name}:norm={norm}").trajectory(run)
            assert rule == replace(run, estimator=estimator)
    assert parse_method("hgpo").trajectory(run) is None
    assert parse_method("rtmc").trajectory(run) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ppo", "method 'ppo' is not known; use one of crbc, grpo"),
        ("", "no method is named"),
        ("crbc,crbc:depth=0", "two methods are called 'crbc'; give one a label"),
        ("a b=crbc", "label 'a b' is not a column prefix"),
        ("gigpo:beta=1", "gigpo: option 'beta=1' is not known; use KEY=VALUE with one of gamma"),
        ("gigpo:gamma", "gigpo: option 'gamma' is not known"),
        ("gigpo:gamma=high", "gigpo: gamma 'high' is not a number"),
        ("gigpo:gamma=nan", "gigpo: gamma 'nan' is not a number"),
        ("gigpo:gamma=1.5", "gigpo: gamma 1.5 is not in [0, 1]"),
        ("gigpo:norm=max", "gigpo: norm 'max' is not known; use one of mean_std, mean"),
        ("hgpo:history=1.5", "hgpo: history '1.5' is not a whole number"),
        ("hgpo:base_group=maybe", "hgpo: base_group 'maybe' is not true or false"),
        ("crbc:depth=-1", "crbc: depth '-1' is not a whole number or inf"),
        ("crbc:gate=x", "crbc: gate 'x' is not known; use one of actions, successors, none"),
        ("crbc:intermediate_rewards=true", "crbc: intermediate_rewards is set once per run"),
        ("grpo:reward=sum", "grpo: reward is set once per run, not for one method; use --reward"),
        ("rtmc:prior=-1", "rtmc: prior -1.0 is not at least 0"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_methods(text)
    line = str(refused.value)
    assert line.startswith(message)
    assert "\n" not in line


def test_options_are_checked_without_the_command_line() -> None:
    with pytest.raises(OptionError, match="norm 'std' is not known"):
        GigpoOptions(norm="std")


def test_defaults_are_those_published() -> None:
    """GiGPO and G2PO 0.95, GraphGPO 0.1, HGPO history 2 and alpha 1, RTMC 0.99 and prior 2,
    RewardFlow 0.9 and mean, CRBC 0.98, 1 and 5; the references' variants."""
    echo = {name: parse_method(name).echo() for name in METHODS}
    assert echo["gigpo"].items() >= {"gamma": 0.95, "norm": "mean_std", "w_s": 1.0}.items()
    assert echo["graphgpo"].items() >= {"omega": 0.1, "variant": "reference"}.items()
    assert echo["g2po"].items() >= {"gamma": 0.95, "variant": "reference"}.items()
    assert echo["hgpo"].items() >= {"history": 2, "alpha": 1.0, "base_group": False}.items()
    assert echo["rtmc"].items() >= {"gamma": 0.99, "prior": 2.0, "norm": "none"}.items()
    assert echo["rewardflow"].items() >= {"gamma": 0.9, "norm": "mean"}.items()
    assert echo["gated-bepo"].items() >= {"gamma": 0.98, "lambda": 0.95, "alpha": 0.5}.items()
    assert echo["crbc"].items() >= {"discount": 0.98, "depth": "inf", "w_s": 5.0}.items()


def test_every_method_is_described() -> None:
    described = json.loads(json.dumps(describe()))
    assert [method["name"] for method in described] == list(METHODS)
    for method in described:
        assert "arXiv" in method["source"]
        assert method["summary"]
        assert all(option["help"] for option in method["options"])
    assert "not a reproduction" in next(m["notes"] for m in described if m["name"] == "gated-bepo")


# --- presets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Rewards 1 and 0 of two one-step rollouts: ±0.5 apart from the mean, std 0.7071.
        ("verl", 0.5 / (math.sqrt(0.5) + 1e-6)),
        ("verl-agent", 5 / (math.sqrt(50) + 1e-6)),
        ("trl", 0.5 / (math.sqrt(0.5) + 1e-4)),
        ("tinker", 0.5),
        ("paper", 5 / (math.sqrt(50) + 1e-6)),
    ],
)
def test_presets_give_their_trainers_numbers(name: str, expected: float) -> None:
    run = apply_preset(name, GroupAdvantageOptions())
    evidence = merged(
        [Rollout("S-a", True), Rollout("S-b", False)], success_reward=run.success_reward
    )
    options = {f.name: getattr(run, f.name) for f in fields(run)}
    step, term = numbers(evidence, PRESETS[name].audit, options)
    group = step.advantage(term) if name != "paper" else term
    assert group == pytest.approx([expected, -expected], abs=1e-12)


def test_presets_name_all_their_conventions() -> None:
    for name, preset in PRESETS.items():
        assert set(preset.settings) == {f.name for f in fields(GroupAdvantageOptions)} - {"reward"}
        kept = apply_preset(name, GroupAdvantageOptions(reward="sum", ddof=0))
        assert (kept.reward, kept.ddof) == ("sum", 1)
    penalised = {n for n, p in PRESETS.items() if p.settings["invalid_penalty"] != "none"}
    assert penalised == {"verl-agent", "paper"}
    for name in penalised:
        free = apply_preset(name, GroupAdvantageOptions(), validity_logged=False)
        assert free.invalid_penalty == "none"
    assert {n for n, p in PRESETS.items() if p.settings["singleton"] == "raw"} == {
        "verl",
        "verl-agent",
    }


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(OptionError, match="--like 'openrlhf' is not known; use one of verl"):
        apply_preset("openrlhf", GroupAdvantageOptions())
