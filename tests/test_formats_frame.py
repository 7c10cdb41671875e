"""Dumps of other programs are told by their first record and then read like any other log."""

from __future__ import annotations

import collections
import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from conftest import GOLDEN, crbc, credit, golden_rows, jsonl
from dumps import columns_of, read_dump, said, write_lines

from crbc_cli.logs.formats.registry import FORMATS
from crbc_cli.logs.formats.unpickle import Stranger, UnpickleError, load_pickle
from crbc_cli.logs.open import open_logs
from crbc_cli.notes import Notes
from crbc_cli.options import LogOptions


def golden_dump() -> list[dict[str, Any]]:
    """The golden group as Selective Rollout writes groups."""
    rollouts: dict[str, list[dict[str, Any]]] = {}
    for row in golden_rows():
        step = {"obs": row["observation"], "action": row["action"], "reward": row["reward"]}
        step |= {"done": row["done"], "raw_completion": f"Action: {row['action']}"}
        rollouts.setdefault(row["rollout_id"], []).append(step)
    won = {row["rollout_id"]: row["success"] for row in golden_rows()}
    trajectories = [
        {"won": won[name], "terminated_at": len(steps) - 1, "steps": steps}
        for name, steps in rollouts.items()
    ]
    return [{"task_id": "golden", "group_size": 4, "trajectories": trajectories}]


def same_numbers(dump: pl.DataFrame) -> bool:
    numbers = ["anchor", "visits", "state_value", "step_credit", "advantage", "group_status"]
    return dump.select(numbers).equals(credit(GOLDEN).select(numbers))


