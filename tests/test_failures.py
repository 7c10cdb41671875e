"""Hard failures: each ends in success or one line and exit code 2, and leaves no partial file.

Runs that are killed stand in test_resume.py; full disks, read-only folders, closed pipes and
interrupts in test_outputs.py; inputs that change while they are read and extreme shapes in
test_hostile.py.
"""

import json
import resource
import struct
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from random import Random

import polars as pl
import pyarrow.parquet as pq
import pytest
from conftest import GOLDEN, crbc, credit, golden_rows, jsonl, program


def test_a_group_that_does_not_fit_into_memory_is_refused(tmp_path: Path) -> None:
    """Six million rows of one group, in an address space that has no room for them."""
    log, output = tmp_path / "log.parquet", tmp_path / "out.parquet"
    rows = 6_000_000
    pl.select(
        group_id=pl.repeat("g", rows),
        rollout_id=pl.int_range(rows) // 10,
        step=pl.int_range(rows) % 10,
        observation=pl.repeat("o", rows),
        action=pl.repeat("a", rows),
        success=pl.repeat(True, rows),
    ).write_parquet(log)
    limit = 6 * 10**9
    done = subprocess.run(
        [sys.executable, "-m", "crbc_cli", "annotate", str(log), "-o", str(output)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"crbc: error: {log}: groups of 6,000,000 rows need about 6.0 GB")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [log]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_observations_of_ten_megabytes(suffix: str, tmp_path: Path) -> None:
    log = tmp_path / f"log.{suffix}"
    long = 10_000_000
    rows = [row | {"observation": row["observation"] * long} for row in golden_rows()]
    log.write_bytes(jsonl(rows)) if suffix == "jsonl" else pl.DataFrame(rows).write_parquet(log)
    assert credit(log).drop("source_file").equals(credit(GOLDEN).drop("source_file"))


def test_deep_json(tmp_path: Path) -> None:
    """A hundred levels are an observation; a hundred thousand are refused where they stand."""
    log = tmp_path / "log.jsonl"
    rows = golden_rows()
    for depth, fine in ((100, True), (100_000, False)):
        lines = [json.dumps(row | {"observation": "X"}).encode() for row in rows]
        lines[4] = lines[4].replace(b'"X"', b"[" * depth + b"]" * depth)
        log.write_bytes(b"\n".join(lines) + b"\n")
        ended = crbc("annotate", log, "-o", "-", "--to", "jsonl")
        if fine:
            assert ended.code == 0, ended.stderr
        else:
            assert f"{log}:5" in ended.refused()


def hostile_footers() -> list[bytes]:
    """A log whose footer lies: lengths, counts and offsets flipped, one byte or four at a time."""
    stream = BytesIO()
    pl.DataFrame(golden_rows()).write_parquet(stream)
    whole = stream.getvalue()
    [length] = struct.unpack("<I", whole[-8:-4])
    random = Random(5)
    found = [
        whole[:-8] + struct.pack("<I", size) + whole[-4:]
        for size in (0, 1, length - 1, length + 1, len(whole), 2**31 - 1, 2**32 - 1)
    ]
    for _ in range(120):
        data = bytearray(whole)
        for _ in range(random.choice([1, 4])):
            at = len(whole) - 8 - 1 - random.randrange(length)
            data[at] = random.choice([0, 0x7F, 0x80, 0xFF, data[at] ^ 1 << random.randrange(8)])
        found.append(bytes(data))
    return found


def test_hostile_parquet_footers(tmp_path: Path) -> None:
    log, output = tmp_path / "log.parquet", tmp_path / "out.parquet"
    ended = {0: 0, 2: 0}
    for content in hostile_footers():
        log.write_bytes(content)
        done = crbc("annotate", log, "-o", output, "--force")
        if done.code == 2:
            done.refused()
        ended[done.code] += 1
        names = {path.name for path in tmp_path.iterdir()}
        assert names <= {"log.parquet", "out.parquet"}
        output.unlink(missing_ok=True)
    assert ended[2] > 50


def test_hostile_key_value_metadata(tmp_path: Path) -> None:
    """Metadata that claims to be ours, Arrow's or a format's is no reason to fail."""
    log = tmp_path / "log.parquet"
    table = pl.DataFrame(golden_rows()).to_arrow()
    for name, value in {
        "crbc": b"\xff{",
        "ARROW:schema": b"not base64",
        "pandas": b"[",
        "crbc:json_columns": b'{"a":',
        "art.trajectory_parquet.version": b"\xff",
    }.items():
        pq.write_table(table.replace_schema_metadata({name: value}), log)
        for command in (["annotate", log, "-o", "-", "--to", "csv"], ["inspect", log]):
            done = crbc(*command)
            if done.code:
                done.refused()


def test_a_stdout_that_cannot_be_written() -> None:
    with open("/dev/full", "wb") as full:
        for command in (["annotate", str(GOLDEN), "-o", "-", "--to", "csv"], ["coverage", GOLDEN]):
            done = subprocess.run(
                [sys.executable, "-m", "crbc_cli", *map(str, command)],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 2
            assert "crbc: error:" in done.stderr
            assert "Traceback" not in done.stderr
    assert program("check", GOLDEN).code == 0
