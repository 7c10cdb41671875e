"""What logs may look like on disk and in a pipe, and who belongs to whom in them."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import GOLDEN, ROOT, crbc, credit, golden_rows, jsonl, program

from crbc_cli.logs.sources import natural_key, resolve

ROWS = golden_rows()
TABLE = pa.Table.from_pylist(ROWS)
# Algorithms section 2.10, in file order.
STEP_CREDIT = [1, 0.5**0.5, 1, -(2**0.5), -1, 1, 0.5**0.5, -1, -1]
ANCHORS = [0, 1, 0, 1, 0, 2, 1, 0, 2]


def is_golden(frame: pl.DataFrame) -> bool:
    return frame["anchor"].to_list() == ANCHORS and bool(
        np.allclose(frame["step_credit"].to_list(), STEP_CREDIT, rtol=0, atol=1e-12)
    )


def each(**cells: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """The golden rows with some columns computed from the row."""
    return [row | {name: cell(row) for name, cell in cells.items()} for row in ROWS]


def column(cell: Callable[[dict[str, Any]], Any], dtype: pa.DataType | None = None) -> pa.Array:
    """One value per golden row."""
    return pa.array([cell(row) for row in ROWS], dtype)


def parquet(path: Path, **columns: pa.Array) -> Path:
    """The golden group as Parquet with some columns replaced or added."""
    table = TABLE
    for name, values in columns.items():
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, values)
        else:
            table = table.append_column(name, values)
    pq.write_table(table, path)
    return path


def zstd(*parts: bytes) -> bytes:
    """Zstandard data of one member per part."""
    members = []
    for part in parts:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(part)
        members.append(bytes(sink.getvalue()))
    return b"".join(members)


# --- containers -----------------------------------------------------------------------------------

_LINES = jsonl(ROWS)
_HALVES = jsonl(ROWS[:4]), jsonl(ROWS[4:])
_PARQUET = pa.BufferOutputStream()
pq.write_table(TABLE, _PARQUET)
_TABLE_BYTES = bytes(_PARQUET.getvalue())
CONTAINERS = {
    "log.parquet": _TABLE_BYTES,
    "log.jsonl": _LINES,
    "no-newline-at-the-end.jsonl": _LINES.rstrip(),
    "log.jsonl.gz": gzip.compress(_LINES),
    "members.jsonl.gz": gzip.compress(_HALVES[0]) + gzip.compress(_HALVES[1]),
    "log.jsonl.zst": zstd(_LINES),
    "members.jsonl.zst": zstd(*_HALVES),
    "log.parquet.gz": gzip.compress(_TABLE_BYTES),
    "log.parquet.zst": zstd(_TABLE_BYTES),
    "gzip-without-the-suffix.jsonl": gzip.compress(_LINES),
    "no-suffix": _LINES,
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_container(name: str, tmp_path: Path) -> None:
    """Read from a file, and from stdin, where it has no name."""
    path = tmp_path / name
    path.write_bytes(CONTAINERS[name])
    from_file, from_stdin = credit(path), credit("-", stdin=CONTAINERS[name])
    assert is_golden(from_file)
    assert from_file["source_file"].unique().to_list() == [str(path)]
    assert from_file["source_row"].to_list() == list(range(9))
    assert from_stdin["source_file"].unique().to_list() == ["-"]
    assert from_stdin.drop("source_file").equals(from_file.drop("source_file"))


@pytest.mark.parametrize("cut", ["log.jsonl.gz", "log.jsonl.zst", "log.parquet.gz"])
def test_cut_compressed_file_is_refused(cut: str, tmp_path: Path) -> None:
    path = tmp_path / cut
    data = CONTAINERS[cut]
    path.write_bytes(data[: len(data) * 2 // 3])
    assert str(path) in crbc("annotate", path).refused()
    assert os.listdir(tmp_path) == [cut]


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"BZh91AY", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"PK\x03\x04", "zip"),
        (b"ARROW1\0\0", "Arrow file"),
        (b"\xff\xff\xff\xff\xd0\x07", "Arrow stream"),
        ("\ufeff{}".encode("utf-16-le"), "UTF-16"),
    ],
)
def test_known_foreign_format_is_named(head: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(head + bytes(100))
    assert what in crbc("coverage", path).refused()


def test_piped_stdin_needs_no_argument(tmp_path: Path) -> None:
    """`crbc annotate < log` streams Arrow; a named pipe works like a file."""
    ended = program("annotate", stdin=_LINES)
    assert ended.code == 0
    frame = pl.from_arrow(ended.table)
    assert isinstance(frame, pl.DataFrame)
    assert is_golden(frame)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    feeding = threading.Thread(target=lambda: fifo.write_bytes(gzip.compress(_LINES)))
    feeding.start()
    piped = credit(fifo)
    feeding.join()
    assert is_golden(piped)
    assert piped["source_file"][0] == str(fifo)


# --- which files ----------------------------------------------------------------------------------


def test_directories_globs_and_lists(tmp_path: Path) -> None:
    """Natural order, 9 before 10; order as given elsewhere; own outputs and hidden files left."""
    folder = tmp_path / "logs"
    (folder / "sub").mkdir(parents=True)
    (folder / ".cache").mkdir()
    for name in ("9.jsonl", "10.jsonl", "11.jsonl", "sub/1.jsonl", ".cache/2.jsonl"):
        (folder / name).write_bytes(_LINES)
    (folder / "9.credit.jsonl").write_text("not a log")
    (folder / "notes.txt").write_text("not a log")
    (tmp_path / "list.txt").write_text(
        "\ufeff# comment\r\nlogs/11.jsonl\r\n\r\nlogs/sub/*.jsonl\n", "utf-8"
    )

    def files(*arguments: str) -> list[str]:
        frame = credit(*arguments, cwd=tmp_path)
        return frame["source_file"].unique(maintain_order=True).to_list()

    numbered = ["logs/9.jsonl", "logs/10.jsonl", "logs/11.jsonl"]
    assert files("logs") == [*numbered, "logs/sub/1.jsonl"]
    assert files("logs/*.jsonl") == numbered
    assert files("logs/**/*.jsonl") == [*numbered, "logs/sub/1.jsonl"]
    assert files("logs/[0-9]*.jsonl") == numbered
    assert files("logs/11.jsonl", "logs/9.jsonl") == ["logs/11.jsonl", "logs/9.jsonl"]
    assert files("@list.txt") == ["logs/11.jsonl", "logs/sub/1.jsonl"]


def test_natural_order() -> None:
    names = ["11.jsonl", "9²8.jsonl", "9.jsonl", "a10b2", "10.jsonl", "a9b10", "a9b9", "009.jsonl"]
    assert sorted(names, key=natural_key) == [
        "009.jsonl",
        "9.jsonl",
        "9²8.jsonl",
        "10.jsonl",
        "11.jsonl",
        "a9b9",
        "a9b10",
        "a10b2",
    ]


def test_inputs_that_name_nothing(tmp_path: Path) -> None:
    """Each refusal names what was typed."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "none.txt").write_text("\n# nothing\n")
    (tmp_path / "self.txt").write_text("@self.txt\n")
    for typed, said in {
        "gone.jsonl": "gone.jsonl: no such file",
        "empty": "empty: holds no",
        "*.jsonl": "*.jsonl: matches no file",
        "@gone.txt": "gone.txt: list of inputs cannot be read",
        "@none.txt": "none.txt: list of inputs is empty",
        "@self.txt": "self.txt: list of inputs names itself",
    }.items():
        assert said in crbc("coverage", typed, cwd=tmp_path).refused()