def test_a_dump_is_annotated_like_a_step_table(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", golden_dump())
    assert same_numbers(credit(path))
    assert same_numbers(credit("-", stdin=path.read_bytes()))
    packed = tmp_path / "rollouts.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert same_numbers(credit(packed))
    assert same_numbers(credit(path, "--from", "selective-rollout"))
    assert same_numbers(credit(path, env={"CRBC_FROM": "selective-rollout"}))
    (tmp_path / "crbc.toml").write_text('from = "selective-rollout"')
    assert same_numbers(credit(path, cwd=tmp_path))


def test_what_was_inferred_is_said_and_stored(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", golden_dump())
    ended = crbc("annotate", path)
    assert f"note: {path}: read as Selective Rollout groups (--from selective-rollout)" in (
        ended.stderr
    )
    made = json.loads(pq.read_metadata(tmp_path / "rollouts.credit.parquet").metadata[b"crbc"])
    assert {"format", "outcome"} <= {note["code"] for note in made["notes"]}
    assert made["options"]["from"] == ""
    assert [entry["name"] for entry in made["inputs"]] == [str(path)]


def test_every_log_command_takes_a_dump(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", golden_dump())
    for command in ("check", "coverage", "profile", "anchors"):
        assert crbc(command, path, "--json").json
    assert crbc("explain", path, "--step", "0:0", "--json").json["step"]["step"] == 0
    assert crbc("compare", path, "--methods", "crbc,gigpo").code == 0


def test_filter_of_a_dump_writes_the_step_table(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", golden_dump())
    assert crbc("filter", path, "--keep", "ok").code == 0
    kept = tmp_path / "rollouts.filtered.parquet"
    assert pl.read_parquet(kept).columns[:5] == [
        *("group_id", "rollout_id", "step", "observation", "action"),
    ]
    assert same_numbers(credit(kept))
    joined = tmp_path / "joined.parquet"
    assert crbc("annotate", path, "--columns", "all", "-o", joined).code == 0
    table = pl.read_parquet(joined)
    assert table["response"][0] == f"Action: {table['action'][0]}"
    assert same_numbers(table)


def test_nested_observations_keep_their_content(tmp_path: Path) -> None:
    """As JSON lines do: key order and null members do not matter."""
    [group] = golden_dump()
    for number, rollout in enumerate(group["trajectories"]):
        for step in rollout["steps"]:
            parts: dict[str, Any] = {"see": step["obs"], "held": [1, {"x": number < 9}]}
            step["obs"] = dict(reversed(parts.items())) if number % 2 else parts | {"hand": None}
    path = write_lines(tmp_path / "rollouts.jsonl", [group])
    assert same_numbers(credit(path))
    assert same_numbers(credit(path, "--anchor", "observation.see"))
    kept = tmp_path / "kept.parquet"
    assert crbc("filter", path, "--keep", "ok", "-o", kept).code == 0
    assert same_numbers(credit(kept))


def test_from_names_a_format(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", golden_rows())
    assert "--from 'vrl' is no known format" in crbc("check", path, "--from", "vrl").refused()
    assert "has no member trajectories" in (
        crbc("check", path, "--from", "selective-rollout").refused()
    )
    dump = write_lines(tmp_path / "rollouts.jsonl", golden_dump())
    assert "has no columns group_id" in crbc("check", dump, "--from", "table").refused()


def test_map_says_what_the_columns_are(tmp_path: Path) -> None:
    """Nothing is guessed then."""
    path = write_lines(tmp_path / "rollouts.jsonl", golden_dump())
    line = crbc("check", path, "--map", "group_id=task_id").refused()
    assert "has no columns rollout_id" in line


def test_step_tables_are_not_looked_into(tmp_path: Path) -> None:
    rows = [row | {"task_id": 1, "trajectories": [{"terminated_at": 0}]} for row in golden_rows()]
    path = tmp_path / "log.jsonl"
    path.write_bytes(jsonl(rows))
    [source] = open_logs(str(path), LogOptions(), Notes())
    assert (source.container, source.format) == ("jsonl", "")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"[1, 2]", "a JSON document"),
        (b"[]", "a JSON document"),
        (b'{\n "a": 1\n}', "a JSON document"),
        (b"SQLite format 3\0" + bytes(100), "an SQLite database"),
        (pickle.dumps({"a": 1}), "a pickle"),
        (b"PK\x03\x04" + bytes(100), "a zip archive"),
    ],
)
def test_unknown_containers_are_named(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    line = crbc("check", path).refused()
    assert f"{what} of no known format" in line
    assert "selective-rollout" in line


def test_a_folder_holds_logs_and_dumps(tmp_path: Path) -> None:
    """Other JSON in it is nobody's log."""
    write_lines(tmp_path / "run" / "10.jsonl", golden_dump())
    write_lines(tmp_path / "run" / "9.jsonl", golden_rows())
    (tmp_path / "run" / "metadata.json").write_text('{"seed": 1}')
    names = [Path(s.name).name for s in open_logs(str(tmp_path / "run"), LogOptions(), Notes())]
    assert names == ["9.jsonl", "10.jsonl"]


def test_torn_and_bad_lines_of_a_dump(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    lines = [json.dumps(record).encode() for record in (*golden_dump(), *golden_dump())]
    path.write_bytes(lines[0] + b"\n" + lines[1][:100])
    _, notes = read_dump(path)
    assert said(notes)["torn_line"].endswith("rollouts.jsonl:2: last line is torn and left out")
    path.write_bytes(lines[0] + b"\nnothing\n" + lines[1] + b"\n")
    assert "rollouts.jsonl:2: not a JSON object" in crbc("check", path).refused()
    table, notes = read_dump(path, skip_bad_lines=True)
    assert "skipped_lines" in said(notes)
    assert table["source_record"].unique().to_list() == [0, 2]


# --- selective-rollout ----------------------------------------------------------------------------

SELECTIVE = {
    "task_id": "alf-17",
    "task_desc": "put the lamp on desk 1",
    "game_file": "g.tw",
    "group_size": 8,
    "max_steps": 30,
    "wall_time_sec": 21.5,
    "trajectories": [
        {
            "total_reward": 1.0,
            "won": True,
            "terminated_at": 0,
            "steps": [
                {
                    "obs": "hall",
                    "thought": "",
                    "action": "go desk",
                    "raw_completion": "Action: go desk",
                    "reward": 1.0,
                    "done": True,
                    "won": True,
                }
            ],
        }
    ],
}


def test_selective_rollout(tmp_path: Path) -> None:
    """The gate's cut at K = 1 has terminated_at 0 and won false; only `done` tells it apart."""
    step = SELECTIVE["trajectories"][0]["steps"][0]  # type: ignore[index]
    cut = {"won": False, "terminated_at": 0, "steps": [step | {"done": False, "reward": 0.0}]}
    crashed = {"won": False, "terminated_at": -1, "steps": []}
    record = SELECTIVE | {"trajectories": [*SELECTIVE["trajectories"], cut, crashed]}  # type: ignore[misc]
    table, notes = read_dump(write_lines(tmp_path / "rollouts.jsonl", [record]))
    names = ("group_id", "rollout_id", "step", "observation", "action", "reward")
    assert columns_of(table, *names) == [
        ("alf-17", 0, 0, "hall", "go desk", 1.0),
        ("alf-17", 1, 0, "hall", "go desk", 0.0),
    ]
    assert columns_of(table, "done", "success", "truncated") == [
        (True, True, False),
        (False, False, True),
    ]
    assert "1 rollout cut" in said(notes)["cut"]
    assert "1 rollout without steps left out" in said(notes)["empty_rollouts"]


# --- pickles --------------------------------------------------------------------------------------


class _Hostile:
    def __reduce__(self) -> Any:
        return os.system, ("touch pwned",)


class _Sample:
    def __init__(self) -> None:
        self.text = "hall"


def test_nothing_in_a_pickle_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found = load_pickle(pickle.dumps([_Hostile(), 1], protocol))
        assert isinstance(found[0], Stranger)
        assert found[0].args == ("touch pwned",)
    for call in (eval, exec, getattr, __import__):
        data = b"c" + f"builtins\n{call.__name__}\n".encode() + b"(S'1'\ntR."
        assert isinstance(load_pickle(data), Stranger)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_objects_and_arrays_come_back(protocol: int) -> None:
    values = {
        "text": ["a", None, True, 3, 2.5],
        "bytes": b"\x00\xff",
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "objects": np.array(["x", {"y": 1}, None], dtype=object),
        "number": np.float32(1.5),
        "ordered": collections.OrderedDict(a=1),
    }
    found = load_pickle(pickle.dumps(values, protocol))
    assert found["text"] == values["text"]
    assert found["bytes"] == values["bytes"]
    np.testing.assert_array_equal(found["array"], values["array"])
    assert found["objects"].tolist() == ["x", {"y": 1}, None]
    assert found["number"] == 1.5
    assert found["ordered"] == {"a": 1}
    sample = load_pickle(pickle.dumps(_Sample(), protocol))
    assert isinstance(sample, Stranger)
    assert sample.state == {"text": "hall"}


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x04", b"\x80\x05\x95\xff", b"hello", b"."])
def test_damaged_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(UnpickleError):
        load_pickle(data)


def test_formats_describe_themselves() -> None:
    for name, known in FORMATS.items():
        assert known.name == name
        assert known.title
        assert known.writer
        assert known.lacks or (known.group and known.rollout and known.step and known.state), name
