"""`crbc explain`: one group or one step, the numbers of annotate and what they were made from."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from conftest import GOLDEN, ROOT, crbc, program
from helpers import INF, Rows, approx, four, prepared, rollout, write_log
from rich.cells import cell_len

import crbc_cli
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.explain import explain_group, explain_step
from crbc_cli.engine.explanation import GroupExplanation, StepExplanation
from crbc_cli.errors import OptionError
from crbc_cli.logs.fetch import fetch_text
from crbc_cli.logs.sources import Source, resolve
from crbc_cli.report.formulas import Formula, step_formulas

SAMPLES = ROOT / "sample_logs"
STEP_COLUMNS = ("state_value", "action_value", "credit", "step_credit", "group_advantage")


def group_of(*inputs: object, **options: Any) -> GroupExplanation:
    found = crbc_cli.explain([str(i) for i in inputs], **options)
    assert isinstance(found, GroupExplanation)
    return found


def step_of(*inputs: object, step: str, **options: Any) -> StepExplanation:
    found = crbc_cli.explain([str(i) for i in inputs], step=step, **options)
    assert isinstance(found, StepExplanation)
    return found


def words(text: str) -> str:
    """Text without its layout: one blank between words."""
    return " ".join(text.split())


# --- the golden group -----------------------------------------------------------------------------

# V, Q(a), Q(b), A(a), A_S at S (algorithms, section 2.10). Q(b) by hand: at depth 0 the mean of
# 0.98³ and 0, at depth 1 0.98·V⁰(N), at full closure 0.98·V(N).
GOLDEN_NUMBERS = {
    0: (0.475398, 0.4802, 0.98**3 / 2, 0.004802, 0.0480),
    1: (0.555431, 0.98 * 0.98 * 2 / 3, 0.98 * 0.4802, 0.084835, 0.8484),
    INF: (0.476999, 0.640267, 0.313731, 0.163268, 1.0),
}


@pytest.mark.parametrize("depth", GOLDEN_NUMBERS)
def test_first_step_of_the_golden_group(depth: float) -> None:
    value, q_a, q_b, credit, step_credit = GOLDEN_NUMBERS[depth]
    text = "inf" if depth == INF else str(depth)
    ended = crbc(
        "explain", GOLDEN, "--group", "golden", "--step", "t0:0", "--depth", text, "--json"
    )
    assert (ended.code, ended.stderr) == (0, "")
    report = ended.json
    anchor = report["anchor"]
    assert (report["schema_version"], report["report"]) == (1, "explain")
    assert (anchor["anchor"], anchor["observation"], anchor["visit_count"]) == (0, "S", 4)
    assert [(a["action"], a["count"]) for a in anchor["actions"]] == [("a", 2), ("b", 2)]
    assert [a["action_value"] for a in anchor["actions"]] == approx([q_a, q_b])
    assert anchor["state_value"] == approx(value)
    # Two actions, taken equally often, lie one sigma from their mean.
    assert report["step"]["credit"] == approx(credit)
    assert anchor["sigma"] == approx(credit)
    assert report["step"]["step_credit"] == four(step_credit)
    # One vote per rollout, ddof 1: (1 - 1/2)/sqrt(1/3).
    assert report["step"]["group_advantage"] == four(0.8660)
    assert report["step"]["advantage"] == pytest.approx(0.8660 + 5 * step_credit, abs=3e-4)
    successors = [x for a in anchor["actions"] for x in a["successors"]]
    assert [(x["anchor"], x["boundary"], x["count"]) for x in successors] == [
        (1, None, 2),
        (2, None, 2),
    ]
    # At M the two successes of three visits are worth 0.98 at any depth; V⁰(N) = 0.98²/2.
    worth = {0: [None, None], 1: [0.98 * 2 / 3, 0.98**2 / 2], INF: [0.98 * 2 / 3, 0.320133]}
    assert [x["value"] for x in successors] == approx(worth[depth])
    assert [(v["rollout_id"], v["step"], v["action_index"]) for v in anchor["visits"]] == [
        ("t0", 0, 0),
        ("t1", 0, 0),
        ("t2", 0, 1),
        ("t3", 0, 1),
    ]
    assert [v["suffix_return"] for v in anchor["visits"]] == approx([0.98**2, 0, 0.98**3, 0])
    assert [r["rollout_id"] for r in report["reachable"]] == ["t0", "t1", "t2", "t3"]
    assert [(s["anchor"], s["observation"]) for s in report["successors"]] == [(1, "M"), (2, "N")]


GOLDEN_LINES = {
    "inf": (
        "Q(a) = 0.98 * V(M) = 0.98 * 0.653333 = 0.640267",
        "Q(b) = 0.98 * V(N) = 0.98 * 0.320133 = 0.313731",
        "V = 2/4 * 0.640267 + 2/4 * 0.313731 = 0.476999",
        "A(a) = 0.640267 - 0.476999 = 0.163268",
        "sigma = sqrt(2/4 * 0.163268^2 + 2/4 * (-0.163268)^2) = 0.163268",
        "A_S = 0.163268 / max(0.163268, 0.1) = 1.0000",
        "A_G = (1.000000 - 0.500000) / (0.577350 + 1e-06) = 0.8660",
        "advantage = 1 * 0.8660 + 5 * 1.0000 = 5.8660",
    ),
    "1": ("Q^1(b) = 0.98 * V^0(N) = 0.98 * 0.480200 = 0.470596",),
    "0": (
        "Q^0(a) = (0.960400 + 0.000000) / 2 = 0.480200",
        "A_S = 0.004802 / max(0.004802, 0.1) = 0.0480",
        "damped: sigma is below the floor",
    ),
}


@pytest.mark.parametrize("depth", GOLDEN_LINES)
def test_formulas_name_what_they_are_made_of(depth: str) -> None:
    text = words(crbc("explain", GOLDEN, "--step", "t0:0", "--depth", depth).text)
    for line in GOLDEN_LINES[depth]:
        assert line in text


def test_the_golden_group_as_text() -> None:
    text = words(crbc("explain", GOLDEN, "--group", "golden").text)
    assert "group golden: ok" in text
    assert "4 rollouts, 9 steps, 3 anchors" in text
    assert "t2 success 3 +0.8660" in text
    assert "#1 M 3 visits by 3 rollouts, 3 reachable; V 0.653333, sigma 0.461976" in text
    assert "q 1 0.000000 -0.653333 -1.4142 failure x1" in text


# --- the same numbers as annotate -----------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "closure": {},
    "depth 0": {"depth": 0, "episode_stats": "rows"},
    "depth 2": {"depth": 2, "sigma": "closure", "estimator": "rloo"},
    "penalty": {"invalid_penalty": "both", "success_reward": 10.0, "penalty": 0.5},
    "penalty sum": {"invalid_penalty": "both", "penalty_unit": "sum", "depth": 1, "ddof": 0},
    "rewards": {"intermediate_rewards": True, "reward": "sum", "gate": "successors"},
    "bootstrap": {"truncated": "bootstrap", "estimator": "dr-grpo"},
    "censor": {"truncated": "censor"},
    "exclude": {"truncated": "exclude", "gate": "none", "floor": 1e-9},
}
LOGS = [
    ("sokoban", "sokoban-0003", "closure"),
    ("sokoban", "sokoban-0004", "rewards"),
    ("sokoban", "sokoban-0005", "bootstrap"),
    ("sokoban", "sokoban-0009", "censor"),
    ("alfworld", "alfworld-0002", "depth 0"),
    ("alfworld", "alfworld-0003", "depth 2"),
    ("alfworld", "alfworld-0001", "penalty"),
    ("alfworld", "alfworld-0001", "penalty sum"),
    ("alfworld", "alfworld-0004", "exclude"),
]


@pytest.mark.parametrize(("log", "group", "setting"), LOGS)
def test_json_holds_what_annotate_writes(
    log: str, group: str, setting: str, tmp_path: Path
) -> None:
    """All rows of the log are annotated, one group is explained: not a bit differs."""
    path, options = SAMPLES / f"{log}.parquet", SETTINGS[setting]
    crbc_cli.annotate([str(path)], str(tmp_path / "credit.parquet"), **options)
    frame = pl.read_parquet(tmp_path / "credit.parquet").filter(pl.col("group_id") == group)
    rows = {(row["rollout_id"], row["step"]): row for row in frame.to_dicts()}
    report = group_of(path, group=group, **options).to_dict()
    report = json.loads(json.dumps(report, allow_nan=False))
    assert sum(len(r["steps"]) for r in report["rollouts"]) == len(rows)
    for ended in report["rollouts"]:
        for step in ended["steps"]:
            row = rows[ended["rollout_id"], step["step"]]
            for name in ("source_row", "anchor", *STEP_COLUMNS, "advantage", "reason"):
                assert step[name] == row[name], name
            if step["anchor"] is None:
                assert step["action_index"] is None
                continue
            anchor = report["anchors"][step["anchor"]]
            action = anchor["actions"][step["action_index"]]
            assert anchor["anchor"] == step["anchor"]
            assert anchor["visit_count"] == row["visits"]
            assert len(anchor["actions"]) == row["actions"]
            assert anchor["reachable_rollouts"] == row["reachable_rollouts"]
            assert anchor["state_value"] == row["state_value"]
            for name in ("action_value", "credit", "step_credit"):
                assert action[name] == row[name], name
    assert report["group_status"] == frame["group_status"][0]


def test_counts_are_those_of_the_rows() -> None:
    """Actions and successors counted again from the log's own text."""
    frame = pl.read_parquet(SAMPLES / "sokoban.parquet")
    frame = frame.filter(pl.col("group_id") == "sokoban-0006").sort("rollout_id", "step")
    expected: Counter[tuple[str, str, str]] = Counter()
    rows = frame.to_dicts()
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        inside = following is not None and following["rollout_id"] == row["rollout_id"]
        end = "success" if row["success"] else "failure"
        after = following["observation"] if following is not None and inside else end
        expected[row["observation"], row["action"], after] += 1
    group = group_of(SAMPLES / "sokoban.parquet", group="sokoban-0006")
    found: Counter[tuple[Any, Any, Any]] = Counter()
    for anchor in group.anchors:
        assert sum(action.count for action in anchor.actions) == len(anchor.visits)
        for action in anchor.actions:
            assert sum(x.count for x in action.successors) == action.count
            for x in action.successors:
                after = group.anchors[x.anchor].observation if x.anchor is not None else x.boundary
                found[anchor.observation, action.action, after] += x.count
    assert found == expected