def test_no_log_is_read_twice(tmp_path: Path) -> None:
    """Also not under another name of the same file."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(_LINES)
    (tmp_path / "link.jsonl").symlink_to(path)
    for again in (path, tmp_path / "link.jsonl", f"{tmp_path}/./log.jsonl"):
        assert "given more than once" in crbc("coverage", path, again).refused()
    assert "more than once" in crbc("coverage", "-", "-", stdin=_LINES).refused()


# --- columns and types ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
def test_integer_ids_keep_their_type(dtype: str, tmp_path: Path) -> None:
    arrow = pa.type_for_alias(dtype)
    high = 2**64 - 10 if dtype == "uint64" else 0
    path = parquet(
        tmp_path / "log.parquet",
        group_id=column(lambda row: 7, arrow),
        rollout_id=column(lambda row: high + int(row["rollout_id"][1]), arrow),
        step=column(lambda row: row["step"], arrow),
    )
    ended = crbc("annotate", path, "-o", "-", "--to", "arrow")
    schema = ended.table.schema
    assert [schema.field(n).type for n in ("group_id", "rollout_id")] == [arrow, arrow]
    assert schema.field("step").type == pa.int64()
    frame = pl.from_arrow(ended.table)
    assert isinstance(frame, pl.DataFrame)
    assert is_golden(frame)
    assert frame["rollout_id"][8] == high + 3


_TEXT_TYPES = {
    "large string": lambda values: pa.array(values, pa.large_string()),
    "string view": lambda values: pa.array(values, pa.string_view()),
    "dictionary": lambda values: pa.array(values).dictionary_encode(),
}


@pytest.mark.parametrize("kind", _TEXT_TYPES)
def test_text_types(kind: str, tmp_path: Path) -> None:
    names = ("group_id", "rollout_id", "observation", "action")
    path = parquet(
        tmp_path / "log.parquet",
        **{name: _TEXT_TYPES[kind]([row[name] for row in ROWS]) for name in names},
    )
    frame = credit(path)
    assert is_golden(frame)
    assert frame["rollout_id"].to_list() == [row["rollout_id"] for row in ROWS]


def test_polars_categories(tmp_path: Path) -> None:
    ids = pl.Enum(["t0", "t1", "t2", "t3"])
    frame = pl.DataFrame(ROWS).with_columns(
        pl.col("rollout_id").cast(ids), pl.col("group_id", "observation").cast(pl.Categorical)
    )
    frame.write_parquet(tmp_path / "log.parquet")
    assert is_golden(credit(tmp_path / "log.parquet"))


_POINT_IN_TIME = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_VALUES: dict[str, Callable[[str], Any]] = {
    "struct": lambda text: {"room": text, "n": 1},
    "list": lambda text: [ord(text), 1],
    "nested list": lambda text: [[text], []],
    "bytes": lambda text: text.encode(),
    "float": lambda text: ord(text) / 2,
    "float with NaN": lambda text: math.nan if text == "S" else float(ord(text)),
    "boolean": lambda text: text in "apc",
    "decimal": lambda text: decimal.Decimal(ord(text)) / 4,
    "date": lambda text: datetime.date(2026, 1, 1) + datetime.timedelta(ord(text)),
    "time stamp": lambda text: _POINT_IN_TIME + datetime.timedelta(0, ord(text)),
    "duration": lambda text: datetime.timedelta(0, ord(text)),
}


@pytest.mark.parametrize("kind", _VALUES)
def test_any_type_is_an_observation_and_an_action(kind: str, tmp_path: Path) -> None:
    """Content is compared by value whatever its type. Booleans tell no three anchors apart."""
    value = _VALUES[kind]
    both = {"action": column(lambda row: value(row["action"]))}
    if kind != "boolean":
        both["observation"] = column(lambda row: value(row["observation"]))
    if kind == "float with NaN":
        del both["action"]
    frame = credit(parquet(tmp_path / "log.parquet", **both), "--anchor-id")
    assert is_golden(frame)
    assert frame["anchor_id"].n_unique() == 3


def test_narrow_arrow_types(tmp_path: Path) -> None:
    """Half floats, fixed-size bytes and lists, unsigned and decimal flags and rewards."""
    path = parquet(
        tmp_path / "log.parquet",
        observation=column(
            lambda row: [float(ord(row["observation"])), 1], pa.list_(pa.float32(), 2)
        ),
        action=column(lambda row: row["action"].encode(), pa.binary(1)),
        reward=column(lambda row: decimal.Decimal(row["reward"]), pa.decimal128(10, 2)),
        success=column(lambda row: int(row["success"]), pa.uint8()),
        done=column(lambda row: float(row["done"]), pa.float16()),
    )
    assert is_golden(credit(path, "--reward", "sum"))
    assert is_golden(credit(path, "--success-when", "reward >= 1"))


def test_json_values_of_many_types(tmp_path: Path) -> None:
    """One column may hold text, numbers and objects; NaN is a value of its own, not null."""
    path = tmp_path / "log.jsonl"
    anchors = {"S": math.nan, "M": [math.nan, {"b": 1, "a": None}], "N": "M"}
    actions = {"a": {"tool": "x", "args": [1]}, "b": 1, "p": "1", "q": True, "c": 2.5, "d": None}
    path.write_bytes(
        jsonl(
            each(
                observation=lambda row: anchors[row["observation"]],
                action=lambda row: actions[row["action"]],
            )
        )
    )
    frame = credit(path)
    assert is_golden(frame)
    # Member order and members that are null do not matter, nested NaN is no null.
    rows = each(observation=lambda row: anchors[row["observation"]])
    rows[6]["observation"] = [math.nan, {"b": 1.0}]
    path.write_bytes(jsonl(rows))
    assert is_golden(credit(path))
    rows[6]["observation"] = [None, {"b": 1.0}]
    path.write_bytes(jsonl(rows))
    assert credit(path)["anchor"].to_list() == [0, 1, 0, 1, 0, 2, 3, 0, 2]


def test_flags_and_numbers_may_be_written_in_several_ways(tmp_path: Path) -> None:
    """true and 1 are one outcome; an integer beyond 64 bits is a reward like any other."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        jsonl(
            each(
                success=lambda row: int(row["success"]) if row["step"] else row["success"],
                reward=lambda row: 10**30 if row["success"] else 0,
            )
        )
    )
    assert is_golden(credit(path, "--reward", "last"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "rollout_id",
            lambda row: 3 if row["rollout_id"] == "t3" else row["rollout_id"],
            ":8: col",
        ),
        ("rollout_id", lambda row: [1], "is a list"),
        ("group_id", lambda row: {"a": 1}, "is an object"),
        ("group_id", lambda row: 1.5, "needs strings or integers"),
        ("group_id", lambda row: True, "needs strings or integers"),
        ("step", lambda row: str(row["step"]), "needs whole numbers"),
        ("step", lambda row: 2**70 + row["step"], "beyond 64 bits"),
        ("step", lambda row: None, "column step is null; every row needs a step"),
        ("success", lambda row: 2, "neither true/false nor 0/1"),
        ("success", lambda row: {"ok": 1}, "is an object"),
        ("done", lambda row: "true", "needs true/false or 0/1"),
    ],
)
def test_columns_of_a_wrong_type(
    name: str, value: Callable[[dict[str, Any]], Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(jsonl(each(**{name: value})))
    line = crbc("annotate", path).refused()
    assert said in line
    assert f"{path}:" in line
    assert name in line


def test_unsigned_ids_in_json_lines(tmp_path: Path) -> None:
    """Up to 2^64 - 1, beyond what floating point tells apart."""
    path = tmp_path / "log.jsonl"
    high = 2**64 - 4
    path.write_bytes(jsonl(each(rollout_id=lambda row: high + int(row["rollout_id"][1]))))
    frame = credit(path)
    assert is_golden(frame)
    assert frame["rollout_id"].dtype == pl.UInt64
    assert frame["rollout_id"][8] == 2**64 - 1


def test_types_of_columns_nobody_needs_do_not_matter(tmp_path: Path) -> None:
    """`reward` and `is_action_valid` too, until an option asks for them."""
    path = tmp_path / "log.jsonl"
    drifting = [None, {"a": 1}, "text", 2, [1]]
    path.write_bytes(
        jsonl(
            each(
                info=lambda row: drifting[row["step"]],
                reward=lambda row: "high" if row["step"] else 1,
                is_action_valid=lambda row: 2 + row["step"],
            )
        )
    )
    assert is_golden(credit(path))
    assert "column reward" in crbc("annotate", path, "--reward", "sum").refused()
    penalty = ("--invalid-penalty", "step")
    assert "column is_action_valid" in crbc("annotate", path, *penalty).refused()
    text = column(lambda row: "high")
    table = parquet(tmp_path / "log.parquet", reward=text, is_action_valid=text)
    assert is_golden(credit(table))
    assert "column reward" in crbc("annotate", table, "--reward", "sum").refused()


def test_keys_may_appear_late_and_be_absent(tmp_path: Path) -> None:
    """Also where a whole block of the reader (4 MiB of lines) lacks them."""
    path = tmp_path / "log.jsonl"
    filler = {"group_id": "early", "rollout_id": "f", "action": "wait", "note": "x" * 2000}
    early = [filler | {"step": step} for step in range(2500)]
    path.write_bytes(jsonl(early) + _LINES)
    frame = credit(path)
    assert frame.height == 2509
    assert is_golden(frame.tail(9))
    assert frame["reason"][0] == "unscored"
    assert frame["anchor"].head(2500).null_count() == 2500


def test_ids_are_checked_in_every_block(tmp_path: Path) -> None:
    """An id that is missing, or changes its type, 4 MiB further on."""
    filler = [row | {"note": "x" * 600_000} for row in ROWS]
    path = tmp_path / "log.jsonl"
    for name, later in (("rollout_id", None), ("group_id", 7), ("rollout_id", 7)):
        rows = [*filler, *({**row, name: later} for row in ROWS)]
        path.write_bytes(jsonl(rows))
        line = crbc("coverage", path).refused()
        assert f"column {name}" in line
        assert str(path) in line
    without = [{k: v for k, v in row.items() if k != "rollout_id"} for row in ROWS]
    path.write_bytes(jsonl([*filler, *without]))
    assert f"{path}:10: column rollout_id is null" in crbc("coverage", path).refused()


def test_peak_memory_does_not_depend_on_unneeded_columns(tmp_path: Path) -> None:
    """long-prompt-columns: token lists of 20 or of 200,000 numbers per row."""
    case = [json.loads(line) for line in _case("long-prompt-columns").read_text().splitlines()]
    assert credit(_case("long-prompt-columns"))["state_value"].to_list() == pytest.approx(
        [0.922368, 0.941192, 0.960400, 0.98], abs=5e-7
    )
    peaks, sizes = {}, {}
    for tokens in (20, 200_000):
        ids = b", ".join([b"1000000"] * tokens)
        path = tmp_path / f"{tokens}.jsonl"
        with path.open("wb") as file:
            for number in range(60):
                row = case[number % 4] | {"rollout_id": f"r{number // 4}"}
                del row["prompt_ids"]
                file.write(json.dumps(row)[:-1].encode() + b', "prompt_ids": [%b]}\n' % ids)
        ended = program("profile", path, "--json")
        assert ended.json["rows"] == 60
        peaks[tokens], sizes[tokens] = ended.json["peak_memory_bytes"], path.stat().st_size
    assert sizes[200_000] > 100e6
    # A block of lines in flight, 4 MiB and the rest of a line, held two or three times over.
    assert peaks[200_000] - peaks[20] < 0.3 * sizes[200_000]


# --- where columns are ----------------------------------------------------------------------------

_MAPPED = [
    {
        "g": row["group_id"],
        "meta": {"rollout": row["rollout_id"], "t.x": {"step": row["step"]}},
        "state": json.dumps({"text": row["observation"], "n": 1}),
        "call": {"name": row["action"]},
        "end.ok": row["success"],
        "end": {"done": row["done"]},
    }
    for row in ROWS
]
_MAPS = {
    "group_id": "g",
    "rollout_id": "meta.rollout",
    "step": "meta.t.x.step",
    "observation": "state.text",
    "action": "call.name",
    "success": "end.ok",
    "done": "end.done",
}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_map(suffix: str, tmp_path: Path) -> None:
    """Objects and structs, JSON text, literal names with dots; one option, several, a list."""
    path = tmp_path / f"log.{suffix}"
    if suffix == "jsonl":
        path.write_bytes(jsonl(_MAPPED))
    else:
        pq.write_table(pa.Table.from_pylist(_MAPPED), path)
    pairs = [f"{name}={where}" for name, where in _MAPS.items()]
    several = [part for pair in pairs for part in ("--map", pair)]
    assert is_golden(credit(path, *several))
    assert is_golden(credit(path, "--map", ",".join(pairs)))
    assert is_golden(credit(path, *several[:6], "--anchor", "state.text", *several[8:]))
    ids = credit(path, *several)["rollout_id"]
    assert ids.dtype == pl.String
    assert ids.to_list() == [row["rollout_id"] for row in ROWS]


def test_ids_and_flags_inside_json_text_keep_their_types(tmp_path: Path) -> None:
    meta = column(
        lambda row: json.dumps({"id": int(row["rollout_id"][1]), "ok": row["success"], "x": "y"})
    )
    path = parquet(tmp_path / "log.parquet", meta=meta)
    frame = credit(path, "--map", "rollout_id=meta.id", "--map", "success=meta.ok")
    assert is_golden(frame)
    assert frame["rollout_id"].dtype == pl.Int64
    line = crbc("annotate", path, "--map", "success=meta.x").refused()
    assert "needs true/false or 0/1" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--map", "nonsense"], "is not CANONICAL=COLUMN"),
        (["--map", "reword=r"], "names no step-table column"),
        (["--map", "observation=obs"], "has no column obs"),
        (["--anchor", "obs"], "--anchor COLUMN"),
        (["--action", "act"], "--map action=COLUMN"),
        (["--key", "iteration"], "--key COLUMN"),
        (["--group-by", "task"], "--group-by COLUMN"),
        (["--success-when", "score >= 1"], "in --success-when"),
        (["--reward", "shaped"], "has no column shaped"),
    ],
)
def test_a_column_that_is_not_there(arguments: list[str], said: str) -> None:
    assert said in crbc("annotate", GOLDEN, *arguments).refused()


