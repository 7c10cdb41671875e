"""Where credit goes, in which format, what stands beside it, and that nothing is half-written."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from conftest import GOLDEN, ROOT, Ended, crbc, golden_rows, jsonl, program, strict_json

import crbc_cli
from crbc_cli.options import Settings
from crbc_cli.tables import CREDIT_COLUMNS

SOKOBAN = ROOT / "sample_logs" / "sokoban.parquet"
NAMES = [column.name for column in CREDIT_COLUMNS]
IDENTITY = NAMES[:5]
FORMATS = ("parquet", "jsonl", "arrow", "csv")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The golden log in a folder of its own."""
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "g.jsonl"
    path.write_bytes(GOLDEN.read_bytes())
    return path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def parsed(data: bytes, kind: str) -> pl.DataFrame:
    """An output read by another program than the one that wrote it, where there is one."""
    if kind == "parquet":
        table = pq.read_table(io.BytesIO(data))
    elif kind == "arrow":
        table = pa.ipc.open_stream(data).read_all()
    elif kind == "jsonl":
        return pl.DataFrame([strict_json(line) for line in data.decode().splitlines()])
    else:
        rows = list(csv.DictReader(io.StringIO(data.decode())))
        return pl.DataFrame(rows).with_columns(
            pl.when(pl.col(pl.String) != "").then(pl.col(pl.String))
        )
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


# --- the credit table -----------------------------------------------------------------------------


def test_types_and_order_of_columns(log: Path) -> None:
    """Exactly as declared; ids keep their type; rows in input order."""
    assert crbc("annotate", log).code == 0
    schema = pl.read_parquet_schema(log.with_name("g.credit.parquet"))
    assert list(schema) == NAMES
    for column in CREDIT_COLUMNS:
        declared = pl.String if column.dtype == "as in the input" else getattr(pl, column.dtype)
        assert schema[column.name] == declared, column.name
    shuffled = [golden_rows()[i] for i in (8, 0, 4, 2, 6, 1, 3, 5, 7)]
    log.write_bytes(jsonl(shuffled))
    rows = crbc("annotate", log, "-o", "-", "--to", "jsonl").rows
    assert [(row["rollout_id"], row["step"]) for row in rows] == [
        (row["rollout_id"], row["step"]) for row in shuffled
    ]
    assert [row["source_row"] for row in rows] == list(range(9))


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_to_a_file_and_a_pipe(kind: str, log: Path) -> None:
    """The same table, by suffix, by --to and through stdout; null stays null."""
    output = log.with_name(f"x.{kind}")
    log.write_bytes(jsonl(row | {"success": row["success"] or None} for row in golden_rows()))
    assert crbc("annotate", log, "-o", output).code == 0
    assert crbc("annotate", log, "-o", log.with_name("y.dat"), "--to", kind).code == 0
    piped = crbc("annotate", log, "-o", "-", "--to", kind)
    assert piped.stdout == output.read_bytes() == log.with_name("y.dat").read_bytes()
    frame = parsed(piped.stdout, kind)
    reference = crbc("annotate", log, "-o", "-", "--to", "arrow").table.to_pylist()
    assert frame.columns == NAMES
    assert frame["reason"].to_list() == [row["reason"] for row in reference]
    assert frame["advantage"].null_count() == 4
    for row, expected in zip(frame.iter_rows(named=True), reference, strict=True):
        if kind == "csv":
            expected = {k: None if v is None else str(v) for k, v in expected.items()}
        assert row == expected


