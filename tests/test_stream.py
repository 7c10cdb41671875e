"""A log in pieces: the same bytes however small the pieces, however spread the rows, wherever the
work is done; and the same remarks and errors as for a log read whole."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from conftest import crbc, jsonl
from helpers import INF, Rows, rollout

from crbc_cli.api import annotate
from crbc_cli.engine import gather, stream
from crbc_cli.engine.boundaries import Boundaries, OutOfOrder
from crbc_cli.engine.budget import Budget, parse_memory
from crbc_cli.engine.exchange import Exchange
from crbc_cli.engine.execute import Local
from crbc_cli.engine.joining import hashable_rows
from crbc_cli.engine.slabs import Slab
from crbc_cli.engine.work import Done, Job
from crbc_cli.errors import OptionError
from crbc_cli.options import LogOptions


def rows_of(groups: int, seed: int = 0, rollouts: int = 4) -> Rows:
    """Groups of walks over a few anchors, with cut ends and rewards."""
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for group in range(groups):
        for number in range(rollouts):
            path = " ".join(
                f"{rng.integers(6)}-{rng.integers(3)}" for _ in range(rng.integers(3, 9))
            )
            rows += rollout(number, path, bool(rng.integers(2)), group=f"g{group:03}")
    return rows


def parquet(rows: Rows, path: Path, row_group_size: int = 50) -> Path:
    pl.DataFrame(rows).write_parquet(path, row_group_size=row_group_size)
    return path


def shuffled(rows: Rows, seed: int = 1) -> Rows:
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[i] for i in order]


def written(inputs: Iterable[Path] | Path, output: Path, **options: Any) -> bytes:
    paths = [inputs] if isinstance(inputs, Path) else [*inputs]
    annotate([str(path) for path in paths], str(output), force=True, **options)
    return output.read_bytes()


@pytest.fixture
def spilling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is gathered goes to disk."""
    monkeypatch.setattr(Budget, "gathered", 1)


LAYOUTS = {
    "in order": lambda rows: rows,
    "shuffled": shuffled,
    "interleaved": lambda rows: sorted(rows, key=lambda r: (r["step"], r["rollout_id"])),
}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_bytes_for_pieces_threads_and_memory(
    layout: str, suffix: str, tmp_path: Path
) -> None:
    rows = LAYOUTS[layout](rows_of(30))
    log, output = tmp_path / f"log.{suffix}", tmp_path / "x.parquet"
    if suffix == "parquet":
        parquet(rows, log)
    else:
        log.write_bytes(jsonl(rows))
    whole = written(log, output, threads=1)
    for options in (
        {"chunk_rows": 1},
        {"chunk_rows": 60, "threads": 3},
        {"chunk_rows": 100, "memory": "300MB", "threads": 2},
    ):
        assert written(log, output, **options) == whole, options
    order = pl.read_parquet(output)["source_row"].to_list()
    assert order == [*range(len(rows))]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_the_same_table_for_any_row_group_size(size: int, tmp_path: Path) -> None:
    rows = rows_of(12)
    log = tmp_path / "log.parquet"
    reference = pl.DataFrame(rows)
    reference.write_parquet(log)
    expected = annotated(log, tmp_path)
    pq.write_table(reference.to_arrow(), log, row_group_size=size, data_page_size=64)
    assert annotated(log, tmp_path, chunk_rows=30).equals(expected)