# --- formulas -------------------------------------------------------------------------------------


def computed(formula: Formula) -> float | None:
    """The filled formula, worked out; None where it is empty or cut short."""
    expression = formula.filled.split(" = ")[-1].replace("^", "**")
    if not expression or "…" in expression:
        return None
    scope = {"__builtins__": {}, "sqrt": math.sqrt, "max": max, "success": 1, "failure": 0}
    return float(eval(expression, scope))


@pytest.mark.parametrize(("log", "group", "setting"), LOGS)
def test_filled_formulas_give_their_results(log: str, group: str, setting: str) -> None:
    """Numbers in a formula have 6 decimals (4 in the last line), so its result is as good as
    that: rounding is divided by sigma's floor of 0.1 at most, or by the std of the scores."""
    found = group_of(SAMPLES / f"{log}.parquet", group=group, **SETTINGS[setting])
    names = [f"{r.rollout_id}:{s.step}" for r in found.rollouts for s in r.steps]
    checked = Counter[str]()
    for name in names[:: max(len(names) // 12, 1)]:
        step = step_of(SAMPLES / f"{log}.parquet", group=group, step=name, **SETTINGS[setting])
        for formula in step_formulas(step):
            result = computed(formula)
            if result is None or formula.value is None:
                continue
            coarse = formula.symbol == "advantage" or found.settings.credit.floor < 0.01
            tolerance = 1e-3 if coarse else 3e-5
            assert result == pytest.approx(formula.value, abs=tolerance), (name, formula)
            checked[re.sub(r"\^?[0-9]*\(.*", "", formula.symbol)] += 1
    assert checked["Q"] > 10
    assert checked["advantage"] > 2


@pytest.mark.parametrize("setting", SETTINGS)
def test_terms_of_the_group_advantage(setting: str) -> None:
    """(score - mean)/divisor is the row's group advantage, whatever the estimator."""
    path, group = SAMPLES / "alfworld.parquet", "alfworld-0001"
    for name in ("0:0", "2:5", "7:3"):
        step = step_of(path, group=group, step=name, **SETTINGS[setting])
        terms = step.trajectory
        if terms is None:
            assert step.step.group_advantage is None
            continue
        assert terms.divisor is not None
        assert (terms.score - terms.mean) / terms.divisor == pytest.approx(
            step.step.group_advantage, abs=1e-12
        )


def test_steps_need_only_some_anchors() -> None:
    step = step_of(SAMPLES / "sokoban.parquet", group="sokoban-0003", step="3:0")
    whole = group_of(SAMPLES / "sokoban.parquet", group="sokoban-0003")
    assert step.anchor is not None
    shown = {x.anchor for a in step.anchor.actions for x in a.successors} - {None}
    assert {a.anchor for a in step.group.anchors} == shown | {step.anchor.anchor}
    for anchor in step.group.anchors:
        assert anchor == whole.anchors[anchor.anchor]
    assert len(step.reachable) == step.anchor.reachable_rollouts


# --- rows that take no part, or no ordinary one ---------------------------------------------------


def told(rows: Rows, step: str, tmp_path: Path, *arguments: object) -> tuple[Any, str]:
    """(JSON, text) of one step."""
    path = write_log(rows, tmp_path / "log.jsonl")
    as_json = crbc("explain", path, "--step", step, "--json", *arguments)
    as_text = crbc("explain", path, "--step", step, *arguments)
    assert as_json.code == as_text.code == 0, as_json.stderr
    return as_json.json, words(as_text.text)


CUT = [*rollout("t0", "S-a M-p", 1), *rollout("t1", "S-b M-q", 0, truncated=True)]
UNSCORED = [*rollout("t0", "S-a", 1), *rollout("t1", "S-b", None), *rollout("t2", "S-b", 0)]
UNSEEN = [*rollout("t0", "S-a", 1), *rollout("t1", "S-b T-c", 0)]
UNSEEN[1] = UNSEEN[1] | {"observation": None}


@pytest.mark.parametrize(
    ("rows", "step", "arguments", "reason", "text"),
    [
        (UNSCORED, "t1:0", [], "unscored", "the rollout has no outcome"),
        (
            CUT,
            "t1:1",
            ["--truncated", "exclude"],
            "excluded",
            "the rollout was cut and --truncated exclude",
        ),
        (CUT, "t1:1", ["--truncated", "censor"], "censored", "the rollout was cut under"),
        (UNSEEN, "t1:0", [], "no_anchor", "the row has no observation"),
    ],
)
def test_rows_that_take_no_part(
    rows: Rows, step: str, arguments: list[str], reason: str, text: str, tmp_path: Path
) -> None:
    report, shown = told(rows, step, tmp_path, *arguments)
    assert report["step"]["reason"] == reason
    assert report["anchor"] is None
    assert report["step"]["credit"] is None
    assert report["reachable"] == []
    assert f"{reason}: {text}" in shown
    assert [f["symbol"] for f in report["formulas"]] == ["A_G", "advantage"]
    if reason != "no_anchor":
        assert "advantage = none" in shown


def test_groups_without_a_rollout_that_counts(tmp_path: Path) -> None:
    path = write_log(rollout("t0", "S-a", None), tmp_path / "log.jsonl")
    report = crbc("explain", path, "--json").json
    assert (report["group_status"], report["anchors"]) == ("unscored", [])
    assert [r["outcome"] for r in report["rollouts"]] == ["unscored"]
    assert "group g: unscored" in crbc("explain", path).text


@pytest.mark.parametrize(
    ("singleton", "step_credit", "group_advantage"),
    [("zero", 0.0, 0.0), ("raw", (0.98 - 0.49 / 0.51) / 0.1, 1.0), ("drop", None, None)],
)
def test_singletons(
    singleton: str, step_credit: float | None, group_advantage: float | None, tmp_path: Path
) -> None:
    """S-a leads back to S and S-b to success: V = (0.98·V + 0.98)/2, so V = 0.49/0.51. The credit
    of b, 0.98 - V = 0.019, is one sigma and below the floor of 0.1."""
    report, text = told(rollout("t0", "S-a S-b", 1), "t0:1", tmp_path, "--singleton", singleton)
    assert report["step"]["step_credit"] == approx(step_credit)
    assert report["step"]["group_advantage"] == group_advantage
    assert report["trajectory"] is None
    assert "singleton_group: one rollout counts in the group" in text
    assert ("Q(b) = 0.98 * success" in text) == (singleton != "drop")
    assert ("/ max(" in text) == (singleton == "raw")


def test_identical_copies_and_discarded_rows_are_left_out(tmp_path: Path) -> None:
    rows = rollout("t0", "S-a M-p", 1) + rollout("t1", "S-b", 0)
    path = write_log([*rows, rows[0]], tmp_path / "copy.jsonl")
    group = group_of(path)
    assert [len(r.steps) for r in group.rollouts] == [2, 1]
    assert len(group.anchors[0].visits) == 2
    changed = rows[0] | {"action": "b"}
    path = write_log([*rows, changed], tmp_path / "changed.jsonl")
    kept = step_of(path, step="t0:0", on_duplicate="last")
    assert (kept.action, kept.step.source_row) == ("b", 3)


def test_thoughts_carry_the_numbers_of_the_step_that_follows(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('schema = 1\nname = "react"\ntitle = "t"\nthought = ["^think:"]\n')
    rows = rollout("t0", "S-think:x S-a", 1) + rollout("t1", "S-b E-think:y", 0)
    report, text = told(rows, "t0:0", tmp_path, "--rules", rules)
    assert report["step"]["carried_from"] == 1
    assert report["action"] == "think:x"
    # S-a succeeds, S-b fails: V = 0.49, and the thought is no visit.
    assert report["anchor"]["visit_count"] == 2
    assert report["step"]["credit"] == approx(0.49)
    assert "a thought: it carries the numbers of step 1" in text
    report, text = told(rows, "t0:0", tmp_path, "--rules", rules, "--thoughts", "zero")
    assert (report["step"]["credit"], report["step"]["step_credit"]) == (0, 0)
    assert "A_S = 0.0000" in text
    report, text = told(rows, "t1:1", tmp_path, "--rules", rules)
    assert (report["anchor"], report["step"]["reason"]) == (None, "not_a_step")


def test_closed_gates_and_flat_anchors_say_so(tmp_path: Path) -> None:
    rows = rollout("t0", "S-a M-p", 1) + rollout("t1", "S-b M-p", 1)
    _, text = told(rows, "t0:1", tmp_path)
    assert "gate closed: one action was seen at this anchor" in text
    assert "all_success: every rollout that counts succeeded" in text
    _, text = told(rows, "t0:0", tmp_path)
    assert "no spread: all actions of this anchor are worth the same" in text
    _, text = told(rows, "t0:1", tmp_path, "--gate", "successors")
    assert "gate closed: one successor was seen" in text


def test_graded_boundaries_show_their_worth(tmp_path: Path) -> None:
    """Two failures worth 0.2 and 0.6 behind one action: Q = 0.98·0.4."""
    rows = rollout("t0", "S-a", 0, score=0.2) + rollout("t1", "S-a", 0, score=0.6)
    report, text = told(rows, "t0:0", tmp_path, "--boundary", "score")
    assert "Q(a) = 0.98 * failure = 0.98 * 0.4 = 0.392000" in text
    assert report["anchor"]["actions"][0]["successors"][0]["value"] == pytest.approx(0.4)
    assert "boundary score" in text


# --- finding the group and the step ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--group", "goldn"], "no group 'goldn'; did you mean golden?"),
        (["--group", "gold"], "no group 'gold'"),
        (["--group", "7"], "no group '7'; known: golden"),
        (["--step", "t9:0"], "the group has no rollout 't9'; known: t0, t1"),
        (["--step", "t0:7"], "rollout 't0' has no step 7; its steps run from 0 to 1"),
        (["--step", "t0"], "--step 't0' is not ROLLOUT:STEP"),
        (["--step", "t0:x"], "--step 't0:x' is not ROLLOUT:STEP"),
        (["--file", "other.jsonl"], "--file 'other.jsonl' is no input"),
        (["--key-value", "step"], "--key-value 'step' is not COLUMN=VALUE"),
        (["--key-value", "step=0"], "--key-value step=… names no --key column"),
        (["--key", "step"], "group 'golden' occurs 3 times"),
        (["--key", "step", "--key-value", "step=9"], "no group with these key values"),
        (["--depth", "half"], "depth 'half' is not a whole number or inf"),
    ],
)
def test_refusals(arguments: list[str], message: str) -> None:
    assert message in crbc("explain", GOLDEN, *arguments).refused()


def test_logs_of_several_groups_need_a_name() -> None:
    line = crbc("explain", SAMPLES / "sokoban.parquet").refused()
    assert "the log has 16 groups; choose one with --group: sokoban-0000, " in line
    assert "no rows" in crbc("explain", SAMPLES / "broken" / "empty.jsonl").refused()


def test_ids_match_as_they_are_written(tmp_path: Path) -> None:
    rows = rollout("a:b", "S-a", 1, group=7) + rollout("a", "S-b", 0, group=7)
    rows += rollout("c", "S-a", 1, group=70)
    path = write_log(rows, tmp_path / "log.jsonl")
    report = crbc("explain", path, "--group", "7", "--step", "a:b:0", "--json").json
    assert (report["group_id"], report["rollout"]["rollout_id"]) == (7, "a:b")
    assert report["step"]["step_credit"] == 1
    assert "no group '07'" in crbc("explain", path, "--group", "07").refused()


def test_groups_of_one_name_are_told_apart(tmp_path: Path) -> None:
    first = write_log(rollout("t0", "S-a", 1) + rollout("t1", "S-b", 0), tmp_path / "1.jsonl")
    second = write_log(rollout("t0", "S-c", 0), tmp_path / "2.jsonl")
    line = crbc("explain", first, second, "--group", "g").refused()
    assert f"group 'g' occurs 2 times: {first}, {second}; choose with --file" in line
    ended = crbc("explain", first, second, "--group", "g", "--file", second, "--json")
    assert ended.json["source_files"] == [str(second)]
    assert [a["action"] for a in ended.json["anchors"][0]["actions"]] == ["c"]

    spanning = ["explain", first, second, "--spanning-groups", "--group", "g"]
    whole = crbc(*spanning, "--json").json
    assert [r["source_file"] for r in whole["rollouts"]] == [str(first)] * 2 + [str(second)]
    assert [a["action"] for a in whole["anchors"][0]["actions"]] == ["a", "b", "c"]
    assert "occurs in 2 files; choose with --file" in crbc(*spanning, "--step", "t0:0").refused()
    text = words(crbc(*spanning, "--step", "t0:0", "--file", second).text)
    assert "> c 1" in text
    assert "a at [1]t0:0" in text


def test_key_columns_choose_a_group(tmp_path: Path) -> None:
    rows = [row | {"update": 1} for row in rollout("t0", "S-a", 1)]
    rows += [row | {"update": 2} for row in rollout("t0", "S-b", 0)]
    path = write_log(rows, tmp_path / "log.jsonl")
    chosen = ["--key", "update", "--key-value", "update=2"]
    report = crbc("explain", path, "--group", "g", *chosen, "--json").json
    assert report["key"] == {"update": 2}
    assert [r["outcome"] for r in report["rollouts"]] == ["failure"]


@pytest.mark.parametrize("options", [{"group_by": ("prompt",)}, {"group_stride": 2}])
def test_inferred_groups(options: dict[str, Any], tmp_path: Path) -> None:
    rows: Rows = []
    for number, (path, won) in enumerate([("S-a", 1), ("S-b", 0), ("T-a U-c", 1), ("T-b", 0)]):
        rows += [row | {"prompt": f"p{number // 2}"} for row in rollout(number, path, won)]
    for row in rows:
        del row["group_id"]
    log = write_log(rows, tmp_path / "log.parquet")
    second = group_of(log, group="p1" if "group_by" in options else "1", **options)
    assert [a.observation for a in second.anchors] == ["T", "U"]
    assert [r.rollout_id for r in second.rollouts] == [2, 3]


def test_logs_from_a_pipe() -> None:
    ended = program("explain", "--step", "t2:2", "--json", stdin=GOLDEN.read_bytes())
    assert ended.code == 0
    assert ended.json["source_files"] == ["-"]
    assert ended.json["observation"] == "M"


def moves(*directions: str) -> Rows:
    """Rollouts of one step whose actions are JSON with a long head in common."""
    cells = [json.dumps({"name": "move", "arguments": {"direction": d}}) for d in directions]
    rows = [rollout(i, "S-a", i == 0)[0] for i in range(len(cells))]
    return [row | {"action": cell} for row, cell in zip(rows, cells, strict=True)]


def test_actions_with_one_head_have_labels_and_a_legend(tmp_path: Path) -> None:
    """One name each in the table, where they were taken, and in the formulas, in one order."""
    report, text = told(moves("up", "down", "left"), "1:0", tmp_path)
    assert 'a2: {"name": "move", "arguments": {"direction": "down"}}' in text
    at = [
        text.index(part) for part in ("a1 1", "> a2 1", "a3 1", "a1 at 0:0", "a2 at 1:0", "Q(a1)")
    ]
    assert at == sorted(at)
    assert "A(a2) = 0.000000 - 0.326667" in text
    assert [f["symbol"] for f in report["formulas"][:4]] == ["Q(a1)", "Q(a2)", "Q(a3)", "V"]
    assert 'a3: {"name"' in crbc("explain", tmp_path / "log.jsonl").text


def test_observations_are_shown_in_full(tmp_path: Path) -> None:
    """Boards as lines, long lines wrapped; from 40 lines on what is left out is counted."""
    board = [f"#{'@' * n}" for n in range(60)]
    long = " ".join(f"word{n}" for n in range(60))
    rows = rollout("t0", "S-a", 1) + rollout("t1", "S-b", 0)
    for seen, part in (("\n".join(board[:39]), "#" + 38 * "@"), (long, "word59")):
        _, text = told([row | {"observation": seen} for row in rows], "t0:0", tmp_path)
        assert f"{part} action a" in text
    _, text = told([row | {"observation": "\n".join(board)} for row in rows], "t0:0", tmp_path)
    assert f"{board[38]} … (21 more lines) action a" in text


def test_parts_of_an_anchor_that_rules_made(tmp_path: Path) -> None:
    """A silent reply names the step it inherits from; slots the step that set them."""
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'schema = 1\nname = "x"\ntitle = "t"\nkey = ["reply", "hand", "seen", "column:room"]\n'
        'no_op = ["^Nothing"]\n'
        '[[slot]]\nname = "hand"\nkind = "last"\n'
        "[[slot.update]]\non = 'action'\npattern = '^take (?<it>.+)'\nvalue = '{it}'\n"
        '[[slot]]\nname = "seen"\nkind = "count"\n'
        "[[slot.update]]\non = 'reply'\npattern = 'hall'\nadd = 2\n"
    )
    rows = rollout("t0", "A-take:x B-look C-go", 1) + rollout("t1", "A-go", 0)
    replies = ("A  hall", "B", "Nothing happens", "A  hall")
    rows = [r | {"observation": o, "room": o[0]} for r, o in zip(rows, replies, strict=True)]
    rows[0]["action"] = "take key"
    options = ("--rules", rules, "--normalize", "whitespace")
    report, text = told(rows, "t0:2", tmp_path, *options)
    shown = "anchor made of reply: inherited from step 1: B hand: since step 1: take key -> B "
    assert f"Nothing happens {shown}seen: 2 room: N action go" in text
    assert report["observation"] == "Nothing happens"
    assert report["anchor"]["observation"] == "B"
    assert [(p["name"], p["step"], p["count"]) for p in report["parts"]] == [
        ("reply", 1, None),
        ("hand", 1, None),
        ("seen", None, 2),
        ("column:room", None, None),
    ]
    _, text = told(rows, "t0:0", tmp_path, *options)
    assert "anchor made of reply: A hall hand: unset seen: 2 room: A action" in text
    assert crbc("explain", tmp_path / "log.jsonl", "--step", "t0:0", "--json").json["parts"] == []


