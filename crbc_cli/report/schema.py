"""JSON Schema (2020-12) of what `--json` prints: one shape per report, as data.

Every field a report always has is required; more may be added within one schema version.
"""

from typing import Any

from crbc_cli.report.anchors_shape import ANCHORS
from crbc_cli.report.compare_shape import COMPARE, COMPARE_AUDIT, COMPARE_RUNS
from crbc_cli.report.explain_shape import EXPLAIN_GROUP, EXPLAIN_STEP
from crbc_cli.report.inspect_shape import INSPECT
from crbc_cli.report.shapes import (
    DEPTH,
    OPTIONS,
    Schema,
    count,
    listed,
    of_type,
    record,
    share,
    value,
)
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["report_schema"]

_COVERAGE = {
    "eligible": of_type("string", "which anchors count"),
    "unit": of_type("string", "what is counted: visits or anchors"),
    "units": count("units before the eligibility rule"),
    "eligible_units": count("units that count"),
    "conflict_rate": share("visits of repeated (anchor, action) pairs with several next anchors"),
    "settled_at_depth": count("smallest depth at which every unit equals full closure"),
    "expanded": count("units that reach more rollouts at full closure than at depth 0"),
    "expanded_share": share("their share of the eligible units"),
    "depths": listed(
        record(
            "one depth",
            {
                "depth": DEPTH,
                "mean_rollouts": value("mean number of reachable rollouts"),
                "full_coverage": count("units that reach every rollout of their group"),
                "full_coverage_share": share("their share"),
                "distribution": listed(
                    record(
                        "units with this many reachable rollouts",
                        {
                            "rollouts": count("reachable rollouts"),
                            "count": count("units"),
                            "share": share("their share"),
                        },
                    ),
                    "from one rollout upwards",
                ),
            },
        ),
        "the depths asked for",
    ),
    "paired": listed(
        record(
            "units by reach at both ends",
            {
                "depth_0": count("reachable rollouts at depth 0"),
                "closure": count("reachable rollouts at full closure"),
                "count": count("units"),
                "share": share("their share"),
            },
        ),
        "depth 0 against full closure; empty cells are left out",
    ),
    "options": OPTIONS,
}

_BATCH = {
    "source_file": of_type("string", "the input"),
    "training_step": {"description": "training step, null where none is logged"},
    "rows": count("rows"),
    "rollouts": count("rollouts"),
    "groups": count("groups"),
    "smaller": of_type("boolean", "at most half of the one before"),
}
_QUANTILES = {name: of_type("number", name) for name in ("min", "median", "p90", "max")}
_CHECK = {
    "problems": count("findings that are problems"),
    "notes": count("findings that are notes"),
    "findings": listed(
        record(
            "something suspicious",
            {
                "code": of_type("string", "stable name; `crbc check --list` explains all"),
                "severity": of_type(
                    "string", "problems end in exit code 1", enum=["problem", "note"]
                ),
                "count": count("how many units it was seen in"),
                "of": count("how many units there are"),
                "unit": of_type("string", "what is counted"),
                "where": listed(of_type("string", "file:line or file row"), "the first few places"),
                "message": of_type("string", "what was seen"),
                "advice": of_type("string", "what to do about it"),
            },
        ),
        "problems first",
    ),
    "summary": record(
        "the log in numbers",
        {
            "files": count("inputs"),
            "rows": count("rows, copies left out"),
            "rollouts": count("rollouts"),
            "groups": count("groups"),
            "group_sizes": listed(
                record("one size", {"size": count("rollouts"), "groups": count("groups")}),
                "how many groups have how many rollouts",
            ),
            "rollout_rows": record(
                "rows of a rollout", {n: _QUANTILES[n] for n in ("min", "median", "max")}
            ),
            "endings": of_type("object", "how rollouts ended -> rollouts"),
            "success_rate": share("successes among scored rollouts"),
            "outcome_mean_rollouts": value("mean outcome, one vote per rollout"),
            "outcome_mean_rows": value("mean outcome, one vote per row"),
            "invalid_share": share("rows whose action the environment refused"),
            "visits": count("visits"),
            "anchors": count("anchors"),
            "visits_per_anchor": value("their ratio"),
            "shared_share": share("visits at anchors that several rollouts visit"),
            "choice_share": share("visits at anchors with two actions or more"),
            "top_anchor_share": share("visits at the most visited anchor of each group"),
            "anchors_in_several_groups": count("equal contents in several groups, kept apart"),
            "anchor_bytes": record("length of an anchor's content", _QUANTILES, null=True),
        },
    ),
    "batches": listed(record("one file and training step", _BATCH), "in order"),
    "options": OPTIONS,
}