@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_log_gives_an_empty_table(kind: str, tmp_path: Path) -> None:
    ended = crbc("annotate", "-", "-o", "-", "--to", kind, stdin=b"\n")
    assert ended.code == 0
    assert "warning: - holds no rows" in ended.stderr
    if kind == "jsonl":
        assert ended.stdout == b""
    elif kind == "csv":
        assert ended.text == ",".join(NAMES) + "\n"
    else:
        frame = parsed(ended.stdout, kind)
        assert (frame.height, frame.columns) == (0, NAMES)
    log = tmp_path / "none.parquet"
    pl.DataFrame(golden_rows()).with_columns(rollout_id=pl.lit(1, pl.Int16)).clear().write_parquet(
        log
    )
    assert crbc("annotate", log, "-o", tmp_path / "x.parquet").code == 0
    assert pl.read_parquet(tmp_path / "x.parquet").schema["rollout_id"] == pl.Int16


# --- where it goes --------------------------------------------------------------------------------


def test_default_output_folder_and_force(log: Path) -> None:
    folder = log.parent
    for compressed in ("h.jsonl.gz", "i.parquet"):
        (folder / compressed).write_bytes(
            gzip.compress(GOLDEN.read_bytes()) if compressed.endswith("gz") else b""
        )
    pl.DataFrame(golden_rows()).write_parquet(folder / "i.parquet")
    assert crbc("annotate", folder).code == 0
    beside = ["g.credit.parquet", "h.credit.parquet", "i.credit.parquet"]
    assert files(folder) == sorted([*beside, "g.jsonl", "h.jsonl.gz", "i.parquet"])
    # Outputs are no inputs of the next run, and are not replaced without --force.
    before = (folder / "g.credit.parquet").read_bytes()
    line = crbc("annotate", folder, "--depth", "0").refused()
    assert f"{folder}/g.credit.parquet: exists already; use --force" in line
    assert (folder / "g.credit.parquet").read_bytes() == before
    assert crbc("annotate", folder, "--depth", "0", "--force").code == 0
    assert (folder / "g.credit.parquet").read_bytes() != before
    # -o FOLDER/ makes the folder; --to decides the suffix.
    into = folder / "new" / "deep"
    assert crbc("annotate", folder, "-o", f"{into}/", "--to", "csv").code == 0
    assert [name for name in files(into) if name.endswith(".csv")] == [
        "g.credit.csv",
        "h.credit.csv",
        "i.credit.csv",
    ]
    assert crbc("annotate", log, "-", "-o", into, stdin=GOLDEN.read_bytes()).code == 0
    assert {"g.credit.parquet", "stdin.credit.parquet"} <= set(files(into))


def test_several_logs_in_one_file(log: Path) -> None:
    output = log.with_name("all.parquet")
    assert crbc("annotate", log, SOKOBAN, "-o", output).code == 2  # text and integer ids
    twin = log.with_name("h.jsonl")
    twin.write_bytes(log.read_bytes())
    assert crbc("annotate", twin, log, "-o", output).code == 0
    frame = pl.read_parquet(output)
    assert frame["source_file"].to_list() == [str(twin)] * 9 + [str(log)] * 9
    assert frame["source_row"].to_list() == [*range(9)] * 2


def test_outputs_that_are_refused(log: Path) -> None:
    """Nothing is written, and the message says what is in the way."""
    folder = log.parent
    twin = folder / "sub" / "g.jsonl.gz"
    twin.parent.mkdir()
    twin.write_bytes(gzip.compress(log.read_bytes()))
    (folder / "link.jsonl").symlink_to(log)
    (folder / "x.csv.meta.json").write_text("{}")
    before = files(folder)
    for arguments, said in {
        ("-o", folder / "x.txt"): "has no known suffix; add --to",
        ("-o", folder / "x.txt", "--to", "text"): "--to 'text' is not known",
        ("-o", folder / "gone" / "x.csv"): "its folder does not exist",
        ("-o", folder / "x.csv"): "x.csv.meta.json: exists already",
        ("-o", log, "--force"): "is an input",
        ("-o", folder / "." / "sub" / ".." / "g.jsonl", "--force"): "is an input",
        ("-o", folder / "link.jsonl", "--force"): "is an input",
        (twin, "-o", f"{folder}/out/"): f"{log} and {twin} would both be written here",
        ("--columns", "some"): "use credit or all",
    }.items():
        assert said in crbc("annotate", log, *arguments).refused()
    assert files(folder) == before
    assert log.read_bytes() == GOLDEN.read_bytes()