@pytest.mark.parametrize(
    ("won", "options", "line"),
    [
        # std of 0, 1 with ddof 1 is sqrt(1/2).
        ((1, 0), (), "A_G = (1.000000 - 0.500000) / (0.707107 + 1e-06) = 0.7071"),
        ((1, 0), ("--eps", "0"), "A_G = (1.000000 - 0.500000) / 0.707107 = 0.7071"),
        ((1, 1), (), "A_G = 0.0000 (all scores of the group are equal)"),
        ((1,), (), "A_G = 0.0000 (one rollout counts in the group)"),
        ((1,), (), "A_S = 0.0000 (gate closed)"),
    ],
)
def test_zeros_have_a_reason(
    won: tuple[int, ...], options: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    rows = [row for i, w in enumerate(won) for row in rollout(f"t{i}", f"S-{'ab'[i]}", w)]
    assert line in told(rows, "t0:0", tmp_path, *options)[1]


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (GOLDEN,),
        (GOLDEN, "--step", "t0:0", "--depth", "1"),
        (SAMPLES / "sokoban.parquet", "--group", "sokoban-0003"),
        (SAMPLES / "alfworld.parquet", "--group", "alfworld-0001"),
        (SAMPLES / "alfworld.parquet", "--group", "alfworld-0001", "--step", "2:0"),
        (SAMPLES / "alfworld.parquet", "--group", "alfworld-0001", "--invalid-penalty", "both"),
    ],
)
def test_lines_fit_80_columns(arguments: tuple[object, ...]) -> None:
    ended = crbc("explain", *arguments, env={"COLUMNS": "80"})
    assert ended.code == 0
    lines = ended.text.splitlines()
    assert len(lines) > 15
    assert max(map(cell_len, lines)) <= 80
    assert "\x1b" not in ended.text