def test_all_missing_columns_at_once(tmp_path: Path) -> None:
    """Each with what to do; a column of a well-known name is suggested, and never taken."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(jsonl([{"uid": "g", "ep": "r", "t": 0, "obs": "s", "do": "a", "won": True}]))
    said = crbc("annotate", path).refused().split("has no columns ")[1]
    assert said == (
        "group_id, rollout_id, step, observation, action, success "
        "(columns: uid, ep, t, obs, do, won); --map group_id=uid or --group-by COLUMN; "
        "--map rollout_id=ep; "
        "--map step=t or --order-by file; --map observation=obs or --anchor COLUMN; "
        "--map action=COLUMN or --action COLUMN; "
        'for the outcome --map success=won or --success-when "reward >= 1"'
    )


# --- anchors and actions --------------------------------------------------------------------------


def test_composite_anchor_normalisation_and_action_tag(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    noisy = each(
        observation=lambda row: f"  [{row['rollout_id']}:17] Room\u00a0 {row['observation']}\n",
        state=lambda row: {"room": row["observation"], "clock": row["rollout_id"]},
        action=lambda row: f"I think. <action> {row['action']} </action> {row['rollout_id']}",
    )
    path.write_bytes(jsonl(noisy))
    tag = ("--action-tag", "action")
    assert credit(path, *tag)["visits"].max() == 1
    assert is_golden(credit(path, *tag, "--mask", r"\[t\d:\d\d\]", "--normalize", "strip"))
    assert is_golden(credit(path, *tag, "--anchor", "state", "--drop", "clock"))
    assert is_golden(credit(path, *tag, "--anchor", "state.room"))
    assert is_golden(credit(path, *tag, "--anchor", "state.room,group_id"))
    assert credit(path, *tag, "--anchor", "state.room,state.clock")["visits"].max() == 1
    line = crbc("annotate", path, "--mask", "(").refused()
    assert "--mask '(' is not a regular expression (unclosed group)" in line


def test_normalize_rules_each_do_their_part(tmp_path: Path) -> None:
    """One rollout per spelling; which rule joins which pair."""
    spellings = ["caf\u00e9 a", "cafe\u0301 a", " caf\u00e9 a", "caf\u00e9  a", "CAF\u00c9 A"]
    rows = [
        {
            "group_id": 1,
            "rollout_id": i,
            "step": 0,
            "observation": text,
            "action": "x",
            "success": 1,
        }
        for i, text in enumerate(spellings)
    ]
    path = tmp_path / "log.jsonl"
    path.write_bytes(jsonl(rows))
    joined = {"nfc": 1, "strip": 2, "whitespace": 3, "case": 4}
    for rule, other in joined.items():
        anchors = credit(path, "--normalize", rule)["anchor"].to_list()
        assert anchors[other] == anchors[0] == 0, rule
    assert credit(path, "--normalize", ",".join(joined))["anchor"].to_list() == [0] * 5
    assert "use one of" in crbc("annotate", path, "--normalize", "lower").refused()


def test_anchor_id_is_a_digest_of_the_content_alone(tmp_path: Path) -> None:
    """stable-anchor-id: the same under any hash seed, group name, file format and thread count."""
    renamed = each(group_id=lambda row: "other", rollout_id=lambda row: row["rollout_id"] + "x")
    path, table = tmp_path / "log.jsonl", tmp_path / "log.parquet"
    path.write_bytes(jsonl(renamed))
    pq.write_table(TABLE, table)
    ids = []
    for seed, log, threads in (("0", GOLDEN, "1"), ("1", path, "8"), ("random", table, "2")):
        env = {"PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": threads}
        arguments = ("annotate", log, "--anchor-id", "-o", "-", "--to", "jsonl")
        ids.append([row["anchor_id"] for row in program(*arguments, env=env).rows])
    assert ids[0] == ids[1] == ids[2]
    assert len(set(ids[0])) == 3
    assert all(len(digest) == 32 and int(digest, 16) >= 0 for digest in ids[0])


# --- who belongs to whom --------------------------------------------------------------------------


def _case(name: str) -> Path:
    return ROOT / "tests" / "cases" / f"{name}.jsonl"


# Case missing-ids: the dump of a trainer that keeps text and a score; `step` counts updates.
_UNNAMED = [
    {"input": "find the apple", "output": "go north", "gts": None, "score": 1.0, "step": 12},
    {"input": "find the apple", "output": "go south", "gts": None, "score": 0.0, "step": 12},
    {"input": "find the pear", "output": "go west", "gts": None, "score": 0.0, "step": 12},
]
_DUMP = ("--map", "observation=input,action=output,prompt=input", "--success-when", "score >= 1")


def test_inferred_groups_are_said_and_checked(tmp_path: Path) -> None:
    """The prompt rule gives sizes {2, 1}, which is refused unless allowed."""
    path = tmp_path / "dump.jsonl"
    path.write_bytes(jsonl(_UNNAMED))
    line = crbc("annotate", path, *_DUMP, "--group-by", "prompt").refused()
    assert "--group-by prompt gives 2 groups: 1 of size 1, 1 of size 2" in line
    assert "--allow-uneven" in line
    how = ("annotate", path, *_DUMP, "--group-by", "prompt", "--allow-uneven", "-o", "-")
    ended = crbc(*how, "--to", "jsonl")
    assert ended.code == 0
    assert "warning: --group-by prompt gives 2 groups: 1 of size 1, 1 of size 2" in ended.stderr
    assert [row["step"] for row in ended.rows] == [0, 0, 0]
    assert [row["group_status"] for row in ended.rows] == ["ok", "ok", "singleton"]
    assert crbc(*how, "--to", "jsonl", "--strict").code == 1
    assert "has no columns group_id, rollout_id" in crbc("annotate", path, *_DUMP).refused()


def test_group_by_columns_and_nested_prompts(tmp_path: Path) -> None:
    """A chat prompt is a list of messages; equal content is one group."""
    chat = each(
        prompt=lambda row: [{"role": "user", "content": "go"}],
        epoch=lambda row: 1,
        group_id=lambda row: row["rollout_id"],
    )
    path, table = tmp_path / "log.jsonl", tmp_path / "log.parquet"
    path.write_bytes(jsonl(chat))
    pq.write_table(pa.Table.from_pylist(chat), table)
    for log in (path, table):
        ended = crbc("annotate", log, "--group-by", "prompt", "-o", "-", "--to", "arrow")
        assert "note: --group-by prompt gives 1 group: 1 of size 4" in ended.stderr
        assert is_golden(credit(log, "--group-by", "prompt,epoch"))
    rows = each(prompt=lambda row: None if row["rollout_id"] == "t3" else "go")
    path.write_bytes(jsonl(rows))
    assert (
        f"{path}:8: column prompt is null"
        in crbc("annotate", path, "--group-by", "prompt").refused()
    )


def test_group_stride(tmp_path: Path) -> None:
    """Consecutive rollouts, checked for one prompt and one size; never guessed."""
    prompts = each(prompt=lambda row: "one" if row["rollout_id"] in ("t0", "t1") else "two")
    path = tmp_path / "log.jsonl"
    path.write_bytes(jsonl(prompts))
    assert credit(path, "--group-stride", "2")["group_id"].to_list() == [0] * 4 + [1] * 5
    line = crbc("annotate", path, "--group-stride", "3").refused()
    assert f"{path}:1: block 0 of --group-stride 3 holds several prompts" in line
    path.write_bytes(_LINES)
    line = crbc("annotate", path, "--group-stride", "3").refused()
    assert "--group-stride 3 gives 2 groups: 1 of size 1, 1 of size 3; sizes differ" in line
    uneven = credit(path, "--group-stride", "3", "--allow-uneven")
    assert uneven["group_id"].to_list() == [0] * 7 + [1] * 2
    assert (
        "exclude each other"
        in crbc("annotate", path, "--group-stride", "2", "--group-by", "x").refused()
    )
    # uneven-groups: blocks of three of a log whose groups have 3, 2 and 3 rollouts are refused.
    assert crbc("annotate", _case("uneven-groups"), "--group-stride", "3").code == 2


def test_groups_are_per_file_unless_they_span(tmp_path: Path) -> None:
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_bytes(_HALVES[0])
    second.write_bytes(_HALVES[1])
    apart, joined = credit(first, second), credit(first, second, "--spanning-groups")
    assert apart["visits"].to_list() == [2, 2, 2, 2, 2, 2, 1, 2, 2]
    assert is_golden(joined)
    assert joined["source_row"].to_list() == [*range(4), *range(5)]
    # A rollout stays inside its file, also then, unless it may span as well.
    second.write_bytes(jsonl(row | {"step": row["step"] + 2} for row in ROWS[:4]))
    apart = credit(first, second, "--spanning-groups")
    spans = credit(first, second, "--spanning-rollouts")
    # t0 as two rollouts of two steps each, or as one of four: 0.98^2 or 0.98^4 from its start.
    assert apart["state_value"][0] == pytest.approx(0.98**2 / 2)
    assert spans["state_value"].max() <= 0.98
    assert spans["reachable_rollouts"][0] == 2
    assert apart["reachable_rollouts"][0] == 4


def test_types_of_ids_across_files(tmp_path: Path) -> None:
    """Text and numbers are never one column; signed and unsigned go together in 64 bits."""
    text, signed = tmp_path / "text.jsonl", tmp_path / "signed.jsonl"
    text.write_bytes(_LINES)
    signed.write_bytes(jsonl(each(rollout_id=lambda row: int(row["rollout_id"][1]))))
    unsigned = parquet(
        tmp_path / "unsigned.parquet",
        rollout_id=column(lambda row: int(row["rollout_id"][1]) + 10, pa.uint64()),
    )
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    output = tmp_path / "out.parquet"
    assert "rollout_id" in crbc("annotate", text, signed, "-o", output).refused()
    assert "rollout_id" in crbc("coverage", text, signed, "--spanning-groups").refused()
    assert not output.exists()
    assert credit(signed, unsigned)["rollout_id"].dtype == pl.Int64
    assert credit(signed, unsigned, "--spanning-groups")["rollout_id"].dtype == pl.Int64
    assert credit(signed, empty)["rollout_id"].dtype == pl.Int64
    assert credit(empty, signed, "--spanning-groups")["rollout_id"].dtype == pl.Int64
    rows = crbc("annotate", text, signed, "-o", "-", "--to", "jsonl").rows
    assert [rows[0]["rollout_id"], rows[9]["rollout_id"]] == ["t0", 0]


def test_key_adds_to_the_group(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(jsonl(row | {"epoch": epoch} for epoch in (0, 1) for row in ROWS))
    twice = credit(path, "--key", "epoch")
    assert is_golden(twice.head(9))
    assert is_golden(twice.tail(9))
    assert credit(path)["reason"].tail(9).to_list() == ["duplicate"] * 9


def test_duplicates(tmp_path: Path) -> None:
    """repeated-ids: refused with all four lines; first and last keep one of the two rollouts."""
    path = _case("repeated-ids")
    line = crbc("annotate", path).refused()
    assert all(f"{path}:{n}" in line for n in (1, 2, 3, 4))
    last = credit(path, "--on-duplicate", "last")
    assert last["state_value"].to_list() == [None, None, 0.0, 0.0]
    assert last["reason"].to_list()[:2] == ["duplicate"] * 2
    first = credit(path, "--on-duplicate", "first")
    assert first["state_value"].to_list()[:2] == pytest.approx([0.9604, 0.98])
    assert first["credit"].to_list() == [0.0, 0.0, None, None]
    assert crbc("coverage", path, "--on-duplicate", "last", "--strict").code == 1


def test_order_by_file_needs_no_step(tmp_path: Path) -> None:
    """rows-out-of-order: sorted by step, unless the order of the file is asked for."""
    path = _case("rows-out-of-order")
    assert credit(path)["state_value"].to_list() == pytest.approx([0.49, 0.4802, 0.4802, 0.49])
    by_file = credit(path, "--order-by", "file")
    assert by_file["state_value"][2] == pytest.approx(0.6448, abs=5e-5)
    stepless = tmp_path / "log.jsonl"
    stepless.write_bytes(jsonl({k: v for k, v in row.items() if k != "step"} for row in ROWS))
    assert "--order-by file" in crbc("annotate", stepless).refused()
    counted = credit(stepless, "--order-by", "file")
    assert is_golden(counted)
    assert counted["step"].to_list() == [row["step"] for row in ROWS]


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("reward >=", "cannot be parsed"),
        ("reward", "gives Float64, not true or false"),
        ("'yes'", "names no column"),
        ("1 = 1", "names no column"),
        ("reward = 'x'", "cannot be evaluated"),
        ("score >= 1", "has no column score"),
        ("max(reward) >= 1", "a rule sees one row"),
        ("reward >= AVG(reward)", "a rule sees one row"),
    ],
)
def test_outcome_rules_that_cannot_be_used(rule: str, said: str) -> None:
    assert said in crbc("annotate", GOLDEN, "--success-when", rule).refused()


def test_outcome_rule_on_the_last_row(tmp_path: Path) -> None:
    """NaN is no success, a null operand is no outcome; columns may be dotted or mapped."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        jsonl(
            each(
                reward=lambda row: math.nan if row["rollout_id"] == "t3" else row["reward"],
                score=lambda row: None if row["rollout_id"] == "t3" else row["reward"],
                info=lambda row: {"status": "won" if row["success"] else "lost"},
            )
        )
    )
    assert is_golden(credit(path, "--success-when", "\"info.status\" = 'won'"))
    for rule in ("reward >= 1", "score >= 1"):
        ended = crbc("annotate", path, "--success-when", rule, "-o", "-", "--to", "arrow")
        assert "1 rollout has no outcome" in ended.stderr
        assert ended.table["reason"].to_pylist()[7:] == ["unscored"] * 2
        assert ended.table["reason"].to_pylist()[:7] == [None] * 7
    fails = ("--success-when", "score >= 1", "--unscored", "fail")
    assert is_golden(credit(path, *fails))
    error = crbc("annotate", path, "--success-when", "score >= 1", "--unscored", "error").refused()
    assert f"{path}:9" in error


