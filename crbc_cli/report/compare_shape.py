"""JSON shapes of `crbc compare --json`."""

from crbc_cli.engine.runs import RUN_MEASURES
from crbc_cli.methods.fidelity import METRICS
from crbc_cli.report.shapes import OPTIONS, Schema, count, listed, of_type, record, share, value

__all__ = ["COMPARE", "COMPARE_AUDIT", "COMPARE_RUNS"]

_SCORE = of_type("string", "the number compared", enum=["credit", "step_credit", "advantage"])
_SIZE = of_type("integer|null", "rollouts per group, null for groups as they were logged")
_COLUMN = "string|null"
_INTERVAL = record(
    "mean over groups with a 95 % interval, clustered by task",
    {
        "mean": value("mean"),
        "se": value("standard error"),
        "low": value("lower end"),
        "high": value("upper end"),
        "groups": of_type("number", "groups that count, on average over cuts"),
    },
)
_METRICS = record(
    "fidelity to the truth inside mixed groups",
    {name: _INTERVAL | {"description": meaning} for name, meaning in METRICS.items()},
    null=True,
)
_ERRORS = record(
    "sizes and signs over all steps",
    {
        "rmse": value("root mean square error of numbers in value units"),
        "rmse_scaled": value("after the best single factor"),
        "rmse_zero": value("of predicting 0"),
        "signs": share("equal signs where |truth| > 0.01, zeros counting half"),
    },
    null=True,
)
_NAME = of_type("string", "label and setting of an entry")
_PAIR: dict[str, Schema] = {"group_size": _SIZE, "a": _NAME, "b": _NAME}
_DISAGREEMENT = record(
    "one step",
    {
        "place": of_type("string", "file:line or file row"),
        "group_id": of_type("string|integer", "as in the input"),
        "rollout_id": of_type("string|integer", "as in the input"),
        "step": of_type("integer", "as in the input"),
        "observation": of_type("string|null", "its beginning"),
        "action": of_type("string|null", "its beginning"),
        "a": of_type("number", "number of entry a"),
        "b": of_type("number", "number of entry b"),
        "apart": of_type("number", "distance once each entry is scaled to mean square 1"),
        "why_a": of_type("string", "what entry a compares there"),
        "why_b": of_type("string", "what entry b compares there"),
    },
)

COMPARE: dict[str, Schema] = {
    "rows": count("rows of the log, copies left out"),
    "truth": of_type(_COLUMN, "column of the true advantage"),
    "state": of_type(_COLUMN, "column of the true state, null for anchors"),
    "task": of_type(_COLUMN, "column of the task, null for groups"),
    "cuts": count("random cuts asked for; 0 is the order of the log"),
    "seed": count("seed of the cuts"),
    "sizes": listed(
        record(
            "groups of one size, on average over cuts",
            {
                "rollouts": _SIZE,
                "groups": of_type("number", "groups"),
                "mixed": of_type("number", "groups with a success and a failure"),
                "tasks": of_type("number", "distinct tasks"),
            },
        ),
        "group sizes",
    ),
    "entries": listed(
        record(
            "one method under one setting",
            {
                "name": _NAME,
                "label": of_type("string", "of the method"),
                "setting": of_type("object", "swept options it depends on"),
                "score": _SCORE,
                "method": of_type("string", "name of the method"),
                "method_options": of_type("object", "resolved options of the method"),
            },
        ),
        "what is compared",
    ),
    "results": listed(
        record(
            "one entry on groups of one size",
            {
                "group_size": _SIZE,
                "name": _NAME,
                "credited_share": share("steps with a number other than 0"),
                "metrics": _METRICS,
                "errors": _ERRORS,
            },
        ),
        "fidelity needs --truth",
    ),
    "differences": listed(
        record("entry a less entry b, paired inside groups", _PAIR | {"metrics": _METRICS}),
        "every pair; empty without --truth",
    ),
    "agreement": listed(
        record(
            "entries a and b on the first cut",
            _PAIR
            | {
                "steps": count("steps to which both give a number"),
                "pearson": value("over steps"),
                "spearman": value("over steps"),
                "pairs": count("distinct (anchor, action)"),
                "pair_pearson": value("over distinct (anchor, action)"),
                "pair_spearman": value("over distinct (anchor, action)"),
                "both": count("steps to which both give a number other than 0"),
                "signs": share("of these, steps with equal signs"),
                "disagreements": listed(_DISAGREEMENT, "steps farthest apart"),
            },
        ),
        "every pair",
    ),
    "options": OPTIONS,
}

COMPARE_AUDIT: dict[str, Schema] = {
    "audit": record(
        "a logged number recomputed",
        {
            "column": of_type("string", "column of the logged number"),
            "method": of_type("string", "method that recomputes it"),
            "score": _SCORE,
            "like": of_type("string|null", "conventions"),
            "tolerance": of_type("number", "largest difference that passes"),
            "passed": of_type("boolean", "no row is beyond the tolerance"),
            "rows": count("rows with both numbers"),
            "rows_beyond": count("rows beyond the tolerance"),
            "rows_only_logged": count("rows without a recomputed number"),
            "rows_only_recomputed": count("rows without a logged number"),
            "largest_difference": of_type("number", "largest absolute difference"),
            "place": of_type("string", "where it is: file:line or file row"),
            "logged": of_type("number", "the logged number there"),
            "recomputed": of_type("number", "the recomputed number there"),
            "method_options": of_type("object", "resolved options of the method"),
            "other_conventions": of_type(
                "object", "largest difference under each --like, where the audit fails"
            ),
        },
    ),
    "options": OPTIONS,
}

_MEASURES = record(
    "means over groups",
    {name: _INTERVAL | {"description": meaning} for name, meaning in RUN_MEASURES.items()},
)

COMPARE_RUNS: dict[str, Schema] = {
    "runs": listed(
        record(
            "a run",
            {
                "name": of_type("string", "as it was given"),
                "inputs": count("files with rows"),
                "groups": count("groups"),
                "rollouts": count("rollouts"),
                "rows": count("rows"),
                "measures": _MEASURES,
            },
        ),
        "in the order given",
    ),
    "differences": listed(
        record(
            "a run less the first",
            {
                "run": of_type("string", "its name"),
                "less": of_type("string", "name of the first"),
                "measures": _MEASURES,
            },
        ),
        "of all runs but the first",
    ),
}