def test_log_text_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    text = "\x1b[31mred\x07\nsecond [bold]line[/bold]\n" + "wide 漢字 " * 30
    rows = [row | {"observation": text, "action": text} for row in rollout("t\x1b0", "S-a", 1)]
    path = write_log(rows, tmp_path / "log.jsonl")
    for arguments in ([], ["--step", "t\x1b0:0"]):
        shown = crbc("explain", path, *arguments).text
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "[bold]line[/bold]" in shown
        assert max(map(cell_len, shown.splitlines())) <= 80
        assert "…" in shown
    assert crbc("explain", path, "--step", "t\x1b0:0", "--json").json["observation"] == text


def packed(path: Path) -> Path:
    """The file gzipped beside itself."""
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target


def as_logged(path: Path) -> Path:
    return path


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".jsonl", as_logged), (".jsonl", packed), (".parquet", as_logged)]
)
def test_text_of_single_rows(suffix: str, pack: Callable[[Path], Path], tmp_path: Path) -> None:
    rows = [
        {"text": f"row {i}", "nested": {"deep": i, "list": [i, None]}, "number": i / 2}
        for i in range(40)
    ]
    rows[7] |= {"text": None, "number": None}
    [source] = resolve([str(pack(write_log(rows, tmp_path / f"log{suffix}")))])
    columns = {"t": "text", "d": "nested.deep", "n": "nested", "x": "number", "none": "absent"}
    found = fetch_text(source, [31, 7, 7, 30], columns, skip_bad_lines=False)
    assert sorted(found) == [7, 30, 31]
    assert {name: found[31][name] for name in ("t", "d", "x", "none")} == {
        "t": "row 31",
        "d": "31",
        "x": "15.5",
        "none": None,
    }
    assert json.loads(found[31]["n"] or "") == {"deep": 31, "list": [31, None]}
    assert (found[7]["t"], found[7]["d"], found[7]["x"]) == (None, "7", None)


