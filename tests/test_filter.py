"""`crbc filter`: the log's own rows and columns, without those of some groups."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import GOLDEN, ROOT, crbc, program
from helpers import Rows, rollout, write_log

import crbc_cli

SAMPLES = ROOT / "sample_logs"
# One group of each kind; a row is what its group is.
KINDS: Rows = [
    *rollout("w0", "S-a", 1, group="won"),
    *rollout("w1", "S-b", 1, group="won"),
    *rollout("l0", "S-a T-c", 0, group="lost"),
    *rollout("l1", "S-b", 0, group="lost"),
    *rollout("m0", "S-a", 1, group="mixed"),
    *rollout("m1", "S-b", 0, group="mixed"),
    *rollout("m2", "S-b", None, group="mixed"),
    *rollout("o0", "S-a", 1, group="one"),
]


def rollouts_of(rows: Rows) -> list[str]:
    return [row["rollout_id"] for row in rows]


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--drop", "all_success,all_fail"], ["m0", "m1", "m2", "o0"]),
        (["--drop", "all_fail, unscored"], ["w0", "w1", "m0", "m1", "o0"]),
        (["--drop", "singleton_group"], ["w0", "w1", "l0", "l0", "l1", "m0", "m1", "m2"]),
        (["--keep", "ok"], ["m0", "m1", "m2"]),
        (["--keep", "unscored,singleton"], ["m2", "o0"]),
        (["--drop", "constant"], [r["rollout_id"] for r in KINDS]),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rows_go_by_status_and_reason(
    arguments: list[str], left: list[str], suffix: str, tmp_path: Path
) -> None:
    path, target = write_log(KINDS, tmp_path / f"log{suffix}"), tmp_path / f"out{suffix}"
    ended = crbc("filter", path, "-o", target, *arguments)
    assert (ended.code, ended.stdout) == (0, b"")
    kept = pl.read_parquet(target) if suffix == ".parquet" else pl.read_ndjson(target)
    assert kept["rollout_id"].to_list() == left
    assert f"{len(left)} of {len(KINDS)} rows kept -> {target}" in ended.stderr


def test_counts_per_status(tmp_path: Path) -> None:
    path = write_log(KINDS, tmp_path / "log.jsonl")
    ended = crbc("filter", path, "-o", "-", "--drop", "all_fail,unscored")
    lines = [line.split() for line in ended.stderr.splitlines()]
    # Columns: status, groups, rows, kept; for a reason: rows, kept.
    assert ["all_fail", "1", "3", "0"] in lines
    assert ["all_success", "1", "2", "2"] in lines
    assert ["ok", "1", "3", "2"] in lines
    assert ["singleton", "1", "1", "1"] in lines
    assert ["reason", "unscored", "1", "0"] in lines
    assert "warning: 1 rollout has no outcome" in ended.stderr
    assert crbc("filter", path, "-o", "-", "--keep", "ok", "--quiet").stderr == ""
    assert crbc("filter", path, "-o", "-", "--keep", "ok", "--strict").code == 1


def test_json_lines_keep_every_value_as_logged(tmp_path: Path) -> None:
    """Numbers, escapes and member order are not rewritten; only NaN, which is not JSON, is."""
    texts = [
        '{"z":1.50,"group_id":"g","rollout_id":1,"step":0,"observation":"\\u00e9","action":"a",'
        '"success":true,"n":{"b":1e2,"a":[]}}',
        '{"group_id":"h","rollout_id":1,"step":0,"observation":"S","action":"a","success":true}',
        '{"group_id":"h","rollout_id":2,"step":0,"observation":"S","action":"b","success":false,'
        '"loss":NaN}',
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    assert crbc("filter", path, "-o", "-", "--keep", "singleton").text == texts[0] + "\n"
    kept = crbc("filter", path, "-o", "-", "--keep", "ok").rows
    assert [row.get("loss", "absent") for row in kept] == ["absent", None]


def test_a_filter_that_drops_nothing_copies(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes((SAMPLES / "sokoban.jsonl").read_bytes())
    kept = crbc("filter", log, "-o", "-", "--keep", "ok,all_success,all_fail").rows
    assert kept == [json.loads(line) for line in log.read_text().splitlines()]


def test_parquet_keeps_its_schema(tmp_path: Path) -> None:
    """Types that tables elsewhere would widen, and the file's own metadata."""
    count = len(KINDS)
    table = pa.Table.from_pylist(KINDS)
    extra: dict[str, pa.Array] = {
        "small": pa.array(range(count), pa.int8()),
        "label": pa.array(["x", None] * (count // 2) + ["y"] * (count % 2)).dictionary_encode(),
        "mask": pa.array([[1, 2]] * count, pa.list_(pa.int16())),
        "pair": pa.array([[0.5, 1.5]] * count, pa.list_(pa.float32(), 2)),
        "when": pa.array(range(count), pa.timestamp("ms", "UTC")),
        "raw": pa.array([b"ab"] * count, pa.binary(2)),
    }
    for name, column in extra.items():
        table = table.append_column(name, column)
    table = table.replace_schema_metadata({"maker": "someone"})
    path, target = tmp_path / "log.parquet", tmp_path / "out.parquet"
    pq.write_table(table, path, row_group_size=3)
    assert crbc("filter", path, "-o", target, "--drop", "all_fail").code == 0
    kept, lost = pq.read_table(target), pa.compute.equal(table["group_id"], "lost")
    assert kept.schema.equals(pq.read_schema(path))
    assert kept.equals(pq.read_table(path).filter(pa.compute.invert(lost)))
    assert kept.schema.metadata[b"maker"] == b"someone"
    made = json.loads(kept.schema.metadata[b"crbc"])
    assert (made["command"], made["drop"]) == ("filter", ["all_fail"])
    assert made["inputs"][0]["name"] == str(path)


def test_credit_of_what_is_left_is_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    path = SAMPLES / "sokoban.parquet"
    done = crbc_cli.filter_log([str(path)], str(target), drop=["all_success", "all_fail"])
    assert done.groups == Counter(ok=14, all_success=1, all_fail=1)
    credit = {}
    for log in (path, target):
        crbc_cli.annotate([str(log)], str(tmp_path / "credit.parquet"), force=True)
        frame = pl.read_parquet(tmp_path / "credit.parquet")
        frame = frame.filter(pl.col("group_status") == "ok").drop("source_file", "source_row")
        credit[log] = frame
    assert credit[path].height == done.kept_rows
    assert credit[path].equals(credit[target])


def test_names_of_outputs(tmp_path: Path) -> None:
    first = write_log(KINDS, tmp_path / "one.jsonl")
    second = write_log(KINDS, tmp_path / "two.parquet")
    packed = tmp_path / "three.jsonl.gz"
    packed.write_bytes(gzip.compress(first.read_bytes()))
    logs = [first, second, packed]
    assert crbc("filter", *logs, "--keep", "ok").code == 0
    names = ["one.filtered.jsonl", "two.filtered.parquet", "three.filtered.jsonl"]
    assert all((tmp_path / name).is_file() for name in names)
    again = crbc("filter", *logs, "--keep", "ok")
    assert "exists already; use --force" in again.refused()
    assert crbc("filter", *logs, "--keep", "ok", "--force").code == 0
    assert crbc("filter", *logs, "--keep", "ok", "-o", f"{tmp_path}/into/").code == 0
    assert sorted(p.name for p in (tmp_path / "into").iterdir()) == sorted(
        [*names, "one.filtered.jsonl.meta.json", "three.filtered.jsonl.meta.json"]
    )


def test_several_inputs_in_one_output(tmp_path: Path) -> None:
    first = write_log(KINDS, tmp_path / "1.parquet")
    second = write_log(KINDS[:5], tmp_path / "2.parquet")
    target = tmp_path / "out.parquet"
    assert crbc("filter", first, second, "-o", target, "--keep", "all_fail").code == 0
    assert pq.read_table(target)["rollout_id"].to_pylist() == ["l0", "l0", "l1"] * 2
    other = write_log([row | {"more": 1} for row in KINDS], tmp_path / "3.parquet")
    line = crbc("filter", first, other, "-o", target, "--keep", "ok", "--force").refused()
    assert f"{other}: the inputs' columns differ" in line
    assert pq.read_table(target).num_rows == 6
    assert not list(tmp_path.glob(".*"))


def test_groups_that_span_files(tmp_path: Path) -> None:
    """Each file alone holds a constant group, both together a mixed one."""
    first = write_log(rollout("t0", "S-a", 1) + rollout("t1", "S-a", 1), tmp_path / "1.jsonl")
    second = write_log(rollout("t2", "S-b", 0) + rollout("t3", "S-b", 0), tmp_path / "2.jsonl")
    apart = crbc("filter", first, second, "-o", "-", "--keep", "ok", "-q")
    assert apart.rows == []
    together = crbc("filter", first, second, "-o", "-", "--keep", "ok", "--spanning-groups", "-q")
    assert rollouts_of(together.rows) == ["t0", "t1", "t2", "t3"]


def test_copies_can_be_dropped(tmp_path: Path) -> None:
    rows = [*KINDS[:4], KINDS[0]]
    path = write_log(rows, tmp_path / "log.jsonl")
    kept = crbc("filter", path, "-o", "-", "--drop", "duplicate", "-q").rows
    assert rollouts_of(kept) == rollouts_of(KINDS[:4])


def test_damaged_lines_keep_rows_and_marks_together(tmp_path: Path) -> None:
    lines = [json.dumps(row) for row in KINDS]
    text = "\n\n".join([*lines[:3], "{bad", *lines[3:], '{"group_id": "to'])
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    arguments = ("filter", path, "-o", "-", "--keep", "all_fail,singleton")
    assert "not a JSON object" in crbc(*arguments).refused()
    assert rollouts_of(crbc(*arguments, "--skip-bad-lines").rows) == ["l0", "l0", "l1", "o0"]


def test_pipes_both_ways() -> None:
    golden = GOLDEN.read_bytes()
    assert program("filter", "-o", "-", "--keep", "ok", stdin=golden).rows == [
        json.loads(line) for line in golden.splitlines()
    ]
    table = (SAMPLES / "sokoban.parquet").read_bytes()
    kept = program("filter", "--drop", "all_fail", stdin=table)
    assert kept.code == 0
    assert pq.read_table(pa.BufferReader(kept.stdout)).num_rows == 1571 - 120


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to drop is named; for example --drop all_success,all_fail"),
        (["--drop", " , "], "nothing to drop is named"),
        (["--drop", "ok", "--keep", "ok"], "--drop and --keep exclude each other"),
        (["--drop", "failed"], "'failed' is no group status or reason; use unscored, singleton"),
        (["--keep", "ok", "-o", "out.parquet"], "filter keeps the input's format; name it *.jsonl"),
        (["--keep", "ok", "-o", "out.jsonl.gz"], "filter keeps the input's format"),
        (["--keep", "ok", "-o", "no/such/out.jsonl"], "its folder does not exist"),
    ],
)
def test_refusals(arguments: list[str], message: str, tmp_path: Path) -> None:
    assert message in crbc("filter", GOLDEN, *arguments, cwd=tmp_path).refused()
    assert list(tmp_path.iterdir()) == []


