"""Words for describing JSON: each makes a piece of JSON Schema (2020-12)."""

from typing import Any

from crbc_cli.tables import GROUP_STATUSES

__all__ = [
    "DEPTH",
    "OPTIONS",
    "ROLLOUT_ID",
    "ROLLOUT_KEY",
    "STATUS",
    "Schema",
    "count",
    "listed",
    "of_type",
    "record",
    "share",
    "value",
]

Schema = dict[str, Any]


def of_type(kind: str, meaning: str, **more: Any) -> Schema:
    """A plain value; `kind` is a JSON type, several are joined by a bar."""
    types = kind.split("|")
    return {"type": types if len(types) > 1 else kind, "description": meaning, **more}


def listed(item: Schema, meaning: str) -> Schema:
    """An array."""
    return {"type": "array", "description": meaning, "items": item}


def record(meaning: str, fields: dict[str, Schema], *, null: bool = False) -> Schema:
    """An object that has all of `fields`, and may have more."""
    return {
        "type": ["object", "null"] if null else "object",
        "description": meaning,
        "properties": fields,
        "required": list(fields),
    }


def count(meaning: str) -> Schema:
    """A whole number from 0."""
    return of_type("integer", meaning, minimum=0)


def share(meaning: str) -> Schema:
    """A share in [0, 1]."""
    return of_type(
        "number|null", f"{meaning}; null where there is nothing to divide by", minimum=0, maximum=1
    )


def value(meaning: str) -> Schema:
    """A number that may be missing."""
    return of_type("number|null", meaning)


OPTIONS = of_type("object", "resolved options by name, as in an output's metadata")
DEPTH = {
    "description": "closure depth",
    "oneOf": [{"type": "integer", "minimum": 0}, {"const": "inf"}],
}
STATUS = of_type("string", "as in the credit table", enum=list(GROUP_STATUSES))
ROLLOUT_ID = of_type("string|integer", "as in the input")
ROLLOUT_KEY = {"source_file": of_type("string", "the input"), "rollout_id": ROLLOUT_ID}