def test_a_link_stays_a_link_and_a_device_a_device(log: Path) -> None:
    """Forcing an output through a link writes where it points; streams are written as they come."""
    target = log.with_name("target.csv")
    link = log.with_name("link.csv")
    link.symlink_to(target)
    assert crbc("annotate", log, "-o", link, "--force").code == 0
    assert link.is_symlink()
    assert target.read_text().startswith("source_file,")
    assert crbc("annotate", log, "-o", "/dev/null", "--to", "csv", "--force").code == 0
    assert not Path("/dev/null").is_file()
    fifo = log.with_name("fifo")
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "crbc_cli", "annotate", log, "-o", fifo, "--to", "csv"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        assert fifo.read_text() == target.read_text()
    assert running.returncode == 0


def test_dry_run_writes_nothing(log: Path) -> None:
    ended = crbc("annotate", log, "-o", f"{log.parent}/new/", "--dry-run", "--key", "truncated")
    assert ended.code == 0
    assert "nothing written" in ended.stderr
    assert f"{log} -> {log.parent}/new/g.credit.parquet" in ended.stderr
    assert "truncated" in ended.stderr
    assert files(log.parent) == ["g.jsonl"]


# --- whole or not at all --------------------------------------------------------------------------


def test_failure_leaves_the_old_output(log: Path) -> None:
    """--force replaces an output only by a whole one."""
    output = log.with_name("x.jsonl")
    output.write_text("old")
    with log.open("ab") as file:
        file.write(jsonl([golden_rows()[0] | {"credit": 1}, golden_rows()[0] | {"step": 9}]))
    # The clash of names is found only on line 10, after lines were written.
    ended = crbc(
        "annotate", log, "--columns", "all", "-o", output, "--force", "--on-duplicate", "last"
    )
    assert f"{log}:10: the log has a column credit already" in ended.refused()
    assert output.read_text() == "old"
    assert files(log.parent) == ["g.jsonl", "x.jsonl"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_read_only_folder(log: Path) -> None:
    log.parent.chmod(0o555)
    try:
        assert "Permission denied" in crbc("annotate", log).refused()
    finally:
        log.parent.chmod(0o755)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_folder_that_takes_no_files() -> None:
    """For root too."""
    line = crbc("annotate", GOLDEN, "-o", "/proc/self/x.csv").refused()
    assert "/proc/self/x.csv: cannot be written" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk_is_one_line() -> None:
    """On stdout, as a report, and as a file."""
    commands: list[list[object]] = [
        ["annotate", GOLDEN, "-o", "-", "--to", "parquet"],
        ["coverage", GOLDEN],
        ["schema", "credit"],
    ]
    for command in commands:
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "crbc_cli", *map(str, command)],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        line = Ended(done.returncode, b"", done.stderr.decode()).refused()
        assert "stdout: " in line
        assert "No space left" in line
    line = crbc("annotate", GOLDEN, "-o", "/dev/full", "--to", "csv").refused()
    assert "/dev/full: cannot be written (No space left" in line