def test_outputs_never_replace_inputs(tmp_path: Path) -> None:
    path = write_log(KINDS, tmp_path / "a.jsonl")
    line = crbc("filter", path, "-o", path, "--keep", "ok", "--force").refused()
    assert "is an input" in line
    # An earlier result beside the log is an input of its own, not to be written over.
    result = write_log(KINDS, tmp_path / "a.filtered.jsonl")
    before = result.read_bytes()
    assert "is an input" in crbc("filter", path, result, "--keep", "ok", "--force").refused()
    assert result.read_bytes() == before
    twin = tmp_path / "a.ndjson"
    twin.write_bytes(path.read_bytes())
    assert (
        "two inputs would be written here" in crbc("filter", path, twin, "--keep", "ok").refused()
    )
    mixed = [path, write_log(KINDS, tmp_path / "b.parquet")]
    line = crbc("filter", *mixed, "-o", tmp_path / "c.jsonl", "--keep", "ok").refused()
    assert "inputs are jsonl and parquet" in line


def test_everything_dropped_leaves_an_empty_log(tmp_path: Path) -> None:
    for suffix in (".jsonl", ".parquet"):
        path = write_log(KINDS, tmp_path / f"log{suffix}")
        target = tmp_path / f"out{suffix}"
        assert crbc("filter", path, "-o", target, "--keep", "incomplete").code == 0
        if suffix == ".parquet":
            assert pq.read_table(target).schema.equals(pq.read_schema(path))
            assert pq.read_table(target).num_rows == 0
        else:
            assert target.read_bytes() == b""


def test_long_logs_are_copied_in_pieces(tmp_path: Path) -> None:
    """More rows than one piece: marks stay with their rows across the seams."""
    count = 150_000
    number = np.arange(count)
    columns: dict[str, Any] = {
        "group_id": number // 2,
        "rollout_id": number % 2,
        "step": np.zeros(count, np.int64),
        "observation": ["S"] * count,
        "action": ["a"] * count,
        "success": (number // 2) % 3 == 0,
        "number": number,
    }
    path, target = tmp_path / "log.parquet", tmp_path / "out.parquet"
    pl.DataFrame(columns).write_parquet(path)
    crbc_cli.filter_log([str(path)], str(target), keep=["all_success"])
    assert pq.read_table(target)["number"].to_pylist() == number[columns["success"]].tolist()


def test_a_run_that_fails_makes_no_folder(tmp_path: Path) -> None:
    folder, drop = tmp_path / "new", ("--drop", "all_fail")
    crbc("filter", GOLDEN, *drop, "--map", "group_id=nope", "-o", f"{folder}/").refused()
    assert not folder.exists()
    assert crbc("filter", GOLDEN, *drop, "-o", f"{folder}/").code == 0
    assert (folder / "golden.filtered.jsonl").exists()
