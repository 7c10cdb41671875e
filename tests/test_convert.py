"""`crbc convert` and `crbc inspect`: the step table of any log, and what a log is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from conftest import GOLDEN, ROOT, crbc, credit, golden_rows, jsonl
from dumps import write_lines
from test_formats_frame import golden_dump
from test_formats_trainers import rllm_folder

from crbc_cli.api import convert
from crbc_cli.logs.formats.registry import FORMATS
from crbc_cli.logs.sources import resolve
from crbc_cli.logs.whole import NotPlainError, Whole

NUMBERS = ["anchor", "visits", "state_value", "step_credit", "advantage", "group_status"]


def same_numbers(path: Path, *rules: object) -> bool:
    return credit(path, *rules).select(NUMBERS).equals(credit(GOLDEN).select(NUMBERS))


def is_plain(path: Path) -> bool:
    """Whether the quick way takes a log; if so, that it gives what the careful one gives."""
    [source] = resolve(str(path))
    try:
        quick = pl.concat(Whole(source, False).plain_frames())
    except NotPlainError:
        return False
    [careful] = Whole(source, False).frames()
    assert quick.columns == careful.columns
    assert quick.equals(careful.cast({n: t for n, t in quick.schema.items() if t != pl.Null}))
    return True


# --- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["parquet", "jsonl", "csv"])
def test_numbers_of_the_converted_log(to: str, tmp_path: Path) -> None:
    output = tmp_path / f"out.{to}"
    ended = crbc("convert", GOLDEN, "-o", output)
    assert ended.code == 0
    assert "9 rows -> " in ended.stderr
    if to == "csv":
        assert pl.read_csv(output).height == 9
        return
    assert same_numbers(output)
    again = tmp_path / "again.jsonl"
    assert crbc("convert", output, "-o", again).code == 0
    assert same_numbers(again)
    assert again.read_bytes() == (tmp_path / "out.jsonl").read_bytes() if to == "jsonl" else True


def test_columns_types_order_and_metadata(tmp_path: Path) -> None:
    """Canonical columns first and in their types, rows in input order, everything carried."""
    rows = [row | {"note": str(i), "success": int(row["success"])} for i, row in
            enumerate(reversed(golden_rows()))]  # fmt: skip
    log, output = tmp_path / "log.jsonl", tmp_path / "out.parquet"
    log.write_bytes(jsonl(rows))
    assert crbc("convert", log, "-o", output).code == 0
    table = pl.read_parquet(output)
    assert table.columns[:6] == [
        *("group_id", "rollout_id", "step", "observation", "action", "success"),
    ]
    assert table.schema["success"] == pl.Boolean
    assert table["note"].to_list() == [str(i) for i in range(9)]
    assert table["step"].to_list() == [row["step"] for row in rows]
    file = pq.ParquetFile(output)
    assert file.metadata.row_group(0).column(0).compression == "SNAPPY"
    made = json.loads(file.schema_arrow.metadata[b"crbc"])
    assert made["command"] == "convert"
    assert made["formats"] == {str(log): "table"}
    assert len(made["inputs"][0]["xxh3_128"]) == 32


def test_dumps_and_folders(tmp_path: Path) -> None:
    dump = write_lines(tmp_path / "rollouts.jsonl", golden_dump())
    assert crbc("convert", dump, "-o", tmp_path / "out.parquet").code == 0
    assert same_numbers(tmp_path / "out.parquet")
    streamed = crbc("convert", "-", "-o", "-", "--to", "jsonl", stdin=dump.read_bytes())
    (tmp_path / "streamed.jsonl").write_bytes(streamed.stdout)
    assert same_numbers(tmp_path / "streamed.jsonl")
    folder = rllm_folder(tmp_path / "train_step_3_epoch_0")
    assert crbc("convert", folder, "-o", tmp_path / "episodes.parquet").code == 0
    table = pl.read_parquet(tmp_path / "episodes.parquet")
    assert table.select("group_id", "rollout_id", "source_record").row(0) == (
        *("alf-17:agent", "2", 0),
    )


def test_several_inputs(tmp_path: Path) -> None:
    """In one output a column tells their groups apart; in a folder each has its own."""
    for name in ("9.jsonl", "10.jsonl"):
        (tmp_path / name).write_bytes(GOLDEN.read_bytes())
    logs = (tmp_path / "9.jsonl", tmp_path / "10.jsonl")
    ended = crbc("convert", *logs, "-o", tmp_path / "one.parquet")
    assert "--key source_file keeps their groups apart" in ended.stderr
    numbers = credit(tmp_path / "one.parquet", "--key", "source_file").select(NUMBERS)
    golden = credit(GOLDEN).select(NUMBERS)
    assert numbers.equals(pl.concat([golden, golden]))
    assert crbc("convert", *logs, "-o", f"{tmp_path}/steps/").code == 0
    assert same_numbers(tmp_path / "steps" / "9.steps.parquet")
    other = tmp_path / "other.jsonl"
    other.write_bytes(jsonl([row | {"more": 1} for row in golden_rows()]))
    line = crbc("convert", logs[0], other, "-o", tmp_path / "two.parquet").refused()
    assert "columns or their types differ" in line
    assert not (tmp_path / "two.parquet").exists()
    assert crbc("convert", logs[0], other, "-o", tmp_path / "two.jsonl").code == 0


def test_map_renames_and_reaches_into_members(tmp_path: Path) -> None:
    rows = [
        {"gid": r.pop("group_id"), "at": {"text": r.pop("observation")}} | r for r in golden_rows()
    ]
    log, output = tmp_path / "log.jsonl", tmp_path / "out.parquet"
    log.write_bytes(jsonl(rows))
    rules = ("--map", "group_id=gid,observation=at.text")
    assert crbc("convert", log, *rules, "-o", output).code == 0
    assert same_numbers(output)
    assert "gid" not in pl.read_parquet_schema(output)
    line = crbc("convert", log, "--map", "group_id=g", "-o", tmp_path / "x.parquet").refused()
    assert "has no column g" in line


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl([{"step": 1, "observation": "a"}]))
    output = tmp_path / "out.parquet"
    assert "has no columns group_id, rollout_id" in crbc("convert", log, "-o", output).refused()
    log.write_bytes(jsonl([row | {"done": "yes"} for row in golden_rows()]))
    assert "needs true/false" in crbc("convert", log, "-o", output).refused()
    output.write_bytes(b"")
    assert "exists already" in crbc("convert", GOLDEN, "-o", output).refused()
    assert crbc("convert", GOLDEN, "-o", output, "--force").code == 0
    assert not list(tmp_path.glob(".*"))


def test_one_public_function(tmp_path: Path) -> None:
    done = convert(str(GOLDEN), str(tmp_path / "out.parquet"))
    assert (done.rows, done.columns[0]) == (9, "group_id")


# --- odd logs -------------------------------------------------------------------------------------


def test_drifting_members_keep_their_content(tmp_path: Path) -> None:
    """The case drifting-schema: null, then an object, then a string in one member."""
    case = ROOT / "tests" / "cases" / "drifting-schema.jsonl"
    assert not is_plain(case)
    for name in ("out.parquet", "out.jsonl"):
        assert crbc("convert", case, "-o", tmp_path / name).code == 0
        numbers = credit(tmp_path / name).select(NUMBERS)
        assert numbers.equals(credit(case).select(NUMBERS))
    logged = [json.loads(line) for line in case.read_text().splitlines()]
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row.get("info") for row in written] == [row.get("info") for row in logged]


def test_nested_observations_stay_documents(tmp_path: Path) -> None:
    rows = golden_rows()
    for i, row in enumerate(rows):
        see = {"see": row["observation"], "n": 1}
        row["observation"] = dict(reversed(see.items())) if i % 2 else see | {"none": None}
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(rows))
    for name in ("out.parquet", "out.jsonl"):
        assert crbc("convert", log, "-o", tmp_path / name).code == 0
        assert same_numbers(tmp_path / name)
        assert same_numbers(tmp_path / name, "--anchor", "observation.see")


@pytest.mark.parametrize("copies", [1, 2000])
@pytest.mark.parametrize(
    ("change", "plain"),
    [
        ({}, True),
        ({"note": 'a "quoted": word'}, True),
        ({"note": None}, True),
        ({"count": 3, "ratio": 0.5, "flag": True}, True),
        ({"count": 2**70}, False),
        ({"info": {"a": 1}}, False),
        ({"info": [1]}, False),
        ({'a"b': 1}, False),
        ({"ends with \\": 1}, False),
    ],
)
def test_plain_logs_go_the_quick_way(
    change: dict[str, Any], plain: bool, copies: int, tmp_path: Path
) -> None:
    """And give what the careful way gives."""
    rows = [row | change for row in golden_rows()] * copies
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(rows))
    assert is_plain(log) is plain
    log.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    assert is_plain(log) is plain


@pytest.mark.parametrize(
    "last",
    [
        {"late": 1},
        {"observation": {"a": 1}},
        {"reward": "x"},
        {"group_id": 5},
        {"note": 1},
        {"note": 0.5},
    ],
)
def test_a_late_surprise_is_not_lost(last: dict[str, Any], tmp_path: Path) -> None:
    """A member or a type that only the last of many lines has."""
    rows = [row | {"note": "n"} for row in golden_rows() * 4000]
    rows.append(rows[-1] | last)
    log, output = tmp_path / "log.jsonl", tmp_path / "out.jsonl"
    log.write_bytes(jsonl(rows))
    assert not is_plain(log)
    [source] = resolve(str(log))
    [frame] = Whole(source, False).frames()
    assert set(last) <= set(frame.columns)
    if set(last) <= {"late", "note", "observation"}:
        assert crbc("convert", log, "-o", output).code == 0
        written = json.loads(output.read_bytes().splitlines()[-1])
        assert {name: written[name] for name in last} == last


def test_an_absent_member_is_null(tmp_path: Path) -> None:
    """Of a log whose lines leave out what they do not know, nothing is lost in the quick way."""
    rows = golden_rows() * 2000
    sparse = [{k: v for k, v in row.items() if v is not None and v is not False} for row in rows]
    log, output = tmp_path / "log.jsonl", tmp_path / "out.parquet"
    log.write_bytes(jsonl(sparse))
    assert is_plain(log)
    assert crbc("convert", log, "-o", output).code == 0
    written = pl.read_parquet(output).to_dicts()
    assert [{k: v for k, v in row.items() if v is not None} for row in written] == sparse


def test_documents_of_one_input_leave_the_texts_of_another_alone(tmp_path: Path) -> None:
    """A text is quoted in JSONL, and does not go into a Parquet column of documents."""
    rows = golden_rows()
    documents, texts = tmp_path / "documents.jsonl", tmp_path / "texts.jsonl"
    documents.write_bytes(jsonl(row | {"observation": {"at": row["observation"]}} for row in rows))
    texts.write_bytes(jsonl(row | {"observation": "5"} for row in rows))
    for first, second in ((documents, texts), (texts, documents)):
        output = tmp_path / "both.jsonl"
        assert crbc("convert", first, second, "-o", output, "--force").code == 0
        written = [json.loads(line) for line in output.read_text().splitlines()]
        logged = [json.loads(line) for f in (first, second) for line in f.read_text().splitlines()]
        assert [row["observation"] for row in written] == [row["observation"] for row in logged]
        told = crbc("convert", first, second, "-o", tmp_path / "both.parquet").refused()
        assert told.startswith(f"crbc: error: {second}: its columns or their types differ")


@pytest.mark.parametrize("to", ["parquet", "jsonl"])
def test_many_rows_of_parquet_are_renamed_and_regrouped_alike(to: str, tmp_path: Path) -> None:
    """What holds for a log holds for all pieces in which it is read."""
    rows = 300_000
    table = pl.DataFrame(
        {
            "group_id": ["a"] * 280_000 + ["b"] * 20_000,
            "task": [row // 100 for row in range(rows)],
            "rollout_id": [row // 10 for row in range(rows)],
            "step": [row % 10 for row in range(rows)],
            "seen": [{"text": f"o{row % 7}"} for row in range(rows)],
            "action": ["x"] * rows,
        }
    )
    log, output = tmp_path / "log.parquet", tmp_path / f"out.{to}"
    table.write_parquet(log)
    mapped = ("--map", "observation=seen.text", "--group-by", "task")
    assert crbc("convert", log, *mapped, "-o", output).code == 0
    made = pl.read_parquet(output) if to == "parquet" else pl.read_ndjson(output)
    assert made["logged_group_id"].equals(table["group_id"], check_names=False)
    assert made["observation"].equals(table["seen"].struct.field("text"), check_names=False)
    assert made["group_id"].n_unique() == 3000


def test_torn_and_bad_lines(tmp_path: Path) -> None:
    log, output = tmp_path / "log.jsonl", tmp_path / "out.parquet"
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    ended = crbc("convert", log, "-o", output)
    assert f"warning: {log}:9: last line is torn" in ended.stderr
    assert pl.read_parquet(output).height == 8
    log.write_bytes(lines[0] + b"nothing\n" + b"".join(lines[1:]))
    assert f"{log}:2: not a JSON object" in crbc("convert", log, "-o", output, "--force").refused()
    assert crbc("convert", log, "-o", output, "--force", "--skip-bad-lines").code == 0
    assert same_numbers(output)


@pytest.mark.parametrize("rule", [("--group-by", "task"), ("--group-stride", "2")])
@pytest.mark.parametrize("to", ["parquet", "jsonl"])
def test_groups_by_rule_are_written(rule: tuple[str, str], to: str, tmp_path: Path) -> None:
    """The converted log has the groups that the same rule gives elsewhere; a group_id of its own
    that says something keeps another name."""
    rows = [
        row | {"rollout_id": f"{copy}{row['rollout_id']}", "task": copy, "group_id": f"u{i}"}
        for copy in range(3)
        for i, row in enumerate(golden_rows())
    ]
    log, output = tmp_path / "log.jsonl", tmp_path / f"out.{to}"
    log.write_bytes(jsonl(rows))
    assert crbc("convert", log, *rule, "-o", output).code == 0
    assert credit(output).select(NUMBERS).equals(credit(log, *rule).select(NUMBERS))
    table = pl.read_parquet(output) if to == "parquet" else pl.read_ndjson(output)
    assert table["group_id"].n_unique() == (3 if rule[0] == "--group-by" else 6)
    assert table["logged_group_id"].to_list() == [row["group_id"] for row in rows]


def test_dumps_without_groups_are_converted_by_rule(tmp_path: Path) -> None:
    def chat(task: str, reply: str) -> dict[str, Any]:
        said = [{"role": "user", "content": task}, {"role": "assistant", "content": reply}]
        return {"messages": said, "prompt": task, "reward": 1.0}

    log = write_lines(tmp_path / "c.jsonl", [chat(t, r) for t in ("a", "b") for r in ("x", "y")])
    output = tmp_path / "out.parquet"
    assert crbc("convert", log, "--group-by", "prompt", "-o", output).code == 0
    assert pl.read_parquet(output)["group_id"].to_list() == ["a", "a", "b", "b"]


# --- inspect --------------------------------------------------------------------------------------


def test_inspect_a_step_table() -> None:
    [one] = crbc("inspect", GOLDEN, "--json").json["inputs"]
    assert (one["format"], one["container"], one["rows"]) == ("table", "jsonl", 9)
    assert (one["groups"], one["rollouts"], one["group_sizes"]) == (1, 4, {"4": 1})
    assert one["rollout_lengths"] == [2, 2, 3]
    assert one["columns"][0] == {"name": "group_id", "dtype": "String", "nulls": 0}
    assert one["head"][0]["observation"] == "S"
    assert one["bytes"] == GOLDEN.stat().st_size
    text = crbc("inspect", GOLDEN).text
    assert "9 rows; 4 rollouts; 1 group (1 of size 4); 2 to 3 rows a rollout" in text


def test_inspect_says_that_no_outcome_is_logged(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if k != "success"} for row in golden_rows()[:3]]
    [one] = crbc("inspect", write_lines(tmp_path / "x.jsonl", rows), "--json").json["inputs"]
    assert one["title"] == "step table"
    assert one["lacks"].startswith("no success; --success-when")
    assert one["rollout_lengths"] == [1, 1.5, 2]


def test_inspect_dumps(tmp_path: Path) -> None:
    """Also one that names no groups."""
    dump = write_lines(tmp_path / "rollouts.jsonl", golden_dump())
    [one] = crbc("inspect", dump, "--json", "--rows", "1").json["inputs"]
    assert (one["format"], one["rows"], len(one["head"])) == ("selective-rollout", 9, 1)
    trl = tmp_path / "completions.parquet"
    rows = [{"step": 1, "prompt": "Q", "completion": "a" * 999, "advantage": 0.0}]
    pl.DataFrame(rows).write_parquet(trl)
    ended = crbc("inspect", trl, "--json")
    [one] = ended.json["inputs"]
    assert one["format"] == "trl"
    assert "without group" in one["lacks"]
    assert (one["groups"], one["rollouts"]) == (None, 1)
    assert len(one["head"][0]["action"]) == 201
    assert "cannot carry a closure as it is" in crbc("inspect", trl).text


def test_formats_are_listed_by_the_names_that_from_takes() -> None:
    text = crbc("inspect", "--formats").text
    assert FORMATS.keys() <= {line.split()[0] for line in text.splitlines() if line.split()}


def test_inspect_says_what_a_table_lacks_and_that_records_have_no_groups(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    row = {"group_id": 1, "run": 2, "step": 0, "observation": "S", "action": "a", "success": True}
    log.write_bytes(jsonl([row]))
    [one] = crbc("inspect", log, "--json").json["inputs"]
    assert one["title"] == "table"
    assert one["lacks"].startswith("no rollout_id; --map")
    [one] = crbc("inspect", log, "--json", "--map", "rollout_id=run").json["inputs"]
    assert (one["title"], one["lacks"]) == ("step table", "")
    turns = [{"role": "user", "content": "S"}, {"role": "assistant", "content": "a"}]
    log.write_text((json.dumps({"messages": turns}) + "\n") * 2)
    [one] = crbc("inspect", log, "--json").json["inputs"]
    assert (one["groups"], one["group_sizes"], one["rollouts"]) == (None, None, 2)


def test_a_missing_outcome_is_named_as_the_format_has_it(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    row = {"uid": "u", "traj_uid": "x", "anchor_obs": "S", "text_actions": "a"}
    log.write_text(json.dumps(row | {"rewards": 0.0, "episode_rewards": 0.0}) + "\n")
    ended = crbc("annotate", log, "-o", "-")
    assert ended.code == 2
    assert '--success-when "episode_rewards >= 10"' in ended.stderr