@pytest.mark.parametrize(
    "command",
    [
        ["annotate", SOKOBAN, "-o", "-", "--to", "jsonl", "-q"],
        ["annotate", SOKOBAN, "-o", "-", "--to", "parquet", "-q"],
        ["coverage", SOKOBAN],
        ["coverage", SOKOBAN, "--json"],
        ["schema", "report"],
        ["annotate", "--help"],
    ],
    ids=lambda command: " ".join(str(word) for word in command if word != SOKOBAN),
)
def test_closed_pipe_ends_quietly(command: list[object]) -> None:
    """Like `crbc … | true`: no traceback, nothing on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "crbc_cli", *map(str, command)],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert done.returncode in (0, 141)
    assert done.stderr == b""


def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while it works: exit 130, no message, no half-written file, no copy of stdin."""
    log, temporary = tmp_path / "log.jsonl", tmp_path / "tmp"
    temporary.mkdir()
    rows = [
        {"group_id": g, "rollout_id": r, "step": s, "observation": f"{s % 7} {'x' * 200}"}
        | {"action": str(s % 3), "success": r % 2}
        for g in range(300)
        for r in range(8)
        for s in range(30)
    ]
    log.write_bytes(jsonl(rows))
    command = [sys.executable, "-m", "crbc_cli", "annotate", "-", "-o", str(tmp_path / "x.csv")]
    with log.open("rb") as stdin:
        running = subprocess.Popen(
            command,
            stdin=stdin,
            stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(temporary)},
        )
        # The copy of stdin appears when imports are done and work begins.
        deadline = time.monotonic() + 60
        while not list(temporary.rglob("*")) and time.monotonic() < deadline:
            time.sleep(0.005)
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert stderr == b""
    assert files(tmp_path) == ["log.jsonl", "tmp"]
    assert list(temporary.rglob("*")) == []


def _on_terminal(*arguments: object, stdin: bytes | None = None) -> tuple[int, bytes]:
    """Exit code and what the terminal shows. Without `stdin` that is a terminal too."""
    leader, follower = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "crbc_cli", *map(str, arguments)],
        stdin=follower if stdin is None else subprocess.PIPE,
        stdout=follower,
        stderr=follower,
        env=os.environ | {"COLUMNS": "300", "TERM": "dumb"},
    )
    os.close(follower)
    if stdin is not None and running.stdin is not None:
        running.stdin.write(stdin)
        running.stdin.close()
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is gone
        while block := os.read(leader, 1 << 16):
            shown += block
    os.close(leader)
    return running.wait(), shown


def test_no_binary_on_a_terminal() -> None:
    code, shown = _on_terminal("annotate", GOLDEN, "-o", "-")
    assert code == 2
    assert b"crbc: error: arrow is binary and stdout is a terminal; pipe it, or use --to" in shown
    assert shown.count(b"\n") == 1
    code, shown = _on_terminal("annotate", "-", stdin=GOLDEN.read_bytes())
    assert (code, b"stdin is no file to put the output beside" in shown) == (2, True)
    code, shown = _on_terminal("annotate")
    assert (code, b"no log given" in shown) == (2, True)
    code, shown = _on_terminal("annotate", GOLDEN, "-o", "-", "--to", "csv")
    assert (code, shown.count(b"golden,t")) == (0, 9)


# --- how it was made ------------------------------------------------------------------------------


def test_metadata_says_how_it_was_made(log: Path) -> None:
    """Options, version, digests of the inputs and remarks, wherever the format can hold them."""
    with log.open("ab") as file:
        file.write(b'{"torn')
    options = ["--depth", "2", "--w-s", "3.5", "--anchor", "observation,action", "--key", "done"]
    outputs = {kind: log.with_name(f"x.{kind}") for kind in FORMATS}
    for output in outputs.values():
        assert crbc("annotate", log, "-o", output, *options).code == 0
    arrow = pa.ipc.open_stream(outputs["arrow"].read_bytes()).schema.metadata
    texts = {
        pq.read_schema(outputs["parquet"]).metadata[b"crbc"],
        pq.read_metadata(outputs["parquet"]).metadata[b"crbc"],
        pl.read_parquet_metadata(outputs["parquet"])["crbc"].encode(),
        arrow[b"crbc"],
        Path(f"{outputs['jsonl']}.meta.json").read_bytes().strip(),
        Path(f"{outputs['csv']}.meta.json").read_bytes().strip(),
    }
    [text] = texts
    made = strict_json(text.decode())
    assert (made["program"], made["command"]) == ("crbc", "annotate")
    assert (made["version"], made["anchor_key"]) == (crbc_cli.__version__, "v1")
    digest = xxhash.xxh3_128_hexdigest(log.read_bytes())
    assert made["inputs"] == [{"name": str(log), "xxh3_128": digest}]
    assert [note["code"] for note in made["notes"]] == ["torn_line", "conflict_rate"]
    asked = {"depth": 2, "w_s": 3.5, "anchor": ["observation", "action"], "key": ["done"]}
    assert made["options"] == Settings().echo() | asked
    # The file alone is enough to make the same numbers again.
    again = log.with_name("again.parquet")
    crbc_cli.annotate([str(log)], str(again), **made["options"])
    assert pl.read_parquet(again).equals(pl.read_parquet(outputs["parquet"]))


