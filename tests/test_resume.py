"""Runs over many files that are killed, fail in part, or have been made before."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl
import pytest
from conftest import crbc, golden_rows, jsonl

from crbc_cli.logs.scratch import locked, sweep_scratch

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import kills

FORMATS = ("parquet", "jsonl", "arrow", "csv")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder of three logs that differ."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(3):
        rows = [row | {"group_id": f"g{number}"} for row in golden_rows()[: 9 - number]]
        (folder / f"{number}.jsonl").write_bytes(jsonl(rows))
    return folder


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def test_kills_leave_whole_files_and_resume_finishes(tmp_path: Path) -> None:
    kills.write_logs(tmp_path / "logs", files=4, groups=12)
    counts = kills.torture(tmp_path / "logs", tmp_path, kills=4)
    assert counts["killed"] == 4


@pytest.mark.parametrize("kind", FORMATS)
def test_resume_skips_what_is_there(kind: str, logs: Path, tmp_path: Path) -> None:
    """Outputs made from the same inputs with the same options stay; missing ones are made."""
    out = tmp_path / "out"
    arguments = ("annotate", logs, "-o", f"{out}/", "--to", kind, "--resume")
    assert crbc(*arguments).code == 0
    made = stamps(out)
    content = {path.name: path.read_bytes() for path in out.iterdir()}
    ended = crbc(*arguments)
    assert ended.code == 0
    assert "nothing written; 3 there already" in ended.stderr
    assert stamps(out) == made
    (out / f"1.credit.{kind}").unlink()
    ended = crbc(*arguments)
    assert "9 rows, 4 rollouts" not in ended.stderr
    assert f"-> {out}/1.credit.{kind}; 2 there already" in ended.stderr
    again = stamps(out)
    assert {name for name in made if made[name] != again[name]} <= {
        f"1.credit.{kind}",
        f"1.credit.{kind}.meta.json",
    }
    assert {path.name: path.read_bytes() for path in out.iterdir()} == content


@pytest.mark.parametrize(
    "change",
    [
        ("--depth", "1"),
        ("--method", "gigpo"),
        ("--columns", "all"),
        ("--prefix", "c_"),
        ("--anchor-id",),
        ("--normalize", "case"),
    ],
    ids=" ".join,
)
def test_resume_tells_other_options_apart(
    change: tuple[str, ...], logs: Path, tmp_path: Path
) -> None:
    """An output made in another way is neither taken for this one nor replaced without --force."""
    out = tmp_path / "out"
    arguments = ("annotate", logs, "-o", f"{out}/", "--resume")
    assert crbc(*arguments).code == 0
    before = stamps(out)
    line = crbc(*arguments, *change).refused()
    assert "0.credit.parquet: exists already, made from other inputs or in another way" in line
    assert stamps(out) == before
    assert "nothing written" not in crbc(*arguments, *change, "--force").stderr
    assert "3 there already" in crbc(*arguments, *change).stderr


def test_resume_tells_changed_inputs_and_strangers_apart(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("annotate", logs, "-o", f"{out}/", "--resume")
    assert crbc(*arguments).code == 0
    with (logs / "2.jsonl").open("ab") as file:
        file.write(jsonl([golden_rows()[8]]))
    assert "2.credit.parquet: exists already, made from other inputs" in crbc(*arguments).refused()
    assert "2 there already" in crbc(*arguments, "--force").stderr
    for stranger in (b"", b"PAR1", b"{}\n"):
        (out / "0.credit.parquet").write_bytes(stranger)
        assert "exists already" in crbc(*arguments).refused()
    pl.DataFrame({"x": [1]}).write_parquet(out / "0.credit.parquet", metadata={"crbc": "[]"})
    assert "exists already" in crbc(*arguments).refused()
    assert "2 there already" in crbc(*arguments, "--force").stderr
    # One table for all inputs is one output.
    whole = ("annotate", logs, "-o", tmp_path / "all.parquet", "--resume")
    assert crbc(*whole).code == 0
    assert "1 there already" in crbc(*whole).stderr


def test_dry_run_with_resume_touches_nothing(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert crbc("annotate", logs, "-o", f"{out}/").code == 0
    before = stamps(out)
    assert crbc("annotate", logs, "-o", f"{out}/", "--resume", "--force", "--dry-run").code == 0
    assert stamps(out) == before


def test_keep_going_reports_what_failed(logs: Path, tmp_path: Path) -> None:
    """Others are made; exit 1 if some were, 2 if none; the first failure ends a run without it."""
    out = tmp_path / "out"
    (logs / "1.jsonl").write_bytes(b"{bad}\n" + (logs / "1.jsonl").read_bytes())
    arguments = ("annotate", logs, "-o", f"{out}/")
    ended = crbc(*arguments, "--threads", 1)
    assert ended.code == 2
    assert "1.jsonl:1: not a JSON object" in ended.stderr
    assert sorted(stamps(out)) == ["0.credit.parquet"]
    ended = crbc(*arguments, "--resume", "--keep-going")
    assert ended.code == 1
    assert f"-> {out}/2.credit.parquet; 1 there already; 1 failed" in ended.stderr
    assert f"failed: {out}/1.credit.parquet: {logs}/1.jsonl:1: not a JSON object" in ended.stderr
    assert sorted(stamps(out)) == ["0.credit.parquet", "2.credit.parquet"]
    ended = crbc("annotate", logs / "1.jsonl", "-o", f"{tmp_path}/none/", "--keep-going")
    assert (ended.code, "nothing written; 1 failed" in ended.stderr) == (2, True)


def test_keep_going_leaves_inputs_out_that_cannot_be_opened(logs: Path, tmp_path: Path) -> None:
    """Unless all inputs go into one output, which would lack some then."""
    out, bad = tmp_path / "out", logs / "1.jsonl"
    bad.write_bytes(b"BZh91AY")
    assert f"{bad}: is neither" in crbc("annotate", logs, "-o", f"{out}/").refused()
    ended = crbc("annotate", logs, "-o", f"{out}/", "--keep-going")
    assert ended.code == 1
    assert f"\nfailed: {bad}: is neither JSONL nor Parquet but bzip2 data" in ended.stderr
    assert sorted(stamps(out)) == ["0.credit.parquet", "2.credit.parquet"]
    for inputs in ([logs], [logs / "0.jsonl", bad]):
        for target in (tmp_path / "one.parquet", "-"):
            crbc("annotate", *inputs, "-o", target, "--keep-going").refused()
    assert not (tmp_path / "one.parquet").exists()


def test_leftovers_of_killed_runs_are_removed(logs: Path, tmp_path: Path) -> None:
    """Only those nobody holds, and only beside outputs of this run; they are no logs either."""
    out = tmp_path / "out"
    out.mkdir()
    left, held, other = (
        out / name
        for name in (
            ".0.credit.parquet.0123abcd.crbc.tmp",
            ".1.credit.parquet.0123abcd.crbc.tmp",
            ".else.parquet.0123abcd.crbc.tmp",
        )
    )
    for path in (left, held, other):
        path.write_bytes((logs / "0.jsonl").read_bytes())
    with held.open("rb") as file:
        locked(file)
        assert crbc("annotate", logs, "-o", f"{out}/").code == 0
        assert left.exists()
        assert crbc("annotate", logs, "-o", f"{out}/", "--resume").code == 0
        assert (left.exists(), held.exists(), other.exists()) == (False, True, True)
    assert crbc("annotate", logs, "-o", f"{out}/", "--force").code == 0
    assert (held.exists(), other.exists()) == (False, True)
    assert "holds no" in crbc("annotate", out, "-o", tmp_path / "x.parquet").refused()


def test_scratch_folders_of_killed_runs_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("crbc-dead", "crbc-alive", "else"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").write_bytes(b"")
        (tmp_path / name / "rows.arrow").write_bytes(b"x")
    with (tmp_path / "crbc-alive" / "lock").open("rb") as file:
        locked(file)
        sweep_scratch()
        assert sorted(os.listdir(tmp_path)) == ["crbc-alive", "else"]


def test_metadata_beside_never_describes_another_file(logs: Path, tmp_path: Path) -> None:
    """It goes before its table is replaced and comes after. A table without is not ours, unless a
    killed run left its metadata on the way."""
    output = tmp_path / "x.csv"
    arguments = ("annotate", logs / "0.jsonl", "-o", output, "--resume")
    assert crbc(*arguments).code == 0
    beside = Path(f"{output}.meta.json")
    made = beside.read_bytes()
    beside.unlink()
    assert "exists already" in crbc(*arguments).refused()
    on_the_way = tmp_path / ".x.csv.meta.json.0123abcd.crbc.tmp"
    on_the_way.write_bytes(made)
    assert crbc(*arguments).code == 0
    assert (beside.read_bytes(), on_the_way.exists()) == (made, False)