def annotated(log: Path, folder: Path, **options: Any) -> pl.DataFrame:
    written(log, folder / "x.parquet", **options)
    return pl.read_parquet(folder / "x.parquet")


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_the_same_bytes_when_gathered_on_disk(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = shuffled(rows_of(30))
    log, output = tmp_path / f"log.{suffix}", tmp_path / "x.parquet"
    parquet(rows, log) if suffix == "parquet" else log.write_bytes(jsonl(rows))
    on_disk = written(log, output, chunk_rows=50)
    assert written(log, output, chunk_rows=10**6) == on_disk
    monkeypatch.setattr(Budget, "gathered", 10**9)
    assert written(log, output, chunk_rows=10**6) == on_disk


def test_what_is_gathered_on_disk_is_gone_afterwards(
    tmp_path: Path, spilling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(gather, "scratch_folder", lambda: folder)
    seen: list[Path] = []
    dealt = gather._dealt

    def looked_at(*given: Any) -> Iterator[Any]:
        for piece in dealt(*given):
            seen.extend(folder.rglob("*.arrow"))
            yield piece

    monkeypatch.setattr(gather, "_dealt", looked_at)
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(shuffled(rows_of(20))))
    written(log, tmp_path / "x.parquet", chunk_rows=50)
    assert seen
    assert not [*folder.iterdir()]


def test_row_order_does_not_matter_for_pieces(tmp_path: Path) -> None:
    """Values by (group, rollout, step) of a shuffled log are those of the sorted one."""
    rows = rows_of(20)
    sorted_log = parquet(rows, tmp_path / "a.parquet")
    mixed_log = parquet(shuffled(rows), tmp_path / "b.parquet")
    key = ["group_id", "rollout_id", "step"]
    tables = [
        annotated(log, tmp_path, chunk_rows=40).sort(key).drop("source_file", "source_row")
        for log in (sorted_log, mixed_log)
    ]
    assert tables[0].equals(tables[1])


# --- many files -----------------------------------------------------------------------------------


def test_many_files_at_a_time_give_what_one_at_a_time_gives(tmp_path: Path) -> None:
    """Outputs, remarks and their order; what fails is told, the others are made."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for seed in range(9):
        rows = shuffled(rows_of(4, seed)) if seed % 3 else rows_of(4, seed)
        (logs / f"{seed}.jsonl").write_bytes(jsonl(rows) + b'{"torn' * (seed % 2))
    (logs / "4.jsonl").write_bytes(b"{bad}\n" + jsonl(rows_of(1)))
    seen = []
    for threads in (1, 4):
        out = tmp_path / "out"
        ended = crbc("annotate", logs, "-o", f"{out}/", "--keep-going", "--threads", threads)
        assert ended.code == 1
        seen.append((ended.stderr, {path.name: path.read_bytes() for path in out.iterdir()}))
        shutil.rmtree(out)
    assert len(seen[0][1]) == 8
    assert seen[0] == seen[1]


def test_many_files_are_the_parts_of_one(tmp_path: Path) -> None:
    """One table for three files holds the tables of each, and a file's rows do not depend on which
    others it is read with."""
    logs = [parquet(rows_of(5, seed), tmp_path / f"{seed}.parquet") for seed in range(3)]
    alone = [annotated(log, tmp_path) for log in logs]
    written(logs, tmp_path / "all.parquet", chunk_rows=40)
    assert pl.read_parquet(tmp_path / "all.parquet").equals(pl.concat(alone))
    annotate([str(log) for log in logs], f"{tmp_path / 'out'}/")
    each = [pl.read_parquet(tmp_path / "out" / f"{seed}.credit.parquet") for seed in range(3)]
    assert all(a.equals(b) for a, b in zip(each, alone, strict=True))


@pytest.mark.parametrize("spill", [False, True])
def test_groups_that_span_files(
    spill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file has one rollout of every group: the same numbers as all rows in one file, in one
    output or in one per input."""
    if spill:
        monkeypatch.setattr(Budget, "gathered", 1)
    rows = rows_of(8)
    logs = [
        parquet([r for r in rows if r["rollout_id"] == n], tmp_path / f"{n}.parquet")
        for n in range(4)
    ]
    by_rollout = sorted(rows, key=lambda row: int(row["rollout_id"]))
    whole = annotated(parquet(by_rollout, tmp_path / "whole.parquet"), tmp_path)
    options = {"spanning_groups": True, "chunk_rows": 30}
    written(logs, tmp_path / "all.parquet", **options)
    table = pl.read_parquet(tmp_path / "all.parquet")
    own = ["source_file", "source_row"]
    assert table.drop(own).equals(whole.drop(own))
    annotate([str(log) for log in logs], f"{tmp_path / 'out'}/", **options)
    each = [pl.read_parquet(tmp_path / "out" / f"{n}.credit.parquet") for n in range(4)]
    assert pl.concat(each).equals(table)


def test_one_file_for_logs_with_integers_of_two_kinds(tmp_path: Path) -> None:
    """A type that only a later file shows begins the output again, wide enough."""
    rows = rows_of(2)
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_bytes(jsonl(row | {"rollout_id": int(row["rollout_id"])} for row in rows))
    second.write_bytes(jsonl(row | {"rollout_id": 2**63 + int(row["rollout_id"])} for row in rows))
    written([first, second], tmp_path / "x.parquet")
    table = pl.read_parquet(tmp_path / "x.parquet")
    assert table.schema["rollout_id"] == pl.UInt64
    assert table["rollout_id"].max() == 2**63 + 3


# --- remarks and errors of the whole log ----------------------------------------------------------


def remarks(log: Path, *options: object) -> list[str]:
    ended = crbc("annotate", log, "-o", "-", "--to", "csv", *options)
    assert ended.code == 0, ended.stderr
    return ended.stderr.splitlines()[1:]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("mixed", [False, True], ids=["in order", "shuffled"])
def test_remarks_are_those_of_the_whole_log(suffix: str, mixed: bool, tmp_path: Path) -> None:
    rows = rows_of(10)
    rows = [row | {"reward": float(row["success"] or 0)} for row in rows]
    ends = {(r["group_id"], r["rollout_id"]): i for i, r in enumerate(rows)}
    rows[ends["g003", 0]]["success"] = rows[ends["g007", 2]]["success"] = None
    rows = [copy for i, row in enumerate(rows) for copy in [row] * (2 if i % 40 == 0 else 1)]
    rows = shuffled(rows) if mixed else rows
    log = tmp_path / f"log.{suffix}"
    parquet(rows, log) if suffix == "parquet" else log.write_bytes(jsonl(rows))
    whole = remarks(log, "--chunk-rows", 10**6)
    assert {line.split(":")[0] for line in whole} == {"note", "warning"}
    assert any("rows repeat earlier rows" in line for line in whole)
    assert any("2 rollouts have no outcome" in line for line in whole)
    assert remarks(log, "--chunk-rows", 1, "--threads", 3) == whole


@pytest.mark.parametrize("mixed", [False, True], ids=["in order", "shuffled"])
def test_errors_count_the_whole_log(mixed: bool, tmp_path: Path) -> None:
    rows = rows_of(10)
    rows += [row | {"action": "another"} for row in rows if row["step"] == 1]
    rows = shuffled(rows) if mixed else sorted(rows, key=lambda row: str(row["group_id"]))
    log = parquet(rows, tmp_path / "log.parquet")
    line = crbc("annotate", log, "--chunk-rows", 10**6).refused()
    assert "40 steps occur twice with different content" in line
    assert crbc("annotate", log, "--chunk-rows", 1).refused() == line
    uneven = [row for row in rows_of(9) if row["group_id"] != "g004" or row["rollout_id"] != 2]
    log = parquet(uneven, tmp_path / "uneven.parquet")
    line = crbc("annotate", log, "--group-by", "group_id", "--chunk-rows", 1).refused()
    assert "gives 9 groups: 1 of size 3, 8 of size 4; sizes differ" in line


def test_strides_and_rows_without_rollouts_are_counted_along_the_file(tmp_path: Path) -> None:
    rows = rows_of(12)
    log = parquet(rows, tmp_path / "log.parquet")
    by_stride = ["--group-stride", 4, "--map", "prompt=group_id"]
    expected = remarks(log, *by_stride)
    assert remarks(log, *by_stride, "--chunk-rows", 1) == expected
    tables = [
        crbc("annotate", log, "-o", "-", "--to", "csv", *by_stride, "--chunk-rows", n).stdout
        for n in (1, 10**6)
    ]
    assert tables[0] == tables[1]
    flat = [{k: v for k, v in row.items() if k not in ("rollout_id", "step")} for row in rows]
    flat = [row | {"success": True, "prompt": row["group_id"]} for row in flat]
    log = parquet(flat, tmp_path / "flat.parquet")
    options = ["-o", "-", "--to", "csv", "--group-by", "prompt", "--allow-uneven", "--chunk-rows"]
    ended = [crbc("annotate", log, *options, n) for n in (1, 10**6)]
    assert ended[0].stdout == ended[1].stdout
    assert ended[0].stderr == ended[1].stderr
    assert "each row is one rollout of one step" in ended[0].stderr


# --- the pieces themselves ------------------------------------------------------------------------


def test_boundaries_are_changes_of_what_tells_groups_apart() -> None:
    def frame(*groups: str) -> pl.DataFrame:
        return pl.DataFrame({"source": [0] * len(groups), "group_id": groups})

    found = Boundaries(LogOptions())
    assert found.starts(frame("a", "a", "b")).tolist() == [0, 2]
    assert found.starts(frame("b", "c")).tolist() == [1]
    with pytest.raises(OutOfOrder):
        found.starts(frame("a"))
    strides = Boundaries(LogOptions(group_stride=2))
    runs = pl.DataFrame({"source": [0] * 5, "rollout_id": [1, 1, 2, 3, 4]})
    assert strides.starts(runs).tolist() == [0, 3]
    assert strides.starts(runs).tolist() == [0, 3]


def test_not_a_number_is_one_key() -> None:
    """As polars groups: a NaN is equal to others, and 0 to -0."""
    table = pl.DataFrame({"key:t": [math.nan, -0.0, math.nan, 0.0, None], "group_id": ["g"] * 5})
    rows = hashable_rows(table)
    assert [rows.index(row) for row in rows] == [0, 1, 0, 1, 4]
    found = Boundaries(LogOptions(key=("t",)))
    assert found.starts(table[:2].with_columns(source=0)).tolist() == [0, 1]
    with pytest.raises(OutOfOrder):
        found.starts(table[2:3].with_columns(source=0))


@pytest.mark.parametrize("most", [1, 10**9])
def test_exchange_restores_the_order(most: int) -> None:
    rng = np.random.default_rng(0)
    rows = 300_000
    owner = rng.integers(0, 5, rows)
    exchange = Exchange(most)
    for one in range(5):
        number = np.flatnonzero(owner == one)
        exchange.add(pl.DataFrame({"x": number}), None, number)
    whole = pl.concat([table for table, _ in exchange.rows()])
    assert whole["x"].to_list() == [*range(rows)]


def test_executors_give_pieces_back_in_order_and_bounded(tmp_path: Path) -> None:
    """The seam for other engines: anything that maps `work` over slabs in order."""
    log = parquet(rows_of(12), tmp_path / "log.parquet")
    expected = written(log, tmp_path / "x.parquet", chunk_rows=1)
    taken: list[int] = []

    class Counting:
        together = 1

        def run(self, slabs: Iterable[Slab], job: Job) -> Iterator[Done]:
            def counted() -> Iterator[Slab]:
                for slab in slabs:
                    taken.append(len(taken))
                    yield slab

            for given, done in enumerate(Local(3).run(counted(), job)):
                assert len(taken) <= given + 5
                yield done

    original = stream.Stream.__init__

    def patched(self: Any, job: Job, executor: Any, *rest: Any, **named: Any) -> None:
        original(self, job, Counting(), *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream.Stream, "__init__", patched)
        assert written(log, tmp_path / "x.parquet", chunk_rows=1) == expected
    assert len(taken) == 12


def test_memory_sizes() -> None:
    sizes = {"500MB": 500 * 10**6, "1GB": 10**9, "1.5gib": 3 << 29, "2048": 2048, "3 k": 3000}
    assert {text: parse_memory(text) for text in sizes} == sizes
    for text in ("", "much", "-1GB", "0", "1XB"):
        with pytest.raises(OptionError):
            parse_memory(text)
    few, many = (Budget.of(memory, 2).rows(500) for memory in ("300MB", "2GB"))
    assert 4096 <= few < many
    assert "is not a size" in crbc("annotate", "x.parquet", "--memory", "much").refused()


def test_metadata_tells_remarks_of_its_own_inputs(tmp_path: Path) -> None:
    """So that an output does not depend on which others are made in the same run."""
    torn, whole = tmp_path / "torn.jsonl", tmp_path / "whole.jsonl"
    torn.write_bytes(jsonl(rows_of(2)) + b'{"torn')
    whole.write_bytes(jsonl(rows_of(2, seed=5)))
    ended = crbc("annotate", torn, whole)
    assert ended.code == 0
    assert ended.stderr.count("conflict rate") == 1
    codes = {
        path.name: [
            note["code"]
            for note in json.loads(
                pl.read_parquet_metadata(path.with_suffix(".credit.parquet"))["crbc"]
            )["notes"]
        ]
        for path in (torn, whole)
    }
    assert codes == {"torn.jsonl": ["torn_line", "conflict_rate"], "whole.jsonl": ["conflict_rate"]}


@pytest.mark.parametrize("depth", [0, INF])
def test_batch_scope_sees_all_groups_at_once(depth: float, tmp_path: Path) -> None:
    """gated_bepo's batch statistics are the log's, whatever the size of pieces."""
    log = parquet(rows_of(10), tmp_path / "log.parquet")
    method = "gated_bepo:scope=batch"
    tables = [
        annotated(log, tmp_path, method=method, depth=depth, chunk_rows=n) for n in (1, 10**6)
    ]
    assert tables[0].equals(tables[1])