_GATE = {
    "rule": of_type("object", "when the gate stops a group"),
    "groups": count("groups measured"),
    "groups_left_out": count("groups that could not be measured"),
    "zero_variance_groups": count("groups whose outcomes are all equal"),
    "points": listed(
        of_type("object", "one setting"), "what each setting of the gate saves and costs"
    ),
    "separation": listed(of_type("object", "one K"), "how well the signal tells groups apart"),
    "held_out": listed(of_type("object", "one K"), "cross-validation of chosen thresholds"),
}

_METHODS = {
    "methods": listed(
        record(
            "one estimator",
            {
                "name": of_type("string", "as in --method"),
                "label": of_type("string", "its name in reports and before its columns"),
                "kind": of_type("string", "what it gives credit to"),
                "summary": of_type("string", "what it computes"),
                "source": of_type("string", "where it is defined"),
                "notes": of_type("string", "what to know about it"),
                "options": listed(of_type("object", "one option"), "with their defaults"),
            },
        ),
        "in the order of the registry",
    ),
}

_PROFILE = {
    "rows": count("rows of the log"),
    "groups": count("groups of the log"),
    "seconds": of_type("number", "whole run"),
    "credit_seconds": of_type("number", "everything between reading and writing"),
    "peak_memory_bytes": count("largest resident size"),
    "stages": listed(
        record(
            "one stage",
            {
                "stage": of_type("string", "its name"),
                "seconds": of_type("number", "seconds"),
                "share": share("share of the whole run"),
                "rows_per_second": value("rows per second"),
            },
        ),
        "in the order they run",
    ),
    "updates": {
        "type": ["array", "null"],
        "description": "seconds per phase of each training update, null where none is logged",
        "items": {"type": "object"},
    },
    "update_means": of_type("object|null", "mean seconds per update of each phase"),
    "options": OPTIONS,
}

_STEPS = {
    "method": of_type("string", "label of the estimator"),
    "steps": count("steps with a step credit, of rollouts with an outcome"),
    "rows_left_out": count("other rows"),
    "positions": listed(
        record(
            "one position and outcome",
            {
                "position": count("step of the rollout, from 0"),
                "outcome": of_type("string", "of the rollouts", enum=["success", "failure"]),
                "steps": count("steps"),
                "mean": of_type("number", "mean step credit"),
                "low": of_type("number", "its lower quartile"),
                "high": of_type("number", "its upper quartile"),
                "credited_share": share("steps whose step credit is not 0"),
                "mean_advantage": value("mean advantage"),
            },
        ),
        "by position, successes first",
    ),
    "options": OPTIONS,
}

_SHAPES: tuple[tuple[str, str, dict[str, Schema]], ...] = (
    ("anchors", "crbc anchors", ANCHORS),
    ("check", "crbc check", _CHECK),
    ("compare", "crbc compare", COMPARE),
    ("compare", "crbc compare --audit", COMPARE_AUDIT),
    ("compare", "crbc compare --runs", COMPARE_RUNS),
    ("coverage", "crbc coverage", _COVERAGE),
    ("explain", "crbc explain: a group", EXPLAIN_GROUP),
    ("explain", "crbc explain --step", EXPLAIN_STEP),
    ("gate", "crbc gate", _GATE),
    ("inspect", "crbc inspect", INSPECT),
    ("methods", "crbc methods", _METHODS),
    ("profile", "crbc profile", _PROFILE),
    ("steps", "crbc steps", _STEPS),
)


def report_schema() -> Schema:
    """The schema of every report; `report` says which shape it has."""
    shapes = []
    for name, meaning, fields in _SHAPES:
        head: dict[str, Any] = {
            "schema_version": {"const": REPORT_SCHEMA_VERSION},
            "report": {"const": name, "description": "the command that made it"},
        }
        shapes.append(record(meaning, head | fields))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"crbc-report-v{REPORT_SCHEMA_VERSION}",
        "title": "crbc report (--json)",
        "type": "object",
        "oneOf": shapes,
    }
