"""What one query converts is what the careful way converts, and it takes nothing else."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
import xxhash
from conftest import crbc, golden_rows, jsonl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_plain_blocks import logs

from crbc_cli.logs import plainness
from crbc_cli.logs import straight as straight_module
from crbc_cli.logs.plainness import NotPlainError
from crbc_cli.logs.sources import file_source
from crbc_cli.logs.straight import Straight
from crbc_cli.logs.whole import Whole


def straight(log: Path) -> pl.DataFrame | None:
    """What one query writes; None if it does not take the log."""
    found = Straight.of(file_source(str(log)))
    if found is None or {"group_id", "rollout_id", "step"} - {*found.schema}:
        return None
    # A file of its own: polars may still write to one that it gave up.
    with tempfile.NamedTemporaryFile(dir=log.parent) as stream:
        try:
            rows = found.write(stream, 4, dict, "snappy")
        except NotPlainError:
            return None
        table = pl.read_parquet(stream.name)
    assert table.height == rows
    return table


def careful(log: Path, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame | str:
    """What the careful way writes, or its message."""

    def refuses(self: Whole) -> Any:
        raise NotPlainError

    output = log.with_suffix(".careful.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(Straight, "of", lambda source: None)
        patch.setattr(Whole, "plain_frames", refuses)
        ended = crbc("convert", log, "-o", output, "--force")
    return pl.read_parquet(output) if ended.code == 0 else ended.stderr


def assert_same(quick: pl.DataFrame, slow: pl.DataFrame | str) -> None:
    """Equal, but that floats may be whole, and a column of nulls alone may be absent or have
    another type."""
    assert not isinstance(slow, str), slow
    assert quick.columns == [c for c in slow.columns if c in quick or slow[c].count()]
    for name in quick.columns:
        mine, other = quick[name], slow[name]
        if mine.null_count() == mine.len():
            assert other.null_count() == other.len()
        elif mine.dtype == pl.Float64 and other.dtype == pl.Int64:
            assert mine.equals(other.cast(pl.Float64))
        else:
            assert mine.dtype == other.dtype
            assert mine.equals(other)


@given(records=logs(), block=st.sampled_from([1, 200, 1 << 22]))
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_straight_and_careful_agree(
    records: list[Any], block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(straight_module, "_BLOCK_BYTES", block)
    lines = [r if isinstance(r, str) else json.dumps({"rollout_id": 1} | r) + "\n" for r in records]
    log = tmp_path / "log.jsonl"
    log.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
    quick = straight(log)
    if quick is not None:
        assert_same(quick, careful(log, monkeypatch))


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64, 1 << 18])
def test_counts(separators: tuple[str, str], piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a JSON parser counts, wherever a piece ends."""
    monkeypatch.setattr(plainness, "_PIECE", piece)
    rows = [
        {"a": "n", "b": None, "c": 'x":"y', "d": "\\", "e": 1},
        {"a": '":null', "b": None, "c": "", "d": '\\"', "e": None},
        {"a": "\n", "b": "null", "c": '"', "d": "\u00e4", "e": -0.5},
    ]
    lines = "".join(json.dumps(row, separators=separators) + "\n" for row in rows).encode()
    counts = plainness.Counts()
    counts.add(lines)
    held = plainness.Held()
    held.add(pl.DataFrame(rows, strict=False))
    assert (held.values, held.nulls) == (15, 3)
    assert counts == plainness.Counts(15, held.texts, 3, 2 * (15 + held.texts), True)
    assert counts.are_those_of(held)
    for name in ("values", "texts", "nulls"):
        other = dataclasses.replace(held, **{name: getattr(held, name) + 1})
        assert not counts.are_those_of(other)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_plain_logs_are_taken(
    separators: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Awkward texts, ids that look like numbers, escaped surrogate pairs, nulls, blank lines."""
    texts = [
        "ends with a colon:",
        'a "quoted": word',
        "5",
        "true",
        "{}",
        "[1",
        "\\",
        '\\":',
        "😀",
        "",
    ]
    rows = [
        {
            "group_id": str(i // 4),
            "rollout_id": i % 4,
            "step": 0,
            "observation": text,
            "action": None if i == 3 else text,
            "reward": [0, 0.5][i % 2],
            "done": i % 2 == 0,
            "truncated": None if i == 5 else i % 2,
            "success": None if i % 3 else True,
            "note": text,
            "number": i,
        }
        for i, text in enumerate(texts)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n\n".join(json.dumps(row, separators=separators) for row in rows) + "\n")
    quick = straight(log)
    assert quick is not None
    assert quick["observation"].to_list() == texts
    assert_same(quick, careful(log, monkeypatch))


ODD = [
    *('"\\ud800"', '"\\u0000"', "5", "5.5", "true", "null", '{"a": 1}', "[1]", "[]"),
    *('"x", "late": "y"', '"x", "late": 1', '"x", "observation": "y"', "NaN", "01", "1e400"),
    *('"x"}\n{', "1e300", "9223372036854775808", '"tab\t"', '"x\\""'),
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "member", ["group_id", "rollout_id", "step", "observation", "action", "reward", "success"]
)
def test_one_odd_value(
    member: str, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in the last of many lines, nothing of it is lost or changed."""
    rows = golden_rows() * 600
    text = jsonl(rows).decode()
    last = json.dumps(rows[-1] | {member: "ODD"}).replace('"ODD"', odd)
    log = tmp_path / "log.jsonl"
    log.write_text(text + last + "\n")
    quick = straight(log)
    if quick is not None:
        assert_same(quick, careful(log, monkeypatch))
    if odd.startswith('"x", "late"'):
        assert quick is None


MEMBERS = [
    '"late" : "x"',
    '"late"\t: 1',
    '"late" :"x", "note" : "n"',
    r'"C:\\": "x"',
    '"": 1',
    '"*": 1',
    '"^a$": "x"',
    '"a.b": 1',
]


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("everywhere", [True, False])
def test_odd_members(
    member: str, everywhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a member is written or called, it is kept, by every way and in every format."""
    lines = jsonl(golden_rows() * 600).decode().splitlines()
    odd = [f"{line[:-1]}, {member}}}" for line in lines]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(odd if everywhere else [*lines[:-1], odd[-1]]) + "\n")
    quick, slow = straight(log), careful(log, monkeypatch)
    assert not isinstance(slow, str)
    if quick is not None:
        assert_same(quick, slow)
    for to in ("parquet", "jsonl"):
        output = tmp_path / f"out.{to}"
        assert crbc("convert", log, "-o", output).code == 0
        lines = pl.read_ndjson(output, infer_schema_length=None) if to == "jsonl" else None
        table = pl.read_parquet(output) if lines is None else lines
        assert table.width == slow.width


@pytest.mark.parametrize(
    ("separators", "note"), [((",", ":"), ":n"), ((", ", ": "), ":-n"), ((", ", ": "), ":n")]
)
def test_a_text_that_looks_like_the_end_of_a_name(
    separators: tuple[str, str], note: str, tmp_path: Path
) -> None:
    """It counts as a null member more, whose missing quotes another member may have."""
    rows = [row | {"note": "x", "success": None} for row in golden_rows() * 600]
    rows[-1]["note"] = note
    lines = [json.dumps(row, separators=separators) for row in rows]
    log, output = tmp_path / "log.jsonl", tmp_path / "out.parquet"
    log.write_text("\n".join([*lines[:-1], f'{lines[-1][:-1]}, "late" : 1}}']) + "\n")
    assert straight(log) is None
    assert crbc("convert", log, "-o", output).code == 0
    assert pl.read_parquet(output)["late"].to_list()[-2:] == [None, 1]


def test_a_list_where_texts_are(tmp_path: Path) -> None:
    """Without a space before it, its first quote stands where other lines' texts begin."""
    rows = golden_rows() * 600
    odd = json.dumps(rows[-1]).replace(f'"observation": "{rows[-1]["observation"]}"', "ODD")
    log, output = tmp_path / "log.jsonl", tmp_path / "out.parquet"
    log.write_bytes(jsonl(rows) + odd.replace("ODD", '"observation":["z"]').encode() + b"\n")
    assert straight(log) is None
    assert crbc("convert", log, "-o", output).code == 0
    made = json.loads(pq.read_schema(output).metadata[b"crbc:json_columns"])
    assert made == ["observation"]


@pytest.mark.parametrize("member", ["success", "done", "reward"])
@pytest.mark.parametrize("at", [3, 5000])
@pytest.mark.parametrize("to", ["parquet", "jsonl"])
def test_flags_and_numbers_may_be_mixed(member: str, at: int, to: str, tmp_path: Path) -> None:
    """`true` among ones, 1 among booleans, `true` among rewards: wherever it stands."""
    rows = [dict(row) for row in golden_rows() * 600]
    rows[at][member] = 1 if isinstance(rows[at][member], bool) else True
    log, output = tmp_path / "log.jsonl", tmp_path / f"out.{to}"
    log.write_bytes(jsonl(rows))
    assert crbc("convert", log, "-o", output).code == 0
    table = pl.read_parquet(output) if to == "parquet" else pl.read_ndjson(output)
    assert table[member].to_list() == [type(rows[0][member])(row[member]) for row in rows]


def test_bytes_do_not_depend_on_threads(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(golden_rows() * 8000))
    written = set()
    for threads in ("1", "2", "3"):
        output = tmp_path / f"{threads}.parquet"
        command = [sys.executable, "-m", "crbc_cli", "convert", str(log), "-o", str(output)]
        environment = os.environ | {"POLARS_MAX_THREADS": threads}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        written.add(output.read_bytes())
    assert len(written) == 1


def test_a_compressed_log(tmp_path: Path) -> None:
    """The same rows; its digest is that of the file."""
    plain, packed = tmp_path / "log.jsonl", tmp_path / "log.jsonl.gz"
    plain.write_bytes(jsonl(golden_rows() * 20_000))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for log in (plain, packed):
        assert straight(log) is not None
        output = log.with_suffix(".parquet")
        assert crbc("convert", log, "-o", output).code == 0
        assert pl.read_parquet(output).height == 180_000
        [made] = json.loads(pq.read_schema(output).metadata[b"crbc"])["inputs"]
        assert made["xxh3_128"] == xxhash.xxh3_128_hexdigest(log.read_bytes())
    packed.write_bytes(packed.read_bytes()[:-5000])
    told = crbc("convert", packed, "-o", tmp_path / "cut.parquet").refused()
    assert "compressed data is cut or corrupt" in told
    assert not (tmp_path / "cut.parquet").exists()


@pytest.mark.parametrize("size", [0, 1000])
def test_a_log_cut_short_while_it_is_converted(size: int, tmp_path: Path) -> None:
    """An error of one line, whenever it happens; or it was read before."""
    log, output = tmp_path / "log.jsonl", tmp_path / "out.parquet"
    rows = [row | {"observation": row["observation"] * 40} for row in golden_rows()]
    log.write_bytes(jsonl(rows) * 20_000)
    command = [sys.executable, "-m", "crbc_cli", "convert", str(log), "-o", str(output)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob(".*.tmp")):
        time.sleep(0.001)
    os.truncate(log, size)
    _, told = process.communicate(timeout=120)
    assert process.returncode in (0, 2)
    if process.returncode == 2:
        assert told.startswith("crbc: error: ")
        assert len(told.splitlines()) == 1
        assert "cannot be written" not in told
    assert output.exists() == (process.returncode == 0)
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_later_error_is_that_of_the_careful_way(tmp_path: Path) -> None:
    rows = golden_rows()
    rows[5]["step"] = None
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(rows))
    assert straight(log) is None
    assert f"{log}:6: column step is null" in crbc("convert", log, "-o", "-").refused()
    assert (
        f"{log}:6: column step is null"
        in crbc("convert", log, "-o", tmp_path / "o.parquet").refused()
    )