def test_expected_group_size_marks_groups() -> None:
    assert set(credit(GOLDEN, "--expected-group-size", "5")["group_status"]) == {"incomplete"}
    assert set(credit(GOLDEN, "--expected-group-size", "4")["group_status"]) == {"ok"}


def test_torn_line_under_strict(tmp_path: Path) -> None:
    """torn-last-line: one row read, line 2 reported; zero bytes at the end are torn as well."""
    path = _case("torn-last-line")
    ended = crbc("annotate", path, "-o", "-", "--to", "jsonl")
    assert ended.code == 0
    assert f"warning: {path}:2: last line is torn" in ended.stderr
    assert [(row["credit"], row["reason"]) for row in ended.rows] == [(0.0, "singleton_group")]
    assert crbc("annotate", path, "-o", "-", "--to", "jsonl", "--strict").code == 1
    zeros = tmp_path / "log.jsonl"
    zeros.write_bytes(_LINES + bytes(4096))
    ended = crbc("annotate", zeros, "-o", "-", "--to", "arrow")
    assert f"{zeros}:10: last line is torn" in ended.stderr
    assert ended.table.num_rows == 9


def test_two_objects_on_a_line_are_found_beside_a_blank_line(tmp_path: Path) -> None:
    """Two writers that race leave `{…}{…}` and then an empty line, so the count is right."""
    path = tmp_path / "log.jsonl"
    lines = _LINES.splitlines(keepends=True)
    path.write_bytes(lines[0].rstrip() + lines[1] + b"\n" + b"".join(lines[2:]))
    assert f"{path}:1: not a JSON object" in crbc("annotate", path).refused()


def test_csv_is_named(tmp_path: Path) -> None:
    for text in ("group_id,rollout_id\n1,2\n", '"group_id";"step"\n1;2\n', "a b\tc\n1\t2\n"):
        path = tmp_path / "log.csv"
        path.write_text(text)
        assert "is neither JSONL nor Parquet but CSV" in crbc("check", path).refused()


def test_a_filtered_copy_beside_its_log_is_no_second_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(GOLDEN.read_bytes())
    assert crbc("filter", log, "--keep", "ok").code == 0
    assert (tmp_path / "log.filtered.jsonl").exists()
    assert [s.name for s in resolve(str(tmp_path))] == [str(log)]
    log.rename(tmp_path / "elsewhere")
    assert [s.name for s in resolve(str(tmp_path))] == [str(tmp_path / "log.filtered.jsonl")]
