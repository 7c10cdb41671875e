"""The library as it is called from Python."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, crbc

import crbc_cli
from crbc_cli.errors import OptionError

SOKOBAN = ROOT / "sample_logs" / "sokoban.parquet"
GOLDEN = ROOT / "sample_logs" / "golden.jsonl"


@pytest.fixture(scope="module")
def steps() -> pa.Table:
    return pq.read_table(SOKOBAN)


def test_what_is_public_is_documented_and_listed() -> None:
    assert dir(crbc_cli) == sorted(crbc_cli.__all__)
    for name in crbc_cli.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(crbc_cli, name)), name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"anchor": "true_state"}, {"anchor": ["true_state"]}),
        ({"map": {"observation": "true_state"}}, {"map": "observation=true_state"}),
        ({"depth": "inf"}, {}),
        ({"depth": "3"}, {"depth": 3.0}),
        ({"w_s": 1}, {"w_s": 1.0}),
        ({"method": "gigpo,crbc"}, {"method": ["gigpo", "crbc"]}),
    ],
)
def test_options_as_a_library_user_writes_them(
    steps: pa.Table, one: dict[str, object], other: dict[str, object]
) -> None:
    assert crbc_cli.credit(steps, **one).equals(crbc_cli.credit(steps, **other))


@pytest.mark.parametrize(
    "wrong",
    [{"depth": "x"}, {"discount": "0.9"}, {"ddof": True}, {"no_such": 1}, {"strip": True}],
)
def test_wrong_options_are_one_error(steps: pa.Table, wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        crbc_cli.credit(steps, **wrong)


def test_a_single_path_is_one_input() -> None:
    assert crbc_cli.coverage(str(SOKOBAN)).total == crbc_cli.coverage([str(SOKOBAN)]).total


def test_the_table_is_the_one_that_annotate_writes(steps: pa.Table, tmp_path: Path) -> None:
    crbc_cli.annotate(str(SOKOBAN), str(tmp_path / "credit.parquet"), depth=2)
    written = pl.read_parquet(tmp_path / "credit.parquet").drop("source_file")
    in_memory = pl.DataFrame(crbc_cli.credit(steps, depth=2)).drop("source_file")
    assert written.equals(in_memory)


def test_explicit_options_beat_conventions() -> None:
    def first(*options: str) -> float:
        shown = crbc("annotate", GOLDEN, "-o", "-", "--to", "jsonl", *options).stdout
        return float(json.loads(shown.splitlines()[0])["group_advantage"])

    # t0 succeeds, two of four do: mean 1/2, so dr-grpo gives 1/2 and rloo 4/3 of it.
    assert first("--like", "tinker") == 0.5
    assert first("--like", "tinker", "--estimator", "rloo") == pytest.approx(2 / 3)
    # std of 1,1,0,0 is 1/2 with ddof 0 and 0.57735 with ddof 1
    assert first("--like", "verl", "--ddof", "0") == pytest.approx(1.0, abs=1e-5)
    assert first("--like", "verl") == pytest.approx(0.5 / 0.5773503, abs=1e-5)


def test_dotted_paths_index_lists(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hall"}, {"role": "assistant", "content": "go"}]
    row = {"group_id": "g", "rollout_id": "r", "step": 0, "messages": messages, "success": True}
    paths = ("observation=messages.0.content", "action=messages.-1.content")
    (tmp_path / "log.jsonl").write_text(json.dumps(row) + "\n")
    pl.DataFrame([row]).write_parquet(tmp_path / "log.parquet")
    digests = set()
    for name in ("log.jsonl", "log.parquet"):
        table = crbc_cli.credit  # the in-memory way reads structs, the file way JSON too
        if name.endswith("parquet"):
            found = table(pq.read_table(tmp_path / name), map=paths, anchor_id=True)
            digests.add(found["anchor_id"][0].as_py())
        else:
            output = tmp_path / "credit.jsonl"
            crbc_cli.annotate(str(tmp_path / name), str(output), map=paths, anchor_id=True)
            digests.add(json.loads(output.read_text())["anchor_id"])
    assert len(digests) == 1


def test_empty_stdin_is_an_error() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "crbc_cli", "annotate"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "stdin is empty" in ended.stderr


def test_a_mistyped_option_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(crbc_cli.CrbcError, match="unknown option 'dept'; did you mean depth"):
        crbc_cli.check(str(GOLDEN), dept=3)
