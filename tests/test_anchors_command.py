"""`crbc anchors`: what is counted, what is flagged, what is printed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import crbc
from helpers import GOLDEN, Rows, rollout, write_log
from jsonschema import Draft202012Validator

import crbc_cli
from crbc_cli.anchors.rulefile import load_rules, preset_names
from crbc_cli.api import anchor_report

ROOT = Path(__file__).parent.parent
ALFWORLD, SOKOBAN = (ROOT / "sample_logs" / f"{n}.parquet" for n in ("alfworld", "sokoban"))
RULES = 'schema = 1\nname = "toy"\ntitle = "Toy"\n'


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return write_log(GOLDEN, tmp_path / "golden.jsonl")


def quality(path: Path, **options: Any) -> dict[str, Any]:
    return anchor_report([str(path)], suggestions=False, **options).quality.to_dict()


# --- counts ---------------------------------------------------------------------------------------


def test_golden_counts(golden: Path) -> None:
    """S four visits, M three, N two, all of several rollouts; S-a S-b M-p M-q N-c N-d; S-a, S-b and
    M-p repeat, each with one successor."""
    assert quality(golden) == {
        "groups": 1,
        "rollouts": 4,
        "rows": 9,
        "visits": 9,
        "anchors": 3,
        "visits_per_anchor": 3.0,
        "anchors_visited_once_share": 0.0,
        "shared_visits_share": 1.0,
        "actions_per_anchor": 2.0,
        "conflict_rate": 0.0,
        "repeated_pair_visits": 6,
        "conflicting_visits": 0,
        "no_op_rows": 0,
        "missing_rows": 0,
        "thought_rows": 0,
    }


def test_counts_per_group_add_up(tmp_path: Path) -> None:
    """A second group: X twice in one rollout, Y once, and a conflict at X."""
    more = rollout("t0", "X-a X-a Y-b", 1, group="h")
    report = anchor_report(
        [str(write_log([*GOLDEN, *more], tmp_path / "two.jsonl"))], suggestions=False
    )
    own = {row["group_id"]: row for row in report.rows()}
    assert own["g"]["shared_visits_share"] == 1.0
    assert own["h"]["shared_visits_share"] == 0.0
    assert own["h"]["anchors_visited_once_share"] == 0.5
    assert (own["h"]["conflict_rate"], own["h"]["repeated_pair_visits"]) == (1.0, 2)
    for name in ("visits", "anchors", "rows", "conflicting_visits"):
        assert report.quality.to_dict()[name] == own["g"][name] + own["h"][name]


def test_silent_rows_are_counted(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        RULES + "no_op = ['^nothing$']\nmissing = ['^$']\nthought = ['^think']\n", "utf-8"
    )
    rows = rollout("t0", "A-go nothing-go B-think C-go", 1)
    rows[3]["observation"] = ""
    found = quality(write_log(rows, tmp_path / "log.jsonl"), rules=str(rules))
    assert [found[f"{kind}_rows"] for kind in ("no_op", "missing", "thought")] == [1, 1, 1]
    # The thought carries B to the row after it; the no-op keeps A.
    assert (found["visits"], found["anchors"]) == (3, 2)


def test_several_logs_and_one_group(tmp_path: Path, golden: Path) -> None:
    other = write_log(rollout("t0", "X-a Y-b", 1, group="h"), tmp_path / "other.jsonl")
    report = anchor_report([str(golden), str(other)], suggestions=False)
    assert [(Path(name).name, q.visits) for name, q in report.logs] == [
        ("golden.jsonl", 9),
        ("other.jsonl", 2),
    ]
    assert report.quality.visits == 11
    alone = anchor_report([str(golden), str(other)], group="h", suggestions=False)
    assert (alone.quality.visits, alone.quality.groups) == (2, 1)
    refused = crbc("anchors", golden, other, "--group", "nobody").refused()
    assert "nobody" in refused


def test_an_empty_log(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    pl.read_parquet(SOKOBAN).head(0).write_parquet(path)
    report = crbc("anchors", path, "--json").json
    assert (report["visits"], report["conflict_rate"], report["worst"]) == (0, None, [])
    assert "0 in 0 rollouts" in crbc("anchors", path).text


# --- what is flagged ------------------------------------------------------------------------------


def aliased_sokoban(folder: Path) -> Path:
    """Two boards of one group get one text."""
    log = pl.read_parquet(SOKOBAN)
    group = log["group_id"].unique().sort()[1]
    boards = (
        log.filter(pl.col("group_id") == group)["observation"]
        .value_counts()
        .sort("count", "observation", descending=True)["observation"][:2]
    )
    hidden = (pl.col("group_id") == group) & pl.col("observation").is_in(boards.implode())
    path = folder / "aliased.parquet"
    log.with_columns(
        observation=pl.when(hidden).then(pl.lit("A dark room.")).otherwise("observation")
    ).write_parquet(path)
    return path


def test_an_injected_alias_is_flagged_first(tmp_path: Path) -> None:
    before = anchor_report([str(SOKOBAN)], suggestions=False)
    assert (before.quality.conflicts.rate, before.worst) == (0.0, [])
    report = anchor_report([str(aliased_sokoban(tmp_path))], suggestions=False)
    [anchor] = report.worst
    assert anchor.observation == "A dark room."
    assert (report.tested, report.dependent) == (1, 1)
    assert anchor.adjusted is not None
    assert anchor.adjusted < 0.01
    action = anchor.actions[0]
    assert action.visits >= action.told_by_entry > action.told_anyway
    assert sum(followed.visits for followed in action.followed) <= action.visits
    assert {entry.action for followed in action.followed for entry in followed.entries}


def test_the_text_shown_is_the_reply_that_stands_for_the_visit(tmp_path: Path) -> None:
    """A no-op keeps the anchor before it, so that anchor's text is shown, not the no-op's."""
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES + "no_op = ['^nothing$']\n", "utf-8")
    rows = [
        *rollout("t0", "A-x nothing-go P-stop", 1),
        *rollout("t1", "A-x nothing-go Q-stop", 1),
    ]
    report = anchor_report(
        [str(write_log(rows, tmp_path / "log.jsonl"))], suggestions=False, rules=str(rules)
    )
    [anchor] = report.worst
    assert anchor.observation == "A"
    assert {followed.observation for followed in anchor.actions[0].followed} == {"P", "Q"}
    assert {entry.action for f in anchor.actions[0].followed for entry in f.entries} == {"x"}


def test_near_duplicates_are_told_with_what_differs(tmp_path: Path) -> None:
    rows = [
        {**row, "observation": f"{row['observation']}\n(turn {row['step'] + 1})"}
        for row in pl.read_parquet(SOKOBAN).to_dicts()
    ]
    report = anchor_report([str(write_log(rows, tmp_path / "turns.parquet"))])
    [counter] = [d for d in report.duplicates if d.kind == "counter"]
    (begin, end), (start, stop) = counter.spans
    assert counter.first[begin:end].isdigit()
    assert counter.second[start:stop].isdigit()
    assert counter.first[begin:end] != counter.second[start:stop]
    assert counter.first[:begin] == counter.second[:start]


def test_case_volatile_tokens() -> None:
    """Reference case: two rows that differ in a clock; masked, one anchor with two actions."""
    case = ROOT / "tests" / "cases" / "volatile-tokens.jsonl"
    report = anchor_report([str(case)])
    assert report.quality.once_share == 1.0
    [duplicate] = report.duplicates
    (begin, end), _ = duplicate.spans
    assert (duplicate.kind, duplicate.first[begin:end]) == ("clock", "12:01:07")
    [suggestion] = report.suggestions
    mask = suggestion.option.removeprefix("--mask ").strip("'")
    repaired = anchor_report([str(case)], suggestions=False, mask=(mask,)).quality
    assert (repaired.anchors, repaired.actions_per_anchor) == (1, 2.0)
    assert "«12:01:07»" in crbc("anchors", case).text


def test_case_aliased_observation() -> None:
    """Reference case: "open door" at "hall" succeeds and fails; the way in tells which."""
    case = ROOT / "tests" / "cases" / "aliased-observation.jsonl"
    [anchor] = anchor_report([str(case)]).worst
    [action] = anchor.actions
    assert (anchor.observation, action.action) == ("hall", "open door")
    assert {followed.boundary for followed in action.followed} == {"success", "failure"}
    assert (action.visits, action.told_by_entry, action.told_anyway) == (2, 2, 1)


# --- the true state -------------------------------------------------------------------------------


def truth_rows() -> Rows:
    """X holds states 1 and 2, Y one state in both rollouts; Z is visited once."""
    rows = [*rollout("t0", "X-a Y-b", 1), *rollout("t1", "X-a Y-b Z-c", 0)]
    states, kinds = ["1", "3", "2", "3", "4"], ["env", "env", "env", "note", "env"]
    return [
        {**row, "true_state": state, "kind": kind}
        for row, state, kind in zip(rows, states, kinds, strict=True)
    ]


def test_scores_against_the_true_state(tmp_path: Path) -> None:
    """Of four visits on repeated anchors the two at X are aliased; four of five are shared."""
    path = str(write_log(truth_rows(), tmp_path / "log.parquet"))
    scores = anchor_report([path], state="true_state", suggestions=False).truth
    assert scores is not None
    assert (scores.visits, scores.aliased, scores.shared) == (5, 0.5, 0.8)
    assert scores.keys_per_state == 1.0
    # Without the note Y is visited once, so that only X repeats.
    some = anchor_report([path], state="true_state", where="kind = 'env'", suggestions=False).truth
    assert some is not None
    assert (some.visits, some.aliased, some.shared) == (4, 1.0, 0.5)
    none = anchor_report([path], state="true_state", min_rollouts=3, suggestions=False).truth
    assert none is not None
    assert (none.visits, none.aliased) == (0, None)


def test_the_same_state_in_two_groups_is_two_states(tmp_path: Path) -> None:
    other = [{**row, "group_id": "h"} for row in truth_rows()]
    path = str(write_log([*truth_rows(), *other], tmp_path / "log.parquet"))
    scores = anchor_report([path], state="true_state", suggestions=False).truth
    assert scores is not None
    assert (scores.visits, scores.aliased, scores.keys_per_state) == (10, 0.5, 1.0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--state", "nowhere"), "has no column nowhere"),
        (("--state", "true_state", "--where", "kind ="), "--where 'kind =' cannot be evaluated"),
        (("--state", "true_state", "--where", "step + 1"), "not true or false"),
        (("--state", "true_state", "--where", "ghost = 1"), "has no column ghost"),
        (("--where", "kind = 'env'"), "add --state"),
        (("--compare-rules", "exact,ghost"), "'ghost' is neither a preset nor a file"),
    ],
)
def test_refusals(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    path = write_log(truth_rows(), tmp_path / "log.parquet")
    assert told in crbc("anchors", path, *options).refused()


def test_rule_sets_are_ranked(tmp_path: Path) -> None:
    """ALFWorld's preset on ALFWorld, against raw text, another game's preset and a history key."""
    history = tmp_path / "history.toml"
    history.write_text(
        RULES.replace("toy", "history")
        + 'key = ["reply", "past"]\n[[slot]]\nname = "past"\nkind = "sequence"\n'
        "[[slot.update]]\non = \"reply\"\npattern = '(?s)(?<all>.*)'\nvalue = '{all}'\n",
        "utf-8",
    )
    names = f"exact,textworld,{history},alfworld"
    rows = crbc("anchors", ALFWORLD, "--compare-rules", names, "--json").json["comparison"]
    order = [Path(row["rules"]).stem for row in rows]
    assert order == ["alfworld", "textworld", "exact", "history"]
    assert rows[0]["foretold_wrongly_share"] < 0.01 < rows[2]["foretold_wrongly_share"]
    truth = crbc(
        "anchors", ALFWORLD, "--compare-rules", names, "--state", "true_state", "--json"
    ).json["comparison"]
    assert truth[0]["rules"] == "alfworld"
    assert truth[0]["truth"]["aliased"] < 0.01
    text = crbc("anchors", ALFWORLD, "--compare-rules", names, "--state", "true_state").text
    assert {"alfworld", "exact", "aliased", "keys"} <= set(text.split())
    table = list(
        csv.DictReader(
            io.StringIO(crbc("anchors", ALFWORLD, "--compare-rules", names, "--csv").text)
        )
    )
    assert [Path(row["rules"]).stem for row in table] == order


# --- output ---------------------------------------------------------------------------------------


def test_json_fits_its_schema(tmp_path: Path) -> None:
    schema = json.loads((ROOT / "schemas" / "report.schema.json").read_text("utf-8"))
    for arguments in (
        (ALFWORLD, "--state", "true_state"),
        (SOKOBAN, "--no-suggestions"),
        (SOKOBAN, "--compare-rules", "exact,sokoban"),
        (aliased_sokoban(tmp_path),),
    ):
        report = crbc("anchors", *arguments, "--json").json
        Draft202012Validator(schema).validate(report)
        assert report["report"] == "anchors"


def test_csv_has_one_row_per_group() -> None:
    rows = list(csv.DictReader(io.StringIO(crbc("anchors", SOKOBAN, "--csv").text)))
    log = pl.read_parquet(SOKOBAN)
    assert [row["group_id"] for row in rows] == log["group_id"].unique(
        maintain_order=True
    ).to_list()
    assert sum(int(row["visits"]) for row in rows) == log.height


@pytest.mark.parametrize("log", [ALFWORLD, SOKOBAN], ids=lambda path: path.stem)
@pytest.mark.parametrize("more", [(), ("--per-group",)])
def test_text_fits_eighty_columns(log: Path, more: tuple[str, ...]) -> None:
    """All but the lines to paste, which a line break would spoil."""
    text = crbc("anchors", log, "--state", "true_state", *more).text
    long = [line for line in text.splitlines() if len(line) > 80]
    assert all(line.lstrip().startswith(("pattern = ", "key = ", "no_op = ")) for line in long)
    assert "Traceback" not in text


def test_log_text_is_never_markup(tmp_path: Path) -> None:
    """Brackets, emoji codes and control characters are shown as they are, or as U+FFFD."""
    rows = [
        *rollout("[red]t[/red]", "A-[bold]go P-stop", 1, group="[/]"),
        *rollout("t1", "A-[bold]go Q-stop", 1, group="[/]"),
    ]
    for row in rows:
        row["observation"] = f"[blink]{row['observation']}[/blink] :smile: \x1b[31m"
    text = crbc("anchors", write_log(rows, tmp_path / "log.jsonl")).text
    assert "group [/]:" in text
    assert '"[blink]A[/blink] :smile: \ufffd[31m"' in text
    assert "[bold]go" in text
    assert "\x1b" not in text


def test_suggested_rules_are_written_and_work(tmp_path: Path) -> None:
    path = tmp_path / "suggested.toml"
    ended = crbc("anchors", ALFWORLD, "--suggest-rules", path)
    assert (ended.code, ended.stderr) == (0, f"4 suggestions -> {path}\n")
    assert load_rules(path.read_text("utf-8"), "suggested").name == "suggested"
    promised = crbc("anchors", ALFWORLD, "--json").json["under_suggested_rules"]
    found = crbc("anchors", ALFWORLD, "--rules", path, "--json").json
    for name in ("visits", "anchors", "shared_visits_share", "conflict_rate", "no_op_rows"):
        assert found[name] == promised[name]
    assert found["suggestions"] == []
    assert "No rule to suggest" in crbc("anchors", ALFWORLD, "--rules", path).text
    assert "exists already" in crbc("anchors", ALFWORLD, "--suggest-rules", path).refused()
    assert crbc("anchors", ALFWORLD, "--suggest-rules", path, "--force").code == 0


def test_nothing_to_suggest_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "suggested.toml"
    ended = crbc("anchors", SOKOBAN, "--suggest-rules", path)
    assert ended.code == 0
    assert not path.exists()
    assert "not written" in ended.stderr


def test_each_preset_has_a_page() -> None:
    names = preset_names()
    listed = crbc("anchors", "--explain-preset").text
    for name in names:
        assert name in listed
        page = crbc("anchors", "--explain-preset", name)
        assert page.code == 0
        assert page.text.startswith(f"{name}: ")
        assert "key:" in page.text
        assert max(map(len, page.text.splitlines())) <= 80
    both = crbc("anchors", "--explain-preset", *names[:2], "--json").json["presets"]
    assert [preset["name"] for preset in both] == names[:2]
    assert "ghost" in crbc("anchors", "--explain-preset", "ghost").refused()


def test_coverage_and_annotate_tell_the_conflict_rate(tmp_path: Path) -> None:
    rate = quality(ALFWORLD)["conflict_rate"]
    assert crbc("coverage", ALFWORLD, "--json").json["conflict_rate"] == rate
    told = f"conflict rate {100 * rate:.1f} %"
    assert told in crbc("coverage", ALFWORLD).text
    output = tmp_path / "credit.parquet"
    assert told in crbc("annotate", ALFWORLD, "-o", output).stderr
    made = json.loads(pl.read_parquet_metadata(output)["crbc"])
    assert [note["message"] for note in made["notes"] if note["code"] == "conflict_rate"] == [
        f"{told}: visits whose anchor and action had several next anchors"
    ]


def test_the_public_function_and_the_command_agree() -> None:
    report = crbc_cli.anchor_report([str(SOKOBAN)])
    shown = crbc("anchors", SOKOBAN, "--json").json
    assert {**report.to_dict(), "options": shown["options"]} == shown
