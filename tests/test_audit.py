"""`crbc compare --audit`: a trainer's logged advantage recomputed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import GOLDEN, ROOT, crbc
from helpers import Rows, rollout, write_log

from crbc_cli import api
from crbc_cli.engine.audit import Audit
from crbc_cli.errors import ColumnError, OptionError

ALFWORLD = ROOT / "sample_logs" / "alfworld.parquet"

TRL = [
    {"step": 10, "prompt": "Q1", "completion": "a", "acc": 1.0, "advantage": 0.707},
    {"step": 10, "prompt": "Q1", "completion": "b", "acc": 0.0, "advantage": -0.707},
]
"""A completions table: one row per rollout, no observation and no action, rounded advantages."""


@pytest.fixture
def trl_log(tmp_path: Path) -> Path:
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in TRL))
    return path


RULES = ("--audit", "advantage", "--group-by", "prompt", "--success-when", "acc >= 1")


# --- the logged table -----------------------------------------------------------------------------
# Rewards 1 and 0: std 1/√2 with ddof 1, so (1/2)/(1/√2 + eps): .7070068 for eps 1e-4 and
# .7071058 for eps 1e-6; .707 was logged.


def test_the_conventions_of_the_trainer_reproduce_its_log(trl_log: Path) -> None:
    ended = crbc("compare", trl_log, *RULES, "--like", "trl", "--json")
    assert ended.code == 0
    audit = ended.json["audit"]
    assert audit["passed"] is True
    assert audit["recomputed"] == pytest.approx(0.5 / (1 / math.sqrt(2) + 1e-4), abs=1e-15)
    assert abs(audit["recomputed"]) == pytest.approx(0.7070068, abs=5e-8)
    assert audit["largest_difference"] == pytest.approx(6.8e-6, abs=5e-8)
    assert (audit["rows"], audit["rows_beyond"], audit["tolerance"]) == (2, 0, 5e-5)
    assert (audit["method"], audit["like"]) == ("grpo", "trl")
    assert audit["place"] == f"{trl_log}:1"
    assert ended.json["options"]["eps"] == 1e-4


def test_a_smaller_tolerance_than_the_rounding_fails(trl_log: Path) -> None:
    ended = crbc("compare", trl_log, *RULES, "--like", "trl", "--tolerance", "1e-6")
    assert ended.code == 1
    assert "2 of 2 rows are not within 1e-06" in ended.text
    assert "Largest difference 6.8e-06" in ended.text


def test_another_eps_fails_and_the_right_conventions_are_named(trl_log: Path) -> None:
    ended = crbc("compare", trl_log, *RULES, "--eps", "1e-6", "--json")
    assert ended.code == 1
    audit = ended.json["audit"]
    assert abs(audit["recomputed"]) == pytest.approx(0.7071058, abs=5e-8)
    assert audit["largest_difference"] == pytest.approx(1.06e-4, abs=5e-7)
    others = audit["other_conventions"]
    assert min(others, key=others.get) == "trl"
    assert set(others) == {"verl", "verl-agent", "trl", "tinker"}
    assert others["trl"] == pytest.approx(6.8e-6, abs=5e-8)
    assert others["tinker"] == pytest.approx(0.207)
    text = crbc("compare", trl_log, *RULES).text
    assert text.index("--like trl: largest difference 6.8e-06") < text.index("--like tinker")


def test_only_step_methods_need_observations_and_actions(trl_log: Path) -> None:
    for method in ("grpo", "dr-grpo", "rloo"):
        assert crbc("compare", trl_log, *RULES, "--methods", method).code in (0, 1)
    for method in ("crbc", "gigpo"):
        line = crbc("compare", trl_log, *RULES, "--methods", method).refused()
        assert "has no column observation" in line
    assert "has no column observation" in crbc("compare", trl_log, *RULES[2:]).refused()


def test_csv(trl_log: Path) -> None:
    header, row = crbc("compare", trl_log, *RULES, "--like", "trl", "--csv").text.splitlines()
    assert header.startswith("column,method,score,like,tolerance,passed,rows")
    assert row.startswith("advantage,grpo,advantage,trl,5e-05,True,2")


# --- presets --------------------------------------------------------------------------------------


def audited(rows: Rows, tmp_path: Path, **options: Any) -> Audit:
    path = write_log(rows, tmp_path / "log.jsonl")
    return api.audit([str(path)], "logged", **options)


UNEVEN = [*rollout("w", "S-a", 1), *rollout("l", "S-b M-c M-d", 0)]
"""One row that succeeds, three that fail."""


@pytest.mark.parametrize(
    ("like", "values"),
    [
        # One vote per rollout: ±(1/2)/√(1/2).
        ("verl", (0.7071058, -0.7071058)),
        ("trl", (0.7070068, -0.7070068)),
        ("tinker", (0.5, -0.5)),
        # One vote per row, success worth 10: mean 2.5, std 5: 7.5/5 and -2.5/5.
        ("verl-agent", (1.4999997, -0.4999999)),
    ],
)
def test_each_preset_explains_the_log_of_its_trainer(
    like: str, values: tuple[float, float], tmp_path: Path
) -> None:
    rows = [row | {"logged": values[row["success"] == 0]} for row in UNEVEN]
    found = audited(rows, tmp_path, like=like, tolerance=1e-6)
    assert found.passed
    assert found.others == {}
    wrong = "verl" if like != "verl" else "tinker"
    failed = audited(rows, tmp_path, like=wrong, tolerance=1e-6)
    assert not failed.passed
    assert failed.others[like] == found.difference <= 1e-6


def test_standard_deviations_by_convention(tmp_path: Path) -> None:
    """Rewards 1 and 0: ±.7071 with ddof 1, ±1 with ddof 0, ±.5 undivided."""
    rows = [*rollout("r0", "s-a", 1, logged=0.0), *rollout("r1", "s-b", 0, logged=0.0)]
    for options, size in (
        ({"ddof": 1}, 0.7071),
        ({"ddof": 0}, 1.0),
        ({"method": "dr-grpo"}, 0.5),
        ({"like": "tinker"}, 0.5),
        ({"like": "paper", "method": "grpo"}, 0.7071),
    ):
        found = audited(rows, tmp_path, **options)
        assert abs(found.recomputed) == pytest.approx(size, abs=5e-5), options
    assert audited(rows, tmp_path, like="paper").chosen.method.name == "crbc"


# --- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["crbc", "gigpo", "x=crbc:depth=0:w_s=2"])
@pytest.mark.parametrize("score", ["advantage", "step_credit"])
def test_what_annotate_wrote_passes_exactly(method: str, score: str, tmp_path: Path) -> None:
    path = tmp_path / "annotated.parquet"
    options: dict[str, Any] = {"method": method, "invalid_penalty": "both"}
    api.annotate([str(ALFWORLD)], str(path), columns="all", **options)
    found = api.audit([str(path)], score, score=score, tolerance=0, **options)
    assert found.passed
    assert found.rows == pl.read_parquet(path).height
    assert found.difference == 0


def test_the_worst_row_is_named(tmp_path: Path) -> None:
    frame = pl.read_ndjson(GOLDEN)
    path = tmp_path / "log.jsonl"
    table = crbc("annotate", GOLDEN, "-o", "-", "--to", "arrow").table
    logged = pl.Series("logged", table["advantage"].to_pylist())
    logged[5] += 0.25
    logged[7] -= 0.5
    frame.with_columns(logged).write_ndjson(path)
    found = api.audit([str(path)], "logged", method="crbc")
    assert (found.beyond, found.rows) == (2, 9)
    assert found.difference == pytest.approx(0.5)
    assert found.place == f"{path}:8"
    assert found.recomputed - found.logged == pytest.approx(0.5)
    assert found.others == {}  # a method was named


def test_rows_with_one_number_are_counted(tmp_path: Path) -> None:
    logged = {"a": 0.8660, "b": None, "c": -0.8660, "d": None, "e": 0.5}
    rows = [*rollout("a", "S-a M-b", 1), *rollout("b", "S-a", 1), *rollout("c", "S-a", 0)]
    rows += [*rollout("d", "S-a", 0), *rollout("e", "S-a", None)]
    rows = [row | {"logged": logged[row["rollout_id"]]} for row in rows]
    found = audited(rows, tmp_path)
    # a (two rows) and c have both numbers; b and d are only recomputed, e has no outcome.
    assert (found.rows, found.only_recomputed, found.only_logged) == (3, 2, 1)
    assert found.passed
    path = tmp_path / "log.jsonl"
    assert "1 only logged, 2 only recomputed" in crbc("compare", path, "--audit", "logged").text


def test_several_files_are_one_audit(tmp_path: Path) -> None:
    paths = []
    for name, off in (("a", 0.0), ("b", 0.25)):
        rows = [row | {"logged": (0.5 if row["success"] else -0.5) + off} for row in UNEVEN]
        paths.append(str(write_log(rows, tmp_path / f"{name}.jsonl")))
    found = api.audit(paths, "logged", like="tinker")
    assert (found.rows, found.beyond) == (8, 4)
    assert found.difference == pytest.approx(0.25)
    assert found.place.startswith(paths[1])


# --- what cannot be audited -----------------------------------------------------------------------


def test_columns_that_cannot_be_audited(trl_log: Path) -> None:
    rules = ("--group-by", "prompt", "--success-when", "acc >= 1")
    missing = crbc("compare", trl_log, "--audit", "adv", *rules).refused()
    assert missing.endswith("has no column adv; name another with --audit COLUMN")
    assert "needs numbers" in crbc("compare", trl_log, "--audit", "completion", *rules).refused()


def test_options_that_cannot_be(tmp_path: Path) -> None:
    rows = [*rollout("a", "S-a", 1, logged=0.5), *rollout("b", "S-a", 0)]
    with pytest.raises(OptionError, match="--audit recomputes one method"):
        audited(rows, tmp_path, method="grpo,crbc")
    with pytest.raises(OptionError, match="--tolerance -1 is not at least 0"):
        audited(rows, tmp_path, tolerance=-1)
    with pytest.raises(OptionError, match="gives no step_credit"):
        audited(rows, tmp_path, score="step_credit")
    with pytest.raises(ColumnError, match="has no number that can be compared"):
        audited([row | {"logged": None} for row in rows], tmp_path)
    line = crbc("compare", GOLDEN, "--audit", "reward", "--truth", "reward").refused()
    assert "--audit takes no --truth" in line