def test_row_numbers_survive_blank_and_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"a": "first"}\n\nnot json\n{"a": "fourth"}\n')
    [source] = resolve([str(path)])
    found = fetch_text(source, [3], {"a": "a"}, skip_bad_lines=True)
    assert found == {3: {"a": "fourth"}}


def test_text_of_tables_in_memory() -> None:
    frame = pl.DataFrame({"a": ["x", "y"], "b": [[1], [2]]})
    source = Source("<table>", Path(), "memory", frame=frame)
    columns = {"a": "a", "b": "b"}
    assert fetch_text(source, [1], columns, skip_bad_lines=False) == {1: {"a": "y", "b": "[2]"}}


def test_anchors_of_several_columns_and_tagged_actions(tmp_path: Path) -> None:
    rows = rollout("t0", "S-a", 1) + rollout("t1", "S-b", 0)
    rows = [row | {"held": "key", "action": f"hm <act> {row['action']} </act>"} for row in rows]
    path = write_log(rows, tmp_path / "log.jsonl")
    step = step_of(path, step="t1:0", anchor=("observation", "held"), action_tag="act")
    assert (step.observation, step.action) == ("observation: S\nheld: key", "b")
    assert step.anchor is not None
    assert [a.action for a in step.anchor.actions] == ["a", "b"]


def test_large_groups_in_memory() -> None:
    """A group among others in one table: the restricted log gives the same numbers."""
    rows = [
        row
        for g in range(3)
        for row in rollout(f"{g}a", "S-a M-p", 1, group=g) + rollout(f"{g}b", "S-b", g % 2, group=g)
    ]
    log = prepared(rows)
    table = crbc_cli.credit(pa.Table.from_pylist(rows))
    for g in range(3):
        group = explain_group(log.only(g), Clock())
        numbers = [s.credit for r in group.rollouts for s in r.steps]
        assert numbers == table["credit"].to_pylist()[3 * g : 3 * g + 3]
        one = explain_step(log.only(g), 2, Clock())
        assert one.rollout.rollout_id == f"{g}b"
    with pytest.raises(OptionError, match="no group"):
        crbc_cli.explain([str(GOLDEN)], "none")
