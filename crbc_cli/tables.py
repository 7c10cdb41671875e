"""The columns that `crbc` reads and writes, as data.

`schemas/{step,credit}.schema.json` and the README's column tables are generated from these tuples,
so a column is declared once: name, dtype, when it is null, what it means. What reports hold is
declared in `crbc_cli.report.schema`.
"""

from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "ANCHOR_ID",
    "CREDIT_COLUMNS",
    "GROUP_STATUSES",
    "IDENTITY_COLUMNS",
    "METHOD_NUMBERS",
    "REASONS",
    "REPORT_SCHEMA_VERSION",
    "STEP_COLUMNS",
    "UNCERTAINTY_COLUMNS",
    "Column",
    "Role",
    "json_schema",
]

REPORT_SCHEMA_VERSION = 1

Role = Literal["id", "integer", "flag", "number", "value", "text", "any"]
"""How a step-table column is read.

id: string or integer, dtype kept. integer: whole numbers. flag: booleans or 0/1.
number: real; NaN and infinities count as null. value: string or any JSON value, compared by
content. text: string, passed through. any: passed through untouched.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    dtype: str
    null: str
    meaning: str
    role: Role = "any"
    required: bool = False


IDENTITY_COLUMNS = ("group_id", "rollout_id", "step")
"""What tells a row from all others of a step table."""

STEP_COLUMNS: tuple[Column, ...] = (
    Column(
        "group_id",
        "String or Int64",
        "never",
        "task draw: the rollouts merged together",
        "id",
        True,
    ),
    Column(
        "rollout_id", "String or Int64", "never", "one episode, unique inside its group", "id", True
    ),
    Column(
        "step",
        "Int64",
        "never",
        "environment step inside the rollout, counted from 0",
        "integer",
        True,
    ),
    Column(
        "observation",
        "String or JSON",
        "no anchor on this row",
        "what the environment returned before the action",
        "value",
        True,
    ),
    Column(
        "action",
        "String or JSON",
        "allowed, one action like any other",
        "semantic action executed",
        "value",
        True,
    ),
    Column(
        "success",
        "Boolean",
        "on the last row: the rollout is unscored",
        "outcome; the rollout's last row counts",
        "flag",
    ),
    Column("reward", "Float64", "no reward logged", "environment reward of this step", "number"),
    Column("done", "Boolean", "not done", "the episode ended with this step", "flag"),
    Column("truncated", "Boolean", "not truncated", "the episode was cut by a limit", "flag"),
    Column(
        "next_observation",
        "String or JSON",
        "unknown",
        "what the environment returned after the action; only the last row's is used",
        "value",
    ),
    Column("is_action_valid", "Boolean", "valid", "the environment accepted the action", "flag"),
    Column("score", "Float64", "unknown", "graded outcome in [0, 1]", "number"),
    Column("prompt", "String", "unknown", "task or prompt text, for --group-by and checks", "text"),
    Column("response", "String", "unknown", "full model response, passed through", "text"),
)

METHOD_NUMBERS: tuple[str, ...] = (
    "state_value",
    "action_value",
    "credit",
    "step_credit",
    "group_advantage",
    "advantage",
)
"""The credit-table columns that belong to a method; the others are shared by all methods."""

CREDIT_COLUMNS: tuple[Column, ...] = (
    Column("source_file", "String", "never", "the input's path as given, `-` for stdin"),
    Column(
        "source_row",
        "Int64",
        "never",
        "row of that input, from 0; in JSONL the line number minus 1",
    ),
    Column("group_id", "as in the input", "never", "as in the input"),
    Column("rollout_id", "as in the input", "never", "as in the input"),
    Column("step", "Int64", "never", "as in the input"),
    Column(
        "anchor",
        "Int32",
        "row takes no part",
        "canonical situation; dense inside its group, by first visit in (rollout, step) order",
    ),
    Column("visits", "Int32", "row takes no part", "visits of the anchor, N(s)"),
    Column("actions", "Int32", "row takes no part", "distinct actions seen at the anchor"),
    Column(
        "state_value",
        "Float64",
        "row takes no part",
        "V: discounted chance of success from the anchor under the group's own behaviour",
    ),
    Column("action_value", "Float64", "row takes no part", "Q of the row's (anchor, action)"),
    Column("credit", "Float64", "row takes no part", "Q - V, raw"),
    Column(
        "step_credit", "Float64", "row takes no part", "A_S: gated credit over max(sigma, floor)"
    ),
    Column(
        "group_advantage",
        "Float64",
        "rollout does not count, or --singleton drop",
        "A_G: the rollout's group-relative term",
    ),
    Column("advantage", "Float64", "where group_advantage is null", "w_g * A_G + w_s * A_S"),
    Column(
        "reachable_rollouts",
        "Int32",
        "row takes no part",
        "distinct rollouts whose evidence can reach this visit at full closure",
    ),
    Column("group_status", "String", "never", "what kind of group this is"),
    Column("reason", "String", "nothing to say", "why numbers are missing, copied or set to 0"),
)

_UNSURE = "as the number, or one rollout in the group"

UNCERTAINTY_COLUMNS: tuple[Column, ...] = (
    *(
        Column(f"{name}_{end}", "Float64", _UNSURE, meaning)
        for name, symbol in (("state_value", "V"), ("action_value", "Q"), ("credit", "Q - V"))
        for end, meaning in (
            ("se", f"standard error of {symbol}"),
            ("low", f"lower end of the interval of {symbol} (--level)"),
            ("high", "upper end"),
        )
    ),
    Column(
        "sign_reliability",
        "Float64",
        "as the number, or credit 0",
        "share of the resamples whose credit has the sign of this one's",
    ),
)
"""Added with --uncertainty."""

ANCHOR_ID = Column(
    "anchor_id",
    "String",
    "row has no anchor",
    "32 hex digits: 128-bit digest of the anchor's canonical content (with --anchor-id)",
)

GROUP_STATUSES: dict[str, str] = {
    "unscored": "no rollout of the group counts",
    "singleton": "one rollout counts",
    "incomplete": "fewer rollouts count than --expected-group-size",
    "all_success": "every rollout that counts succeeded",
    "all_fail": "every rollout that counts failed",
    "constant": "outcomes differ, but the reward that enters the group advantage does not",
    "ok": "none of the above",
}
"""The first that holds, in this order."""

REASONS: dict[str, str] = {
    "duplicate": "a row with the same group, rollout and step came before; values copied from it "
    "(null where --on-duplicate discarded this row)",
    "unscored": "the rollout has no outcome",
    "excluded": "the rollout was cut and --truncated exclude leaves it out",
    "censored": "the rollout was cut under --truncated censor: removed visits have null numbers, "
    "kept ones null group_advantage",
    "no_anchor": "the row has no observation",
    "not_a_step": "the row is a thought and --thoughts null leaves it out, or no environment step "
    "follows it",
    "singleton_group": "one rollout counts in the group; see --singleton",
}
"""The first that holds, in this order; null means nothing to say."""

_JSON_TYPES: dict[str, list[str]] = {
    "Boolean": ["boolean", "null"],
    "Float64": ["number", "null"],
    "Int32": ["integer", "null"],
    "Int64": ["integer", "null"],
    "String": ["string", "null"],
    "String or Int64": ["string", "integer"],
    "as in the input": ["string", "integer"],
}


def json_schema(table: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of one row of the step or credit table.

    Args:
      table: "step" or "credit".
    """
    columns = (
        STEP_COLUMNS if table == "step" else (*CREDIT_COLUMNS, *UNCERTAINTY_COLUMNS, ANCHOR_ID)
    )
    properties: dict[str, Any] = {}
    for column in columns:
        entry: dict[str, Any] = {"description": f"{column.meaning} (null: {column.null})"}
        types = _JSON_TYPES.get(column.dtype)
        if types is not None:
            never_null = column.null == "never"
            entry["type"] = [t for t in types if t != "null"] if never_null else types
        if column.role == "flag":
            entry["type"] = ["boolean", "number", "null"]
        if column.name == "group_status":
            entry["enum"] = list(GROUP_STATUSES)
        if column.name == "reason":
            entry["enum"] = [*REASONS, None]
        properties[column.name] = entry
    required = (
        [c.name for c in STEP_COLUMNS if c.required]
        if table == "step"
        else [c.name for c in CREDIT_COLUMNS]
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"crbc-{table}-table-v1",
        "title": f"crbc {table} table, one row",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": table == "step",
    }
