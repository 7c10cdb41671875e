"""Every file of `sample_logs/broken/` gives what the table in its README says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from conftest import GOLDEN, ROOT, Ended, crbc

from crbc_cli.tables import CREDIT_COLUMNS

BROKEN = ROOT / "sample_logs" / "broken"
NUMBERS = [c.name for c in CREDIT_COLUMNS if c.dtype in ("Float64", "Int32")]


@dataclass(frozen=True)
class Told:
    """One line of the table."""

    name: str
    reader: str
    check: str

    @property
    def path(self) -> Path:
        return BROKEN / self.name

    @property
    def refuses(self) -> bool:
        return self.reader.startswith("refuse")

    @property
    def places(self) -> list[str]:
        """`file:line` of every line the reader is to name."""
        said = re.search(r"at lines? ([\d and]+)", self.reader)
        return [f"{self.path}:{n}" for n in re.findall(r"\d+", said[1])] if said else []

    @property
    def column(self) -> str:
        said = re.search(r"naming the column `(\w+)`", self.reader)
        return said[1] if said else ""


def _told() -> list[Told]:
    cells = [
        [cell.strip() for cell in line.split(" | ")]
        for line in (BROKEN / "README.md").read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    return [Told(name.strip("| `"), reader, check.strip("| ")) for name, _, reader, check in cells]


TOLD = {told.name: told for told in _told()}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    output = tmp_path_factory.mktemp("golden") / "golden.parquet"
    assert crbc("annotate", GOLDEN, "-o", output).code == 0
    return pl.read_parquet(output)


def test_the_table_lists_every_file() -> None:
    assert set(TOLD) == {path.name for path in BROKEN.iterdir()} - {"README.md"}


@pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)
def test_annotate_and_coverage(told: Told, golden: pl.DataFrame, tmp_path: Path) -> None:
    output = tmp_path / "credit.parquet"
    annotated = crbc("annotate", told.path, "-o", output)
    covered = crbc("coverage", told.path, "--json")
    strict = crbc("annotate", told.path, "-o", tmp_path / "strict.csv", "--strict")
    if told.refuses and annotated.code:
        assert covered.refused() == annotated.refused() == strict.refused()
        assert all(place in annotated.stderr for place in told.places)
        assert told.path.name in annotated.stderr
        assert told.column in annotated.stderr
        assert not any(tmp_path.iterdir())
        return
    # Deep nesting is refused only where the interpreter cannot recurse that far.
    assert not told.refuses or told.name == "deep-nesting.jsonl"
    assert annotated.code == covered.code == 0
    assert "Traceback" not in annotated.stderr + covered.stderr
    warnings = [line for line in annotated.stderr.splitlines() if line.startswith("warning: ")]
    assert bool(warnings) == told.reader.startswith("warn")
    assert strict.code == bool(warnings)
    assert all(place in "".join(warnings) for place in told.places)
    frame = pl.read_parquet(output)
    if "golden numbers" in told.reader:
        assert frame.height >= golden.height
        assert frame.head(golden.height).select(NUMBERS).equals(golden.select(NUMBERS))
    elif "empty table" in told.reader:
        assert frame.schema == golden.schema
        assert frame.height == 0
        assert covered.json["units"] == 0


@pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)
def test_check(told: Told) -> None:
    checked = crbc("check", told.path, "--json")
    if told.check == "refuse" and checked.code:
        checked.refused()
        return
    code, _, codes = told.check.partition(": ")
    assert told.name == "deep-nesting.jsonl" or checked.code == int(code)
    found = [finding["code"] for finding in checked.json["findings"]]
    assert sorted(found) == sorted(re.findall(r"`(\w+)`", codes))
    assert all(told.name in place for f in checked.json["findings"] for place in f["where"])


def test_skipped_lines_are_counted(tmp_path: Path) -> None:
    output = tmp_path / "credit.parquet"
    ended = crbc("annotate", TOLD["bad-inner-line.jsonl"].path, "--skip-bad-lines", "-o", output)
    assert ended.code == 0
    assert "warning: " in ended.stderr
    assert "1 bad line left out, first 4" in ended.stderr
    assert pl.read_parquet(output)["source_row"].to_list() == [0, 1, 2, 4, 5, 6, 7, 8]


def test_unscored_rows_are_null(tmp_path: Path) -> None:
    ended = crbc("annotate", TOLD["unscored.jsonl"].path, "-o", "-", "--to", "jsonl")
    rows = ended.rows  # strict JSON
    lost = [row for row in rows if row["rollout_id"] in ("t1", "t3")]
    assert len(lost) == 4
    assert all(row["reason"] == "unscored" for row in lost)
    assert all(row[name] is None for row in lost for name in NUMBERS)


def test_outcome_rule_replaces_the_column(golden: pl.DataFrame, tmp_path: Path) -> None:
    output = tmp_path / "credit.parquet"
    path = TOLD["no-outcome-column.jsonl"].path
    assert crbc("annotate", path, "--success-when", "reward >= 1", "-o", output).code == 0
    assert pl.read_parquet(output).select(NUMBERS).equals(golden.select(NUMBERS))


def test_several_files_with_one_broken_leave_whole_outputs(tmp_path: Path) -> None:
    """Outputs are each their own: that of the broken file is missing, the others stay."""
    good, bad = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    good.write_bytes(GOLDEN.read_bytes())
    bad.write_bytes((BROKEN / "bad-inner-line.jsonl").read_bytes())
    assert f"{bad}:4" in crbc("annotate", good, bad).refused()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in names if name != "a.credit.parquet"] == ["a.jsonl", "b.jsonl"]
    bad.write_bytes(GOLDEN.read_bytes())
    assert crbc("annotate", good, bad, "--resume").code == 0
    first, second = (pl.read_parquet(tmp_path / f"{name}.credit.parquet") for name in "ab")
    assert first.drop("source_file").equals(second.drop("source_file"))


@pytest.mark.parametrize("command", ["coverage", "check", "explain", "profile"])
def test_several_files_with_one_broken_leave_nothing(command: str, tmp_path: Path) -> None:
    """A file that cannot be read stops the run before anything is written."""
    good, bad = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    good.write_bytes(GOLDEN.read_bytes())
    bad.write_bytes((BROKEN / "bad-inner-line.jsonl").read_bytes())
    ended: Ended = crbc(command, good, bad)
    assert f"{bad}:4" in ended.refused()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]
