"""`schemas/` is what the program prints, and what it prints fits `schemas/`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import GOLDEN, ROOT, crbc, golden_rows, jsonl
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from crbc_cli.anchors.rulefile import preset_names, preset_text
from crbc_cli.tables import CREDIT_COLUMNS, STEP_COLUMNS

SAMPLES = ROOT / "sample_logs"
SOKOBAN = SAMPLES / "sokoban.parquet"


def schema(name: str) -> dict[str, Any]:
    published: dict[str, Any] = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text())
    return published


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema(name))


@pytest.mark.parametrize("name", ["step", "credit", "report", "rules"])
def test_published_schema_is_current(name: str) -> None:
    """Write it again with `crbc schema NAME > schemas/NAME.schema.json`."""
    assert (ROOT / "schemas" / f"{name}.schema.json").read_text() == crbc("schema", name).text
    Draft202012Validator.check_schema(schema(name))


def test_schema_names() -> None:
    assert crbc("schema").json == schema("credit")
    assert "use one of step, credit, report" in crbc("schema", "logs").refused()


def test_sample_logs_fit_the_step_schema() -> None:
    step = validator("step")
    rows = [json.loads(line) for line in (SAMPLES / "sokoban.jsonl").read_text().splitlines()[:20]]
    rows += golden_rows()
    for name in ("sokoban.parquet", "alfworld.parquet"):
        rows += pl.read_parquet(SAMPLES / name, n_rows=20).to_dicts()
    for row in rows:
        step.validate(row)
    required = {column.name for column in STEP_COLUMNS if column.required}
    assert set(schema("step")["required"]) == required
    for name in required:
        with pytest.raises(ValidationError):
            step.validate({key: value for key, value in rows[0].items() if key != name})
    for wrong in ({"step": "0"}, {"group_id": None}, {"success": "yes"}, {"step": 0.5}):
        with pytest.raises(ValidationError):
            step.validate(rows[0] | wrong)


def test_output_fits_the_credit_schema(tmp_path: Path) -> None:
    """Scored, unscored, cut, doubled and lone rollouts, with and without the digest."""
    rows = [
        row | {"success": None if row["rollout_id"] == "t3" else row["success"]}
        for row in golden_rows()
    ]
    rows += [rows[0], {**rows[1], "group_id": "lone"}, {**rows[2], "observation": None, "step": 7}]
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(rows))
    credit = validator("credit")
    reasons = set()
    for arguments in ([log], [log, "--anchor-id"], [SOKOBAN, "--truncated", "censor"]):
        for row in crbc("annotate", *arguments, "-o", "-", "--to", "jsonl").rows[:600]:
            credit.validate(row)
            reasons.add(row["reason"])
    assert {"unscored", "duplicate", "no_anchor", "singleton_group", "censored"} <= reasons
    assert schema("credit")["required"] == [column.name for column in CREDIT_COLUMNS]
    for wrong in ({"reason": "lost"}, {"group_status": None}, {"credit": "0"}, {"extra": 1}):
        with pytest.raises(ValidationError):
            credit.validate(row | wrong)


# Every report, with what makes its parts appear.
REPORTS: dict[str, list[object]] = {
    "check": ["check", SOKOBAN, SAMPLES / "broken" / "torn-last-line.jsonl"],
    "compare": ["compare", SOKOBAN, "--truth", "true_advantage", "--sweep", "depth=0,inf"],
    "compare without a truth": ["compare", SAMPLES / "broken" / "empty.jsonl"],
    "compare with a logged number": ["compare", SOKOBAN, "--audit", "true_advantage"],
    "compare runs": ["compare", "--runs", SOKOBAN, GOLDEN],
    "coverage": ["coverage", SOKOBAN],
    "coverage of nothing": ["coverage", SAMPLES / "broken" / "empty.jsonl"],
    "coverage by anchors": ["coverage", GOLDEN, "--unit", "anchors", "--depth", "1"],
    "explain a group": ["explain", GOLDEN],
    "explain a cut step": ["explain", GOLDEN, "--step", "t2:1", "--depth", "0"],
    "explain a row that takes no part": [
        "explain",
        SAMPLES / "broken" / "unscored.jsonl",
        "--step",
        "t1:0",
    ],
    "profile": ["profile", GOLDEN],
    "gate": ["gate", SOKOBAN, "--at", "3"],
    "methods": ["methods"],
    "steps": ["steps", SOKOBAN],
}


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    """Name -> what `--json` printed."""
    printed = {}
    for name, arguments in REPORTS.items():
        ended = crbc(*arguments, "--json")
        assert ended.code in (0, 1), (name, ended.stderr)
        printed[name] = ended.json
    return printed


@pytest.mark.parametrize("name", REPORTS)
def test_report_fits_the_report_schema(name: str, reports: dict[str, Any]) -> None:
    report = reports[name]
    assert report["report"] == name.split()[0]
    error = best_match(validator("report").iter_errors(report))
    assert error is None, f"{error.json_path}: {error.message}"
    assert set(_undescribed(report, _shape(report), "")) == set()
    for field in ("schema_version", "report"):
        with pytest.raises(ValidationError):
            validator("report").validate(report | {field: 7})


def _shape(report: dict[str, Any]) -> dict[str, Any]:
    """The one shape that a report has."""
    [shape] = [s for s in schema("report")["oneOf"] if Draft202012Validator(s).is_valid(report)]
    return shape


def _undescribed(value: Any, shape: dict[str, Any], path: str) -> Iterator[str]:
    """Paths of members that a described object has and its description lacks."""
    if isinstance(value, list):
        for item in value:
            yield from _undescribed(item, shape.get("items", {}), f"{path}[]")
    elif isinstance(value, dict) and "properties" in shape:
        for name, member in value.items():
            if name in shape["properties"]:
                yield from _undescribed(member, shape["properties"][name], f"{path}.{name}")
            elif path:
                yield f"{path}.{name}"


def test_reports_with_known_fields_are_described_whole(reports: dict[str, Any]) -> None:
    """At the top level too, but for the gate's, whose rule decides what else it says."""
    for name, report in reports.items():
        if report["report"] != "gate":
            assert set(report) == set(_shape(report)["properties"]), name


@pytest.mark.parametrize("name", preset_names())
def test_presets_follow_the_published_rule_schema(name: str) -> None:
    validator("rules").validate(tomllib.loads(preset_text(name)))
