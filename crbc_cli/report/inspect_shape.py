"""JSON shape of `crbc inspect --json`."""

from crbc_cli.report.shapes import OPTIONS, Schema, count, listed, of_type, record

__all__ = ["INSPECT"]

_COLUMN = record(
    "a column of its step table",
    {
        "name": of_type("string", "as logged"),
        "dtype": of_type("string", "type; JSON is text that holds one document a row"),
        "nulls": count("rows without a value"),
    },
)
_SIZES = {
    "type": ["object", "null"],
    "description": "rollouts in a group -> number of such groups",
    "additionalProperties": {"type": "integer"},
}
_LENGTHS = {
    "type": ["array", "null"],
    "description": "rows of the shortest, the median and the longest rollout",
    "items": {"type": "number"},
}
_INPUT = record(
    "an input",
    {
        "source_file": of_type("string", "the path as given, - for stdin"),
        "container": of_type("string", "how its records are held"),
        "bytes": count("size as given"),
        "format": of_type("string", "what --from calls it; table: a step table"),
        "title": of_type("string", "its format for people"),
        "lacks": of_type("string", "what is missing for a closure; empty: nothing"),
        "columns": listed(_COLUMN, "in order"),
        "rows": count("steps"),
        "groups": of_type("integer|null", "null: no column says so"),
        "rollouts": of_type("integer|null", "null: no column says so"),
        "group_sizes": _SIZES,
        "rollout_lengths": _LENGTHS,
        "head": listed({"type": "object"}, "first rows, long values cut"),
    },
)
INSPECT: dict[str, Schema] = {
    "inputs": listed(_INPUT, "in order"),
    "notes": listed({"type": "object"}, "what was inferred or tolerated"),
    "options": OPTIONS,
}
