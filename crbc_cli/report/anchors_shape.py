"""JSON shape of `crbc anchors --json`."""

from crbc_cli.report.shapes import OPTIONS, Schema, count, listed, of_type, record, share, value

__all__ = ["ANCHORS"]

_QUALITY: dict[str, Schema] = {
    "groups": count("groups"),
    "rollouts": count("rollouts"),
    "rows": count("rows"),
    "visits": count("environment steps with an anchor"),
    "anchors": count("anchors"),
    "visits_per_anchor": value("their ratio"),
    "anchors_visited_once_share": share("anchors visited once"),
    "shared_visits_share": share("visits on anchors that several rollouts visit"),
    "actions_per_anchor": value("mean number of distinct actions at an anchor"),
    "conflict_rate": share("visits of repeated (anchor, action) pairs with several next anchors"),
    "repeated_pair_visits": count("visits of (anchor, action) pairs visited at least twice"),
    "conflicting_visits": count("those whose pair had several next anchors"),
    "no_op_rows": count("replies that say that nothing happened"),
    "missing_rows": count("rows without a reply otherwise"),
    "thought_rows": count("rows that are no environment steps"),
}
_TRUTH = record(
    "against the true state; null where none is named",
    {
        "visits": count("visits scored"),
        "aliased": share("visits on repeated anchors whose anchor holds several true states"),
        "shared": share("visits on anchors that several rollouts visited"),
        "keys_per_state": value("mean number of anchors per true state"),
    },
    null=True,
)
_NUMBERS = record(
    "on the sample",
    {
        "visits": count("visits"),
        "anchors": count("anchors"),
        "shared": share("visits on anchors that several rollouts visit"),
        "conflict_rate": share("as above"),
        "foretold": value("visits that other rollouts foretell"),
        "wrong": value("visits that they foretell wrongly"),
    },
)
_ENTRY = record(
    "a way in",
    {
        "observation": of_type("string|null", "text before, null at a rollout's start"),
        "action": of_type("string|null", "action before"),
        "visits": count("how often"),
    },
)
_ACTION = record(
    "an action with several outcomes",
    {
        "action": of_type("string|null", "its text"),
        "visits": count("visits whose outcome can tell"),
        "successors": count("distinct outcomes"),
        "told_by_entry": count("visits with the most frequent outcome of their way in"),
        "told_anyway": count("visits with the most frequent outcome"),
        "followed": listed(
            record(
                "an outcome",
                {
                    "observation": of_type("string|null", "text of the next anchor"),
                    "boundary": of_type("string|null", "success or failure"),
                    "visits": count("how often"),
                    "entries": listed(_ENTRY, "most frequent first"),
                },
            ),
            "most frequent first",
        ),
    },
)
_RULE_SET = record(
    "one rule set",
    {
        "rules": of_type("string", "name"),
        **_QUALITY,
        "foretold_wrongly_share": share("visits whose next reply other rollouts foretell wrongly"),
        "truth": _TRUTH,
    },
)

ANCHORS: dict[str, Schema] = {
    "rules": record(
        "the rules in force",
        {"name": of_type("string", "name"), "digest": of_type("string", "32 hex digits")},
    ),
    **_QUALITY,
    "logs": listed(
        record("one input", {"source_file": of_type("string", "the input"), **_QUALITY}), "inputs"
    ),
    "markov_test": record(
        "does what follows depend on how an anchor was entered",
        {
            "tested": count("anchors with enough visits"),
            "dependent": count("those with an adjusted p-value below 0.05"),
            "correction": of_type("string", "for the number of anchors"),
        },
    ),
    "worst": listed(
        record(
            "one anchor",
            {
                "source_file": of_type("string", "the input"),
                "group_id": of_type("string", "the group"),
                "observation": of_type("string|null", "text of its first visit"),
                "visits": count("visits"),
                "rollouts": count("rollouts that visit it"),
                "conflicting": count("visits in conflict"),
                "p_value": value("of the test"),
                "adjusted": value("corrected for all tested anchors"),
                "actions": listed(_ACTION, "most visits first"),
            },
        ),
        "least like a state first",
    ),
    "truth": _TRUTH,
    "near_duplicates": listed(
        record(
            "the clearest pair of a kind",
            {
                "kind": of_type("string", "what the texts differ in"),
                "group": count("group of the sample"),
                "first": of_type("string", "one text"),
                "second": of_type("string", "the other"),
                "visits": count("visits of both"),
                "same": count("common actions with the same outcome"),
                "different": count("common actions with another outcome"),
                "pairs": count("pairs of this kind"),
            },
        ),
        "kinds with many pairs first",
    ),
    "sample_rows": count("rows that suggestions were tried on"),
    "foretold_wrongly_share": share("visits of the sample that other rollouts foretell wrongly"),
    "suggestions": listed(
        record(
            "one change of the rules",
            {
                "kind": of_type("string", "what it is about"),
                "why": of_type("string", "the evidence"),
                "change": of_type("string", "rule-file entries (TOML)"),
                "option": of_type("string", "the same as an option, empty if there is none"),
                "before": _NUMBERS,
                "after": _NUMBERS,
            },
        ),
        "one on top of the other",
    ),
    "suggested_rules": of_type("string|null", "rule file with all of them (TOML)"),
    "under_suggested_rules": _RULE_SET | {"type": ["object", "null"]},
    "comparison": listed(_RULE_SET, "best first"),
    "options": OPTIONS,
}
