"""`crbc compare`: agreement by hand, sweeps, cuts into groups, and what is printed."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import GOLDEN, ROOT, crbc
from helpers import Rows, package_credit, prepared, rollout, write_log

import crbc_cli
from crbc_cli import api
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.comparison import Comparison
from crbc_cli.engine.estimate import estimate
from crbc_cli.engine.regroup import cuts_of, regrouped
from crbc_cli.errors import CrbcError, OptionError
from crbc_cli.methods.agreement import agreement, credited, disagreement
from crbc_cli.methods.registry import parse_methods

SOKOBAN = ROOT / "sample_logs" / "sokoban.parquet"
NAN = math.nan


# --- agreement ------------------------------------------------------------------------------------


def test_agreement_by_hand() -> None:
    # Steps with both numbers: a = (1, -1, 2, 0), b = (2, 1, 3, -1).
    a = np.array([1.0, -1.0, NAN, 2.0, 0.0, 5.0])
    b = np.array([2.0, 1.0, 4.0, 3.0, -1.0, NAN])
    found = agreement(a, b, np.array([0, 0, 1, 2, 3, 3]))
    assert found.steps == 4
    # Centred (.5, -1.5, 1.5, -.5) and (.75, -.25, 1.75, -2.25): 4.5, 5, 8.75.
    assert found.pearson == pytest.approx(4.5 / math.sqrt(5 * 8.75))
    # Ranks 3, 1, 4, 2 and 3, 2, 4, 1: differences 0, 1, 0, 1: 1 - 6·2/(4·15).
    assert found.spearman == pytest.approx(0.8)
    # Pairs 0, 2, 3: means (0, 2, 0) and (1.5, 3, -1).
    assert found.pairs == 3
    assert found.pair_pearson == pytest.approx(np.corrcoef([0.0, 2.0, 0.0], [1.5, 3.0, -1.0])[0, 1])
    # Ranks (1.5, 3, 1.5) and (2, 3, 1).
    assert found.pair_spearman == pytest.approx(math.sqrt(3) / 2)
    # Both credit the first, second and fourth step; the second with opposite signs.
    assert found.both == 3
    assert found.signs == pytest.approx(2 / 3)


def test_agreement_without_steps() -> None:
    nothing = np.array([NAN, 1.0])
    found = agreement(nothing, np.array([1.0, NAN]), np.array([0, 1]))
    assert (found.steps, found.pairs, found.both) == (0, 0, 0)
    assert math.isnan(found.pearson)
    assert math.isnan(found.signs)


def test_credited_and_disagreement_by_hand() -> None:
    assert credited(np.array([0.0, NAN, 2.0, 1e-12])) == 0.25
    # Root mean squares 5/√2 and √2: .6·√2 - 0 and .8·√2 - √2.
    apart = disagreement(np.array([3.0, 4.0, NAN]), np.array([0.0, 2.0, 1.0]))
    assert apart[:2] == pytest.approx([0.6 * math.sqrt(2), 0.2 * math.sqrt(2)])
    assert math.isnan(apart[2])
    # A method that gives no credit at all is 0 on any scale.
    assert disagreement(np.zeros(1), np.full(1, -7.0)).tolist() == [1]


def test_where_two_methods_differ_most_on_the_golden_group() -> None:
    report = api.compare([str(GOLDEN)], "grpo,crbc", disagreements=2)
    [pair] = report.pairs
    # A_G is ±.8660, ±1 once scaled. A_S is 1 at S, N (six visits), .7071 at M p (two) and -1.4142
    # at M q: mean square (6 + 1 + 2)/9 = 1. Farthest apart are steps that go against the outcome:
    # S a of t1 (fails, +1) and S b of t2 (succeeds, -1), both by 2.
    assert [(d.observation, d.action, d.rollout_id) for d in pair.disagreements] == [
        ("S", "a", "t1"),
        ("S", "b", "t2"),
    ]
    for step, sign in zip(pair.disagreements, (-1, 1), strict=True):
        assert step.a == pytest.approx(sign * 0.8660, abs=1e-4)
        assert step.b == pytest.approx(-sign)
        assert step.apart == pytest.approx(2, abs=1e-6)
    first, second = pair.disagreements
    assert (first.place, first.step) == (f"{GOLDEN}:3", 0)
    assert first.why_a.endswith("its rollout failed")
    assert second.why_a.endswith("its rollout succeeded")
    # Q(S, a) = .640267, Q(S, b) = .313731 and V(S) = .476999.
    assert "0.6403 against 0.477 (4 visits, 2 actions; its rollout failed)" in first.why_b
    assert "0.3137 against 0.477 (4 visits, 2 actions; its rollout succeeded)" in second.why_b


def test_one_step_is_listed_per_anchor_and_action() -> None:
    report = api.compare([str(GOLDEN)], "grpo,crbc", disagreements=9)
    [pair] = report.pairs
    places = [(d.observation, d.action) for d in pair.disagreements]
    assert len(places) == len(set(places)) <= 6
    assert [d.apart for d in pair.disagreements] == sorted(
        (d.apart for d in pair.disagreements), reverse=True
    )


# --- sweeps ---------------------------------------------------------------------------------------


def names(report: Comparison) -> list[str]:
    return [entry.name for entry in report.entries]


def sweep(*sweeps: str, methods: str = "gigpo,crbc", **options: Any) -> Comparison:
    return api.compare([str(GOLDEN)], methods, sweep=sweeps, disagreements=0, **options)


def test_a_row_shows_what_it_depends_on() -> None:
    assert names(sweep("depth=0,1,inf")) == [
        "gigpo",
        "crbc depth=0",
        "crbc depth=1",
        "crbc depth=inf",
    ]
    assert names(sweep("depth=0,inf discount=0.9,1")) == [
        "gigpo",
        "crbc depth=0 discount=0.9",
        "crbc depth=0 discount=1",
        "crbc depth=inf discount=0.9",
        "crbc depth=inf discount=1",
    ]
    assert names(sweep("gigpo.gamma=0.9,1", "w-s=1,5"))[:3] == [
        "gigpo gamma=0.9",
        "gigpo gamma=1",
        "crbc w_s=1",
    ]
    # The group advantage enters the numbers of every method.
    assert names(sweep("ddof=0,1", methods="crbc,grpo")) == [
        "crbc ddof=0",
        "crbc ddof=1",
        "grpo ddof=0",
        "grpo ddof=1",
    ]
    assert names(sweep("x.depth=0,1", methods="x=crbc")) == ["x depth=0", "x depth=1"]


def test_swept_numbers_are_those_of_runs_of_their_own(tmp_path: Path) -> None:
    """Of options of methods, of endings and of anchors, each against `annotate`."""
    report = api.compare(
        [str(SOKOBAN)],
        "crbc",
        sweep=["truncated=fail,bootstrap", "depth=0,inf", "anchor=observation,true_state+reward"],
        truth="true_advantage",
        disagreements=0,
    )
    frame = pl.read_parquet(SOKOBAN)
    for result in report.results:
        entry = report.entries[result.entry]
        assert result.errors is not None
        settings: dict[str, Any] = dict(entry.setting)
        settings["anchor"] = settings["anchor"].split("+")
        if settings["depth"] == "0":
            settings["depth"] = 0
        output = tmp_path / "credit.parquet"
        api.annotate([str(SOKOBAN)], str(output), force=True, **settings)
        credit = pl.read_parquet(output)["step_credit"].fill_null(0.0).to_numpy()
        truth = frame["true_advantage"].to_numpy()
        left = truth @ truth - (credit @ truth) ** 2 / (credit @ credit)
        assert result.errors.rmse_scaled == pytest.approx(math.sqrt(left / len(truth)), abs=1e-9)
        assert result.credited == pytest.approx(np.count_nonzero(credit.round(10)) / len(credit))


@pytest.mark.parametrize(
    ("sweeps", "message"),
    [
        (["depth"], "'depth' is not KEY=VALUE,VALUE"),
        (["=1"], "is not KEY=VALUE,VALUE"),
        (["depth=,"], "is not KEY=VALUE,VALUE"),
        (["dept=1"], "--sweep dept: no such option"),
        (["key=a,b"], "set once per run"),
        (["depth=x"], "depth 'x' is not a whole number or inf"),
        (["discount=x"], "--sweep discount: 'x' is no value of it"),
        (["discount=2"], "outside"),
        (["truncated=never"], "--truncated 'never' is not known"),
        (["crbx.depth=0"], "no method is called 'crbx'; use one of gigpo, crbc"),
        (["crbc.gamma=0"], "option 'gamma=0' is not known"),
    ],
)
def test_sweeps_that_cannot_be(sweeps: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        sweep(*sweeps)


def test_scores() -> None:
    assert [e.score for e in sweep(methods="crbc,grpo").entries] == ["step_credit", "advantage"]
    assert [e.score for e in sweep(methods="crbc,gigpo", score="credit").entries] == ["credit"] * 2
    with pytest.raises(OptionError, match="grpo gives no step_credit"):
        sweep(methods="crbc,grpo", score="step_credit")
    with pytest.raises(OptionError, match="--score 'value' is not known"):
        sweep(score="value")


# --- cuts into groups -----------------------------------------------------------------------------


def many_rollouts() -> Rows:
    """Two groups of one task with 7 and 6 rollouts, and one of another task with 5."""
    rows: Rows = []
    for group, (task, count) in enumerate([("x", 7), ("x", 6), ("y", 5)]):
        for i in range(count):
            path = "S-a M-p" if i % 3 else "S-b S-a N-c"
            rows += rollout(i, path, i % 2 == group % 2, group=f"g{group}", task_id=task)
    for row in rows:
        row["task_id"] = "y" if row["group_id"] == "g2" else "x"
    return rows


def cuts(rows: Rows, size: int, number: int, seed: int = 0) -> list[list[tuple[int, list[int]]]]:
    """(task, rollouts) of each group of each cut."""
    log = prepared(rows)
    task = (log.rollouts.group == 2).astype(np.int64)
    usable = np.ones(len(task), bool)
    return [
        [(int(cut.task[g]), cut.rollout[cut.group == g].tolist()) for g in range(len(cut.task))]
        for cut in cuts_of(log.rollouts, task, usable, size=size, cuts=number, seed=seed)
    ]


def test_groups_of_a_cut_are_disjoint_full_and_of_one_task() -> None:
    for cut in cuts(many_rollouts(), 4, 5):
        # 13 rollouts of x make 3 groups of 4, 5 of y make 1.
        assert [task for task, _ in cut] == [0, 0, 0, 1]
        chosen = [r for _, members in cut for r in members]
        assert len(chosen) == len(set(chosen)) == 16
        for task, members in cut:
            assert members == sorted(members)
            assert {r >= 13 for r in members} == {bool(task)}


def test_no_cuts_is_the_order_of_the_log() -> None:
    [cut] = cuts(many_rollouts(), 4, 0)
    assert cut == [
        (0, [0, 1, 2, 3]),
        (0, [4, 5, 6, 7]),
        (0, [8, 9, 10, 11]),
        (1, [13, 14, 15, 16]),
    ]
    # Rollouts in another order in the file: what comes first is cut first.
    backwards = [r for i in reversed(range(7)) for r in rollout(i, "S-a", i % 2)]
    log = prepared(backwards)
    assert log.rollouts.row.tolist() == [6, 5, 4, 3, 2, 1, 0]
    zero = np.zeros(7, np.int64)
    [turned] = cuts_of(log.rollouts, zero, zero == 0, size=3, cuts=0, seed=0)
    assert turned.rollout.tolist() == [4, 5, 6, 1, 2, 3]


def test_cuts_depend_on_the_seed_alone() -> None:
    rows = many_rollouts()
    assert cuts(rows, 4, 3) == cuts(rows, 4, 3) == cuts(rows, 4, 5)[:3]
    assert cuts(rows, 4, 3, seed=1) != cuts(rows, 4, 3)
    every = Counter(r for cut in cuts(rows, 4, 60) for _, members in cut for r in members)
    assert set(every) == set(range(18))  # everyone's turn comes


def test_rollouts_without_an_outcome_take_no_place() -> None:
    log = prepared(many_rollouts())
    usable = np.arange(18) % 2 == 0
    zero = np.zeros(18, np.int64)
    [cut] = cuts_of(log.rollouts, zero, usable, size=4, cuts=1, seed=0)
    assert usable[cut.rollout].all()
    assert len(cut.task) == 2


def test_regrouped_numbers_are_those_of_a_log_with_these_groups() -> None:
    """Against a log that was written with the new group ids."""
    rows = many_rollouts()
    log = prepared(rows)
    zero = np.zeros(18, np.int64)
    methods = parse_methods("crbc,gigpo,grpo,gated-bepo,graphgpo")
    for cut in cuts_of(log.rollouts, zero, zero == 0, size=5, cuts=3, seed=4):
        ours = regrouped(log, cut)
        found = estimate(ours, methods, Clock())
        of_row = dict(zip(ours.rollouts.row.tolist(), range(len(ours.rollouts.row)), strict=True))
        group = ours.rollouts.row_group()
        written = [
            rows[row] | {"group_id": int(group[at]), "rollout_id": int(ours.rollouts.rollout[at])}
            for row, at in sorted(of_row.items())
        ]
        for chosen in methods:
            theirs = package_credit(written, method=chosen.method.name)
            mine = found.methods[chosen.label]
            for name in ("step_credit", "advantage", "state_value", "group_advantage"):
                values = getattr(mine, name)[[of_row[row] for row in sorted(of_row)]]
                expected = np.array([NAN if v is None else v for v in theirs[name]])
                assert values == pytest.approx(expected, abs=1e-12, nan_ok=True), (chosen, name)


def test_group_statuses_are_those_of_the_new_groups() -> None:
    rows = [r for i in range(6) for r in rollout(i, "S-a", i >= 4)]
    log = prepared(rows)
    zero = np.zeros(6, np.int64)
    [cut] = cuts_of(log.rollouts, zero, zero == 0, size=2, cuts=0, seed=0)
    # Failures, failures, successes: no group has a mixed outcome, though all six have.
    credit = estimate(regrouped(log, cut), parse_methods("grpo"), Clock()).methods["grpo"]
    assert credit.advantage.tolist() == [0] * 6
    assert package_credit(rows, method="grpo")["advantage"][0] != 0


def test_results_are_means_over_cuts(tmp_path: Path) -> None:
    """Each cut alone, as a log of its own, gives the numbers that are averaged."""
    options: dict[str, Any] = {"truth": "true_advantage", "disagreements": 0}
    both = api.compare([str(SOKOBAN)], "crbc,gigpo", group_sizes=(4,), cuts=2, **options)
    first = api.compare([str(SOKOBAN)], "crbc,gigpo", group_sizes=(4,), cuts=1, **options)
    log = pl.read_parquet(SOKOBAN)
    assert both.sizes[0].groups == first.sizes[0].groups == log["group_id"].n_unique() * 2
    ordered = api.compare([str(SOKOBAN)], "crbc,gigpo", group_sizes=(4,), **options)
    block = pl.concat_str("group_id", (pl.col("rollout_id") // 4).cast(pl.String))
    split = log.with_columns(group_id=block)
    path = tmp_path / "split.parquet"
    split.write_parquet(path)
    own = api.compare([str(path)], "crbc,gigpo", **options)
    for a, b in zip(ordered.results, own.results, strict=True):
        assert a.metrics is not None
        assert b.metrics is not None
        assert a.credited == pytest.approx(b.credited)
        for name, interval in a.metrics.items():
            assert interval.mean == pytest.approx(b.metrics[name].mean, abs=1e-12)
            assert interval.se == pytest.approx(b.metrics[name].se, abs=1e-12)
    assert both.results[0].metrics is not None
    assert first.results[0].metrics is not None
    assert both.results[0].metrics["cosine"].mean != first.results[0].metrics["cosine"].mean


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cuts": 3}, "--cuts needs --group-size"),
        ({"cuts": -1, "group_sizes": (4,)}, "--cuts -1 is negative"),
        ({"group_sizes": (1,)}, "--group-size 1 is not at least 2"),
        ({"group_sizes": (9,)}, r"no task has as many rollouts \(at most 8\)"),
        ({"disagreements": -1}, "negative"),
        ({"group_sizes": (4,), "merge_similar": 0.9}, "--merge-similar looks at the groups"),
    ],
)
def test_cuts_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        api.compare([str(SOKOBAN)], "crbc", **options)


# --- degenerate logs ------------------------------------------------------------------------------

ALL = "grpo,dr-grpo,rloo,gigpo,graphgpo,g2po,gated-bepo,crbc,hgpo,rtmc,rewardflow"


@pytest.mark.parametrize(
    "rows",
    [
        rollout(0, "S-a", 1),
        rollout(0, "S-a M-b", 0),
        [r for i in range(4) for r in rollout(i, "S-a M-b", 0)],
        [r for i in range(4) for r in rollout(i, f"S-{i} M-b", 1)],
        [r for i in range(100) for r in rollout(i, f"S-{i % 7} M-b", i % 3 == 0)],
    ],
    ids=["one row", "one rollout", "all fail", "all succeed", "100 rollouts"],
)
def test_every_method_on_degenerate_groups(rows: Rows, tmp_path: Path) -> None:
    """Finite numbers or none, in strict JSON, and correlations within bounds."""
    rows = [row | {"true_advantage": 0.1 * (i % 3)} for i, row in enumerate(rows)]
    path = write_log(rows, tmp_path / "log.jsonl")
    report = crbc("compare", path, "--methods", ALL, "--truth", "true_advantage", "--json").json
    assert len(report["results"]) == 11
    for result in report["results"]:
        for interval in result["metrics"].values():
            assert interval["mean"] is None or -1 <= interval["mean"] <= 1
    for pair in report["agreement"]:
        assert pair["pearson"] is None or -1 <= pair["pearson"] <= 1


def test_a_log_without_rows(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("")
    ended = crbc("compare", tmp_path / "log.jsonl", "--json")
    assert ended.code == 0
    assert ended.json["rows"] == 0
    assert {r["credited_share"] for r in ended.json["results"]} == {None}


# --- the command ----------------------------------------------------------------------------------

SWEPT = ("compare", SOKOBAN, "--truth", "true_advantage", "--sweep", "depth=0,1,2,3,inf")


def test_the_table_fits_a_terminal_and_names_every_row() -> None:
    ended = crbc(*SWEPT, env={"COLUMNS": "80"})
    assert ended.code == 0
    assert max(map(len, ended.text.splitlines())) <= 80
    table = ended.text.split("\n\n")[0]
    assert "Fidelity to true_advantage: mean of 14 mixed groups of 16" in table
    rows = [line for line in table.splitlines() if "±" in line and "1.96" not in line]
    assert [row.split("  ")[0] for row in rows] == [
        "grpo",
        "gigpo",
        "graphgpo",
        "g2po",
        "gated_bepo",
        *(f"crbc depth={k}" for k in ("0", "1", "2", "3", "inf")),
    ]
    assert all(row.count("±") == 5 for row in rows)


def test_long_names_and_sizes_fit_a_terminal() -> None:
    ended = crbc(
        *SWEPT,
        *("--group-size", "4,8", "--cuts", "2", "--sweep", "truncated=fail,bootstrap"),
        env={"COLUMNS": "80"},
    )
    assert ended.code == 0
    assert max(map(len, ended.text.splitlines())) <= 80
    assert "groups of 4: mean of" in ended.text
    assert "groups of 8: mean of" in ended.text


def test_a_sweep_may_be_several_words() -> None:
    words = crbc(*SWEPT, "discount=0.95,1", "--json").json
    options = crbc(*SWEPT, "--sweep", "discount=0.95,1", "--json").json
    assert words == options
    assert [e["setting"] for e in words["entries"]][-1] == {"depth": "inf", "discount": "1"}
    # Without a sweep such a word is a log.
    assert "depth=1" in crbc("compare", GOLDEN, "depth=1").refused()


def test_json_and_csv_say_the_same() -> None:
    report = crbc(*SWEPT, "--json").json
    rows = list(csv.DictReader(io.StringIO(crbc(*SWEPT, "--csv").text)))
    assert len(rows) == len(report["results"]) == 10
    entries = {entry["name"]: entry for entry in report["entries"]}
    for row, result in zip(rows, report["results"], strict=True):
        entry = entries[result["name"]]
        assert row["method"] == entry["label"]
        assert (row["depth"] or None) == entry["setting"].get("depth")
        assert float(row["cosine"]) == result["metrics"]["cosine"]["mean"]
        assert float(row["cosine_low"]) == result["metrics"]["cosine"]["low"]
        assert float(row["rmse_scaled"]) == result["errors"]["rmse_scaled"]
    assert len(report["differences"]) == len(report["agreement"]) == 45
    assert entries["crbc depth=3"]["method_options"]["depth"] == 3
    assert report["options"]["truncated"] == "fail"


def test_differences_are_against_the_row_that_is_named() -> None:
    best = crbc(*SWEPT).text
    assert "Method less crbc depth=3, paired inside groups" in best
    assert "Method less gigpo, paired" in crbc(*SWEPT, "--against", "gigpo").text
    assert "Method less crbc depth=0," in crbc(*SWEPT, "--against", "crbc depth=0").text
    assert "--against 'crbc' names 5 rows" in crbc(*SWEPT, "--against", "crbc").refused()


def test_listed_steps_name_their_place() -> None:
    text = crbc("compare", GOLDEN, "--methods", "grpo,crbc", "--disagreements", "1").text
    assert "golden.jsonl:" in text
    assert "saw " in text
    assert "did " in text
    quiet = crbc("compare", GOLDEN, "--methods", "grpo,crbc", "--disagreements", "0").text
    assert "saw " not in quiet


def test_stdin_is_read_once_for_all_settings() -> None:
    arguments = ("--methods", "crbc,gigpo", "--sweep", "normalize=case,strip", "--json")
    piped = crbc("compare", "-", *arguments, stdin=GOLDEN.read_bytes()).json
    named = crbc("compare", GOLDEN, *arguments).json
    assert piped["results"] == named["results"]
    places = [d["place"] for pair in piped["agreement"] for d in pair["disagreements"]]
    assert places
    assert all(place.startswith("-:") for place in places)


def test_conventions_apply(tmp_path: Path) -> None:
    rows = [row | {"is_action_valid": row["action"] != "q"} for row in rollout(0, "S-a M-q", 0)]
    rows += [row | {"is_action_valid": True} for row in rollout(1, "S-a M-p", 1)]
    path = write_log(rows, tmp_path / "log.jsonl")
    ended = crbc("compare", path, "--methods", "grpo", "--like", "verl-agent", "--json")
    assert "--like verl-agent sets" in ended.stderr
    [entry] = ended.json["entries"]
    assert entry["method_options"]["episode_stats"] == "rows"
    assert entry["method_options"]["invalid_penalty"] == "both"


def test_several_logs_are_one_comparison(tmp_path: Path) -> None:
    frame = pl.read_parquet(SOKOBAN)
    half = frame["task_id"].unique(maintain_order=True)[:8].to_list()
    parts = [
        frame.filter(pl.col("task_id").is_in(half)),
        frame.filter(~pl.col("task_id").is_in(half)),
    ]
    paths = []
    for number, part in enumerate(parts):
        paths.append(str(tmp_path / f"{number}.parquet"))
        part.write_parquet(paths[-1])
    options: dict[str, Any] = {"truth": "true_advantage", "disagreements": 0}
    both = api.compare(paths, "crbc,gigpo", **options)
    whole = api.compare([str(SOKOBAN)], "crbc,gigpo", **options)
    for a, b in zip(both.results, whole.results, strict=True):
        assert a.metrics is not None
        assert b.metrics is not None
        assert a.metrics["cosine"].mean == pytest.approx(b.metrics["cosine"].mean, abs=1e-12)
        assert a.metrics["cosine"].se == pytest.approx(b.metrics["cosine"].se, abs=1e-12)


def test_rows_that_repeat_under_one_setting_only(tmp_path: Path) -> None:
    """Equal boards and different extras: a duplicate under one anchor, a conflict under another."""
    rows = rollout(0, "S-a", 1) + rollout(1, "S-b", 0)
    rows = [row | {"extra": "x"} for row in rows] + [rows[0] | {"extra": "y"}]
    path = write_log(rows, tmp_path / "log.jsonl")
    with pytest.raises(CrbcError):
        api.compare([str(path)], "crbc", sweep=["anchor=observation,observation+extra"])


# --- runs -----------------------------------------------------------------------------------------


def test_runs_are_means_over_groups_of_the_credit_table(tmp_path: Path) -> None:
    """Against the credit table of one run; a run of two files; differences and their intervals."""
    log = pl.read_parquet(SOKOBAN)
    groups = log["group_id"].unique().sort()
    run = tmp_path / "run"
    run.mkdir()
    for name, part in (("1", groups[:5]), ("2", groups[5:10])):
        log.filter(pl.col("group_id").is_in(part.implode())).write_parquet(run / f"{name}.parquet")
    report = crbc("compare", "--runs", SOKOBAN, run, "--json").json
    first, second = report["runs"]
    assert (first["inputs"], second["inputs"]) == (1, 2)
    assert (first["groups"], second["groups"]) == (16, 10)
    table = pl.DataFrame(crbc_cli.credit(log.to_arrow()))
    per_group = table.group_by("group_id").agg(
        credited=(pl.col("step_credit").fill_null(0) != 0).mean(),
        flat=pl.col("group_status").first().is_in(["all_success", "all_fail", "constant"]),
    )
    ends = log.group_by("group_id", "rollout_id").agg(pl.col("success").last())
    success = ends.group_by("group_id").agg(pl.col("success").mean())["success"]
    for name, expected in {
        "credited": per_group["credited"],
        "zero_variance": per_group["flat"].cast(pl.Float64),
        "success": success,
    }.items():
        measured = first["measures"][name]
        assert measured["mean"] == pytest.approx(expected.mean(), abs=1e-12)
        assert measured["se"] == pytest.approx(expected.std() / math.sqrt(16), rel=1e-12)
    [difference] = report["differences"]
    for name, found in difference["measures"].items():
        a, b = first["measures"][name], second["measures"][name]
        assert found["mean"] == pytest.approx(b["mean"] - a["mean"], abs=1e-12)
        assert found["se"] == pytest.approx(math.hypot(a["se"], b["se"]), rel=1e-12)
    rows = list(csv.DictReader(io.StringIO(crbc("compare", "--runs", SOKOBAN, run, "--csv").text)))
    assert [row["measure"] for row in rows] == 2 * list(first["measures"])
    assert float(rows[0]["mean"]) == first["measures"]["success"]["mean"]


def test_one_run_has_nothing_to_be_compared_with() -> None:
    assert "two runs" in crbc("compare", "--runs", SOKOBAN).refused()
    assert "--methods" in crbc("compare", "--runs", SOKOBAN, GOLDEN, "--methods", "crbc").refused()


def test_an_audit_draws_nothing(tmp_path: Path) -> None:
    told = crbc("compare", GOLDEN, "--audit", "reward", "--figure", tmp_path / "x.svg").refused()
    assert "--audit takes no" in told