def test_digest_is_of_the_file_as_given(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet.gz"
    path.write_bytes(gzip.compress(SOKOBAN.read_bytes()))
    assert crbc("annotate", path, "-o", tmp_path / "x.parquet").code == 0
    made = json.loads(pq.read_schema(tmp_path / "x.parquet").metadata[b"crbc"])
    assert made["inputs"][0]["xxh3_128"] == xxhash.xxh3_128_hexdigest(path.read_bytes())


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    """Whatever the thread count, the chunk size and the hash seed."""
    seen = set()
    for number, (threads, chunk) in enumerate((("1", 1), ("4", 500), ("2", 250_000))):
        output = tmp_path / f"{number}.parquet"
        env = {"POLARS_MAX_THREADS": threads, "PYTHONHASHSEED": str(number)}
        arguments = ("annotate", SOKOBAN, "-o", output, "--chunk-rows", chunk)
        assert program(*arguments, env=env).code == 0
        seen.add(output.read_bytes())
    assert len(seen) == 1


# --- beside the log's own columns -----------------------------------------------------------------

_ADDED = NAMES[5:]


def test_all_columns_of_parquet_stay_as_they_are(tmp_path: Path) -> None:
    output = tmp_path / "x.parquet"
    assert crbc("annotate", SOKOBAN, "--columns", "all", "-o", output).code == 0
    before, after = pl.read_parquet(SOKOBAN), pl.read_parquet(output)
    assert after.columns == [*before.columns, *_ADDED]
    assert after.select(before.columns).equals(before)
    nested = pa.table(
        {name: [row[name] for row in golden_rows()] for name in golden_rows()[0]}
        | {
            "messages": [[{"role": "user", "tokens": [1, 2]}]] * 9,
            "image": [b"\xff"] * 9,
            "nan": [math.nan] * 9,
            "when": pa.array([1] * 9, pa.timestamp("ns", "UTC")),
            "kind": pa.array(["a"] * 9).dictionary_encode(),
        }
    )
    log = tmp_path / "nested.parquet"
    pq.write_table(nested, log)
    assert crbc("annotate", log, "--columns", "all", "-o", output, "--force").code == 0
    after = pl.read_parquet(output)
    assert after.select(nested.column_names).equals(pl.read_parquet(log))
    # CSV holds no nested values, JSONL no bytes: said with the column's name, nothing written.
    for kind, name in (("csv", "messages"), ("jsonl", "image")):
        line = crbc("annotate", log, "--columns", "all", "-o", tmp_path / f"y.{kind}").refused()
        assert f"column {name} has type" in line
    assert not [name for name in files(tmp_path) if name.startswith("y.")]


def test_jsonl_lines_stay_byte_for_byte(log: Path) -> None:
    """drifting-schema: values as logged; credit members come after them; strict JSON always."""
    rows = golden_rows()
    info = ["null", '{"tool": "x",  "args": [1, "two"]}', '"time\\u006fut"', "1.50", "1e3", "[ ]"]
    lines = [
        json.dumps(row)[:-1] + f', "info": {info[i % 6]}, "big": {2**70 + i}}}'
        for i, row in enumerate(rows)
    ]
    lines.insert(4, "")  # blank lines go
    log.write_text("\r\n".join(lines) + "\r\n")
    ended = crbc("annotate", log, "--columns", "all", "-o", "-", "--to", "jsonl")
    reference = crbc("annotate", log, "-o", "-", "--to", "jsonl").rows
    assert len(ended.rows) == 9
    for i, (text, row) in enumerate(zip(ended.text.splitlines(), reference, strict=True)):
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        assert list(members) == [*rows[0], "info", "big", *_ADDED]
        assert bytes(members["info"]).decode() == info[i % 6]
        assert bytes(members["big"]).decode() == str(2**70 + i)
        assert {name: strict_json(text)[name] for name in _ADDED} == {n: row[n] for n in _ADDED}
    log.write_text(json.dumps(rows[0])[:-1] + ', "x": NaN, "y": [-Infinity, 1]}\n')
    [line] = crbc("annotate", log, "--columns", "all", "-o", "-", "--to", "jsonl").rows
    assert (line["x"], line["y"]) == (None, [None, 1])


def test_jsonl_to_parquet_with_all_columns(log: Path) -> None:
    """Plain types where lines agree, raw JSON text where they do not, null where absent."""
    extra: list[dict[str, Any]] = [{"whole": 1, "mixed": 1, "flag": True, "big": 2**70}]
    extra += [{"whole": -2, "mixed": "x", "real": 1, "list": [1]}, {"real": 2.5, "text": "é"}]
    log.write_bytes(jsonl(row | extra[i % 3] for i, row in enumerate(golden_rows())))
    output = log.with_name("x.parquet")
    assert crbc("annotate", log, "--columns", "all", "-o", output).code == 0
    frame = pl.read_parquet(output)
    assert frame.columns == [
        *golden_rows()[0],
        *dict.fromkeys(n for e in extra for n in e),
        *_ADDED,
    ]
    assert {n: frame.schema[n] for n in ("whole", "real", "flag", "mixed", "big", "step")} == {
        "whole": pl.Int64,
        "real": pl.Float64,
        "flag": pl.Boolean,
        "mixed": pl.String,
        "big": pl.String,
        "step": pl.Int64,
    }
    assert frame["mixed"].to_list()[:3] == ["1", '"x"', None]
    assert frame["big"][0] == str(2**70)
    assert frame["list"].to_list()[:3] == [None, "[1]", None]
    assert frame["text"][2] == "é"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_names_that_collide(suffix: str, log: Path) -> None:
    """Refused with the column's name; --prefix resolves it and leaves the log's columns alone."""
    rows = [row | {"credit": 0.5, "reason": "mine"} for row in golden_rows()]
    path = log.with_name(f"own.{suffix}")
    if suffix == "jsonl":
        path.write_bytes(jsonl(rows))
    else:
        pl.DataFrame(rows).write_parquet(path)
    for kind in ("jsonl", "parquet"):
        output = log.with_name(f"x.{kind}")
        line = crbc("annotate", path, "--columns", "all", "-o", output).refused()
        assert "has a column credit already" in line
        assert "--prefix" in line
        assert not output.exists()
    piped = crbc("annotate", path, "--columns", "all", "--prefix", "c_", "-o", "-", "--to", "jsonl")
    assert list(piped.rows[0]) == [*rows[0], *(f"c_{name}" for name in _ADDED)]
    assert piped.rows[0]["credit"] == 0.5
    assert piped.rows[0]["c_credit"] == pytest.approx(0.163268)
    plain = crbc("annotate", path, "--prefix", "c_", "-o", "-", "--to", "jsonl")
    assert list(plain.rows[0]) == [*IDENTITY, *(f"c_{name}" for name in _ADDED)]


def test_bad_lines_stay_out_of_all_columns(log: Path) -> None:
    lines = jsonl(golden_rows()).splitlines(keepends=True)
    log.write_bytes(b"".join([lines[0], b"{bad}\n", *lines[1:], b'{"torn']))
    arguments = ("annotate", log, "--columns", "all", "--skip-bad-lines", "-o")
    rows = crbc(*arguments, "-", "--to", "jsonl").rows
    assert [row["rollout_id"] for row in rows] == [row["rollout_id"] for row in golden_rows()]
    output = log.with_name("x.parquet")
    assert crbc(*arguments, output).code == 0
    assert pl.read_parquet(output)["anchor"].to_list() == [row["anchor"] for row in rows]


def test_lone_rollouts_are_told_where_half_the_groups_hold_one(tmp_path: Path) -> None:
    rows = [row | {"group_id": row["rollout_id"]} for row in golden_rows()]
    log = tmp_path / "log.json"
    log.write_bytes(jsonl(rows))
    assert "4 of 4 groups hold one rollout" in crbc("annotate", log).stderr
    assert files(tmp_path) == ["log.credit.parquet", "log.json"]
    assert "hold one rollout" not in crbc("annotate", GOLDEN, "-o", "-").stderr


def test_cut_rollouts_that_cannot_go_on_are_told(tmp_path: Path) -> None:
    """`--truncated bootstrap` needs the observation after the last row."""
    rows = [row | {"truncated": row["step"] == 1, "success": False} for row in golden_rows()]
    log = tmp_path / "log.jsonl"
    arguments = ("annotate", log, "--truncated", "bootstrap", "-o", "-")
    log.write_bytes(jsonl(rows))
    told = crbc(*arguments).stderr
    last = {row["rollout_id"]: row["truncated"] for row in rows}
    cut = sum(last.values())
    assert f"warning: {cut} of {cut} rollouts cut by a limit log no next_observation" in told
    log.write_bytes(jsonl(row | {"next_observation": "S"} for row in rows))
    assert "next_observation" not in crbc(*arguments).stderr


def test_a_run_without_any_credit_says_so(tmp_path: Path) -> None:
    """No contrast between rollouts, or none between actions; nothing where there is some."""
    log = tmp_path / "log.jsonl"
    told = {}
    for name, change in {
        "ok": {},
        "failed": {"success": False},
        "alone": {"observation": None},
    }.items():
        rows = golden_rows()
        for number, row in enumerate(rows):
            row |= change
            if name == "alone":
                row["observation"] = f"place {number}"
        log.write_bytes(jsonl(rows))
        told[name] = crbc("annotate", log, "-o", "-", "--to", "csv").stderr
    assert "note: all advantages are 0 or null (groups: 1 all_fail)" in told["failed"]
    assert "note: no step has credit: at no anchor do actions differ" in told["alone"]
    assert "no step has credit" not in told["ok"] + told["failed"]
    assert "all advantages" not in told["ok"] + told["alone"]
    # One success is nearer than the other: nobody failed, and yet some actions are better.
    near = [
        {
            "group_id": "g",
            "rollout_id": r,
            "step": s,
            "observation": o,
            "action": a,
            "success": True,
        }
        for r, s, o, a in ((0, 0, "x", "far"), (0, 1, "y", "on"), (1, 0, "x", "near"))
    ]
    log.write_bytes(jsonl(near))
    ended = crbc("annotate", log, "-o", "-", "--to", "jsonl")
    assert any(row["advantage"] for row in ended.rows)
    assert "all advantages" not in ended.stderr


def test_options_of_crbc_alone_are_told_where_it_is_not(tmp_path: Path) -> None:
    weighted = ("annotate", GOLDEN, "--w-s", "2", "-o", "-", "--method")
    told = crbc(*weighted, "gigpo").stderr
    assert "warning: --w-s is of crbc and changes nothing for gigpo" in told
    assert "changes nothing" not in crbc(*weighted, "gigpo,crbc").stderr
    wrong = crbc(*weighted, "gigpo:norm=mean,w_s=2").refused()
    assert "a method's settings stand behind colons, as in crbc:w_s=2" in wrong
