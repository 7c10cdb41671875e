"""What `crbc explain --json` prints, as data."""

from crbc_cli.report.shapes import (
    OPTIONS,
    ROLLOUT_KEY,
    STATUS,
    count,
    listed,
    of_type,
    record,
    share,
    value,
)
from crbc_cli.tables import REASONS

__all__ = ["EXPLAIN_GROUP", "EXPLAIN_STEP"]

_STEP_FACTS = record(
    "one row of a rollout",
    {
        "step": of_type("integer", "as in the input"),
        "source_row": count("row of the input"),
        "anchor": of_type("integer|null", "anchor inside the group"),
        "action_index": of_type("integer|null", "which action of the anchor"),
        "carried_from": of_type("integer|null", "step whose numbers a thought row carries"),
        **{
            name: value("as in the credit table")
            for name in (
                "state_value",
                "action_value",
                "credit",
                "step_credit",
                "group_advantage",
                "advantage",
            )
        },
        "reason": of_type("string|null", "as in the credit table", enum=[*REASONS, None]),
    },
)
_ROLLOUT = {
    **ROLLOUT_KEY,
    "outcome": of_type("string", "success, failure, truncated or unscored"),
    "counts": of_type("boolean", "it enters the group advantage"),
    "group_advantage": value("of its rows; null where they differ or there is none"),
    "length": count("rows"),
}
_ACTION = {
    "action": of_type("string|null", "text of the action"),
    "count": count("N(s,a)"),
    "action_value": value("Q"),
    "credit": value("Q - V"),
    "step_credit": value("A_S"),
    "sigma_credit": of_type("number", "the credit whose spread is sigma"),
    "reward": value("mean intermediate reward"),
    "invalid": of_type("number", "share of its visits that the environment refused"),
    "successors": listed(
        record(
            "where it led",
            {
                "anchor": of_type("integer|null", "anchor of the group, null for a boundary"),
                "boundary": of_type(
                    "string|null", "success or failure", enum=["success", "failure", None]
                ),
                "count": count("N(s,a,x)"),
                "value": value("value of the anchor, worth of the boundary"),
            },
        ),
        "most frequent first",
    ),
}
_VISIT = {
    **ROLLOUT_KEY,
    "step": of_type("integer", "as in the input"),
    "action_index": count("which action of the anchor"),
    "suffix_return": of_type("number", "G, discounted outcome of its own continuation"),
}
_ANCHOR = {
    "anchor": count("number inside the group"),
    "observation": of_type(
        "string|null", "content at its first visit, or of the reply that stands for it"
    ),
    "state_value": value("V"),
    "sigma": of_type("number", "spread of the credit before the floor"),
    "gate": of_type("boolean", "it gives step credit"),
    "reachable_rollouts": count("as in the credit table"),
    "invalid": of_type("number", "share of its visits that the environment refused"),
    "actions": listed(record("one action", _ACTION), "in order of first visit"),
    "visits": listed(record("one visit", _VISIT), "in order of rollout and step"),
    "visit_count": count("number of visits"),
}
_PART = {
    "uses": of_type("number", "discounted number of uses; for credit, Q's less V's"),
    "use_share": share("of all uses, by V and Q together for credit; they sum to 1"),
    "contribution": of_type("number", "what it adds; contributions sum to the number"),
    "share": share("of the sizes of contributions, or use_share where all are 0; they sum to 1"),
}
_PARTS = {
    name: record(f"what it adds to {name}", _PART)
    for name in ("state_value", "action_value", "credit")
}
_EVIDENCE = {
    "rollouts": listed(record("one rollout", ROLLOUT_KEY | _PARTS), "of the group, by id"),
    "transitions": listed(
        record(
            "one observed transition, or the realised returns of an action's visits",
            {
                "kind": of_type("string", "what is used", enum=["transition", "returns"]),
                "anchor": count("where"),
                "action_index": count("which action of the anchor"),
                "action": of_type("string|null", "text of the action"),
                "successor": of_type("integer|null", "anchor it led to"),
                "boundary": of_type(
                    "string|null", "boundary it led to", enum=["success", "failure", None]
                ),
                "count": count("N(s,a,x), or N(s,a) for returns"),
                **_PARTS,
            },
        ),
        "those that are used",
    ),
}
_EXPLAINED = {
    "source_files": listed(of_type("string", "an input"), "where the group's rows stand"),
    "group_id": of_type("string|integer", "as in the input"),
    "key": of_type("object", "values of the --key columns"),
    "group_status": STATUS,
    "options": OPTIONS,
}
EXPLAIN_GROUP = _EXPLAINED | {
    "rollouts": listed(
        record("one rollout", _ROLLOUT | {"steps": listed(_STEP_FACTS, "in order")}), "by id"
    ),
    "anchors": listed(record("one anchor", _ANCHOR), "by number"),
}
EXPLAIN_STEP = _EXPLAINED | {
    "rollout": record("the step's rollout", _ROLLOUT),
    "step": _STEP_FACTS,
    "observation": of_type("string|null", "content of the row"),
    "action": of_type("string|null", "content of the row"),
    "anchor": record("null where the row takes no part", _ANCHOR, null=True),
    "successors": listed(
        record(
            "an anchor one step ahead",
            {name: _ANCHOR[name] for name in ("anchor", "observation", "state_value")},
        ),
        "of all its actions",
    ),
    "trajectory": record(
        "terms of the group advantage",
        {
            "score": of_type("number", "the rollout's reward less penalties"),
            "mean": of_type("number", "mean score of the group"),
            "divisor": value("what score - mean is divided by"),
            "voters": count("rollouts that count"),
        },
        null=True,
    ),
    "parts": listed(
        record(
            "one part",
            {
                "name": of_type("string", "reply, a slot, or column:NAME"),
                "kind": of_type("string", "reply, column, or the kind of slot"),
                "step": of_type("integer|null", "where it comes from"),
                "count": of_type("integer|null", "value of a count"),
                "action": of_type("string|null", "the action before that step, for slots"),
                "text": of_type("string|null", "what was read there"),
            },
        ),
        "of the anchor, where rules made it",
    ),
    "reachable": listed(
        record("a rollout", ROLLOUT_KEY), "whose evidence reaches the step at full closure"
    ),
    "evidence": record("what V, Q and credit are made of", _EVIDENCE, null=True),
    "formulas": listed(
        record(
            "one formula",
            {
                "symbol": of_type("string", "what it gives"),
                "rule": of_type("string", "the formula in symbols"),
                "filled": of_type("string", "the same with the numbers"),
                "value": value("the result"),
            },
        ),
        "in the order they build on each other",
    ),
    "remarks": listed(of_type("string", "one line"), "what else matters at this step"),
}
