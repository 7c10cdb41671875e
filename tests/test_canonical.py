"""When two observations, or two actions, are the same: content, declared rules, digests."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import xxhash
from helpers import Rows, annotated_rows, one, package_credit
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import canonical
from strategies import MIXED, NAN, STRUCTS, TEXTS

from crbc_cli.anchors.canonical import ANCHOR_KEY_VERSION, digest, encode
from crbc_cli.anchors.ids import _ODD, dense_ids
from crbc_cli.errors import OptionError

# --- the encoding ---------------------------------------------------------------------------------

EQUAL: list[tuple[Any, Any]] = [
    (1, 1.0),
    (0.0, -0.0),
    (NAN, float("-nan")),
    (2**70, float(2**70)),
    (Decimal("2.50"), 2.5),
    ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}),
    ({"page": "cart", "modal": None}, {"page": "cart"}),
    ({"x": {"y": None}}, {"x": {}}),
    ((1, "a"), [1, "a"]),
    (bytearray(b"png"), b"png"),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (1, True),
    (0, False),
    (0, None),
    ("", None),
    (False, None),
    ("1", 1),
    ("true", True),
    ("nan", NAN),
    ('{"a": 1}', {"a": 1}),
    ("[1]", [1]),
    ("null", None),
    ("a", b"a"),
    ("a", "a "),
    ([], {}),
    ([], None),
    ([None], []),
    ([1, 2], [2, 1]),
    ([[1, 2], [3, 4]], [[1, 2, 3, 4]]),
    ([[1, 2], [3, 4]], [1, 2, 3, 4]),
    ([[1], [2, 3]], [[1, 2], [3]]),
    ([[1], 2], [[1, 2]]),
    (["a", "b"], ["ab"]),
    ({"a": "b"}, {"ab": ""}),
    ({"a": {"b": 1}}, {"a": {}, "b": 1}),
    (2**53, 2**53 + 1),
    (2**70, 2**70 + 1),
    (0.1, 0.1 + 2**-55),
    (float("inf"), float("-inf")),
    (datetime.date(2026, 1, 2), "2026-01-02"),
    ("é", "e\u0301"),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=repr)
def test_equal_content(left: Any, right: Any) -> None:
    assert encode(left) == encode(right)
    assert encode([left]) == encode([right])
    assert digest({"x": left}) == digest({"x": right})


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=repr)
def test_different_content(left: Any, right: Any) -> None:
    assert encode(left) != encode(right)
    assert encode([left, 0]) != encode([right, 0])


NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.booleans()
VALUES = st.recursive(
    st.none() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"])) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=6,
)


@given(VALUES, VALUES)
@settings(max_examples=400, derandomize=True, deadline=None)
def test_encodings_are_equal_exactly_for_equal_content(left: Any, right: Any) -> None:
    """Against the oracle's hashable values."""
    assert (encode(left) == encode(right)) == (canonical(left) == canonical(right))
    assert encode(left) == encode(left)


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        dict(zip(["\ud800", "\ud801"], [{"a": 1}, {"b": 2}], strict=True)),
        float("inf"),
        10**400,
        Decimal("NaN"),
        datetime.datetime(2026, 1, 2, 3, 4),
        datetime.timedelta(seconds=1.5),
        object,
        memoryview(b"x"),
        {1: "number as a key"},
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_value_is_refused(value: Any) -> None:
    assert len(digest(value)) == 32


def test_deep_nesting_is_no_recursion() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert encode(value).startswith(b"l1:l1:")


# --- the digest, version 1 ------------------------------------------------------------------------

PINNED: list[tuple[Any, bytes, str]] = [
    ("kitchen", b"s7:kitchen", "1934c8f39360fc8cd6c4955385700b7a"),
    ("", b"s0:", "5c8eef17b21d97c28e748bb28b3d062b"),
    (1.0, b"i1;", "c3d8523c272c18fb5f79164a38c7d984"),
    (True, b"b1", "d0f8e90671ac306907ebb745a9af4972"),
    (None, b"n", "c311d21b3583875acbaa0f6724ae8b0a"),
    (0.5, b"f0.5;", "3e59de75feecc9a9c37690b92406cc97"),
    (NAN, b"fnan;", "56b850fd7dfc7a50270870c901caf159"),
    (-(2**70), b"i-1180591620717411303424;", "b02aa9cf3b6f29e493dba10ea55d68fc"),
    (b"kitchen", b"y7:kitchen", "3d08ad5df933af949f89c3c0ef3e6ccc"),
    ("Küche", b"s6:K\xc3\xbcche", xxhash.xxh3_128_hexdigest(b"s6:K\xc3\xbcche")),
    ([1, [2, None]], b"l2:i1;l2:i2;n", "369712759d8f39b5e0139e610b219be9"),
    (
        {"b": [1.5], "a": "x", "c": None},
        b"o2:s1:as1:xs1:bl1:f1.5;",
        "44dd1f79307e13b3e860040a28ced5fc",
    ),
]
"""Value, its encoding by the documented grammar, XXH3-128 of that. A change needs a new version."""


@pytest.mark.parametrize(("value", "encoding", "hex_digits"), PINNED, ids=lambda v: str(v)[:24])
def test_pinned_digests(value: Any, encoding: bytes, hex_digits: str) -> None:
    assert ANCHOR_KEY_VERSION == "v1"
    assert encode(value) == encoding
    assert xxhash.xxh3_128_hexdigest(encoding) == hex_digits
    assert digest(value) == hex_digits


def test_anchor_ids_in_other_processes(tmp_path: Path) -> None:
    """Whatever salts that process's hash() and however many threads it has."""
    rows = [one(i, value, "x", True) for i, value in enumerate(MIXED)]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for seed in ("0", "1", "random"):
        env = os.environ | {"PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": seed[0].replace("r", "2")}
        if seed == "0":
            del env["POLARS_MAX_THREADS"]
        output = tmp_path / f"{seed}.parquet"
        command = [sys.executable, "-m", "crbc_cli", "annotate", str(log), "--anchor-id"]
        subprocess.run([*command, "-o", str(output)], check=True, capture_output=True, env=env)
        assert pl.read_parquet(output)["anchor_id"].to_list() == [digest(v) for v in MIXED]


# --- from columns to anchors ----------------------------------------------------------------------


def visits(observations: Any, **cells: Any) -> Rows:
    """One-step rollouts at the given observations."""
    return [one(i, value, "x", True, **cells) for i, value in enumerate(observations)]


def classes(values: Any) -> list[int | None]:
    """Number of each value's class by first appearance; None stays."""
    numbers: dict[Any, int] = {}

    def key(value: Any) -> Any:
        return value if isinstance(value, datetime.date) else canonical(value)

    return [None if v is None else numbers.setdefault(key(v), len(numbers)) for v in values]


@pytest.mark.parametrize(
    "values",
    [
        [*TEXTS, None, *TEXTS[::-1], "", "null", "NaN"],
        [1, 2, None, 1, 0, -1, 2**62, 2**62 + 1, 2**62],
        [1.0, 2.5, NAN, None, 1.0, 0.1 + 0.2, 0.3, NAN, -0.0, 0.0, float("inf")],
        [True, False, None, True],
        [*STRUCTS, None, *STRUCTS],
        [[1, 2], [2, 1], None, [], [1, 2], [None]],
        [[[1, 2], [3, 4]], [[1, 2, 3, 4]], [[1, 2], [3, 4]], [[1], [2, 3, 4]]],
        [b"\x00png", b"", None, b"\x00png", b"\x00"],
        [datetime.datetime(2026, 1, 1), None, datetime.datetime(2026, 1, 1, 0, 0, 1)],
    ],
    ids=["text", "integer", "float", "flag", "struct", "list", "array", "bytes", "time"],
)
def test_anchors_of_arrow_columns(values: list[Any]) -> None:
    """Of any type: equal content is one anchor, null is none, and ids digest the content."""
    table = package_credit(visits(values), anchor_id=True)
    assert table["anchor"] == classes(values)
    assert table["reason"] == [None if v is not None else "no_anchor" for v in values]
    assert table["anchor_id"] == [None if v is None else digest(v) for v in values]


def test_anchors_of_json_lines(tmp_path: Path) -> None:
    values = [*MIXED, None, *MIXED[::-1], {"modal": None, "page": "cart"}, 1.0]
    table = annotated_rows(visits(values), tmp_path, ".jsonl", anchor_id=True)
    assert table["anchor"] == classes(values)
    assert table["anchor_id"] == [None if v is None else digest(v) for v in values]


@pytest.mark.parametrize("values", [TEXTS, STRUCTS, [1, 2.5, 3.0], [[1, 2], [], [[1]][0]]])
def test_containers_agree(values: list[Any], tmp_path: Path) -> None:
    """Parquet, JSON lines, and JSON lines whose column holds other types as well."""
    rows = visits(values)
    parquet = annotated_rows(rows, tmp_path, ".parquet", anchor_id=True)
    lines = annotated_rows(rows, tmp_path, ".jsonl", anchor_id=True)
    assert lines["anchor_id"] == parquet["anchor_id"]
    assert lines["anchor"] == parquet["anchor"]
    mixed = annotated_rows(visits([*values, {"a": 1}]), tmp_path, ".jsonl", anchor_id=True)
    assert mixed["anchor_id"][:-1] == parquet["anchor_id"]


def test_lone_surrogates_in_json_lines(tmp_path: Path) -> None:
    """They are replaced by U+FFFD with a warning, in text and inside objects."""
    path = tmp_path / "log.jsonl"
    texts = ('"\\ud800"', '"\\ufffd"', '{"a": "\\udfff"}', '{"a": "\\ufffd"}')
    template = '{"group_id": 1, "rollout_id": %d, "step": 0, "observation": %s, '
    rest = '"action": "x", "success": true}\n'
    path.write_text("".join(template % (i, text) + rest for i, text in enumerate(texts)))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    table = annotated_rows(rows, tmp_path, ".jsonl", anchor_id=True)
    assert table["anchor"] == [0, 0, 1, 1]
    assert table["anchor_id"][0] == digest("\ufffd")


def test_nan_in_json_lines(tmp_path: Path) -> None:
    values = [{"x": NAN}, NAN, {"x": NAN}, {"x": 1.0}, [NAN], None, NAN]
    table = annotated_rows(visits(values), tmp_path, ".jsonl")
    assert table["anchor"] == [0, 1, 0, 2, 3, None, 1]


@pytest.mark.parametrize("colliding", [False, True])
def test_ids_of_keys_in_scopes(colliding: bool) -> None:
    """Numbered by first occurrence per (scope, key), also where two of them mix to one word."""
    rng = np.random.default_rng(0)
    scope = np.sort(rng.integers(4, size=200))
    key = rng.integers(2**63, size=7, dtype=np.uint64)[rng.integers(7, size=200)]
    if colliding:  # undo what sets the scopes apart, so that equal keys of all scopes collide
        key = key ^ ((scope.astype(np.uint64) + np.uint64(1)) * _ODD)
    numbers: dict[tuple[int, int], int] = {}
    pairs = zip(scope.tolist(), key.tolist(), strict=True)
    assert dense_ids(scope, key).tolist() == [numbers.setdefault(p, len(numbers)) for p in pairs]


def test_composite_anchors(tmp_path: Path) -> None:
    """Of several columns, compared one by one; no anchor only where all of them are null."""
    pairs = [("a", "b"), ("a", None), (None, "a"), ("ab", ""), ("a", "b"), (None, None), ("", "ab")]
    rows = [one(i, o, "x", True, inventory=held) for i, (o, held) in enumerate(pairs)]
    options = {"anchor": ["observation", "inventory"], "anchor_id": True}
    table = package_credit(rows, **options)
    assert table["anchor"] == [0, 1, 2, 3, 0, None, 4]
    assert table["anchor_id"][0] == table["anchor_id"][4]
    assert len(set(table["anchor_id"])) == 6
    lines = annotated_rows(rows, tmp_path, ".jsonl", **options)
    assert lines["anchor_id"] == table["anchor_id"]
    nested = [one(i, {"room": o, "hand": held, "time": i}, "x", True) for i, (o, held) in
              enumerate(pairs)]  # fmt: skip
    paths = {"anchor": ["observation.room", "observation.hand"], "anchor_id": True}
    inside = annotated_rows(nested, tmp_path, ".jsonl", **paths)
    assert inside["anchor"] == table["anchor"]
    assert inside["anchor_id"] == table["anchor_id"]


# --- actions --------------------------------------------------------------------------------------


def actions_seen(values: list[Any], tmp_path: Path | None = None, **options: Any) -> int:
    """Distinct actions at one anchor."""
    rows = [one(i, "s", value, True) for i, value in enumerate(values)]
    table = (
        annotated_rows(rows, tmp_path, ".jsonl", **options)
        if tmp_path
        else package_credit(rows, **options)
    )
    [number] = set(table["actions"])
    return int(number)


def test_actions_by_content(tmp_path: Path) -> None:
    assert actions_seen(["go", "go", "go ", "Go", None, None, ""]) == 5
    call = {"name": "go", "args": {"to": "hall", "by": None}}
    same = {"args": {"to": "hall"}, "name": "go"}
    assert actions_seen([call, same, json.dumps(call), 1, 1.0, True, None], tmp_path) == 5


def test_rules_are_for_anchors_only() -> None:
    assert actions_seen(["Go", "go", " go"], normalize=["case", "strip"], mask=["o"]) == 3


def test_action_tag() -> None:
    texts = ["I think. <action>go\n</action>", "<action> go</action> <action>x</action>", "go"]
    assert actions_seen([*texts, "<action>stay</action>"], action_tag="action") == 2
    assert actions_seen([*texts, "<action>stay</action>"]) == 4


# --- declared rules -------------------------------------------------------------------------------

RULES: list[tuple[dict[str, Any], str, str, bool]] = [
    ({"normalize": ["strip"]}, " hall\n", "hall", True),
    ({"normalize": ["strip"]}, "the  hall", "the hall", False),
    ({"normalize": ["whitespace"]}, "the \t hall\n\n", "the hall", True),
    ({"normalize": ["whitespace"]}, "thehall", "the hall", False),
    ({"normalize": ["case"]}, "HALL Ü", "hall ü", True),
    ({"normalize": ["case"]}, "hall", "hall ", False),
    ({"normalize": ["nfc"]}, "cafe\u0301", "café", True),
    ({"normalize": ["nfc"]}, "café", "cafe", False),
    ({"normalize": ["strip", "case"]}, " Hall", "hall", True),
    ({"mask": [r"\[\d\d:\d\d\]"]}, "[12:01] hall", "[13:59] hall", True),
    ({"mask": [r"\[\d\d:\d\d\]"]}, "[12:01] hall", "[13:59] cell", False),
    ({"mask": [r"\d+", "id=x"]}, "id=x 1 hall", " 22 hall", True),
    ({"mask": [r"^\d+ "], "normalize": ["strip"]}, "7 hall", " hall", True),
]


@pytest.mark.parametrize(("options", "left", "right", "same"), RULES)
def test_rules(options: dict[str, Any], left: str, right: str, same: bool, tmp_path: Path) -> None:
    """On a text column, in a struct, and inside JSON; ids follow. Without rules they differ."""
    for values in ([left, right], [{"page": [left]}, {"page": [right]}]):
        rows = visits(values)
        tables = [package_credit(rows, anchor_id=True, **options)]
        tables += [
            annotated_rows(visits(values + more), tmp_path, ".jsonl", anchor_id=True, **options)
            for more in ([], [1, "other", None])
        ]
        for table in tables:
            assert (table["anchor"][0] == table["anchor"][1]) == same
            assert table["anchor_id"][:2] == tables[0]["anchor_id"][:2]
            assert (table["anchor_id"][0] == table["anchor_id"][1]) == same
        assert package_credit(rows)["anchor"] == [0, 1]


def test_rules_run_in_their_own_order() -> None:
    """mask, nfc, strip, whitespace, case, in whatever order they are given."""
    rows = visits([" 12 HALL  A", "hall a"])
    for rules in (["strip", "whitespace", "case"], ["case", "whitespace", "strip"]):
        assert package_credit(rows, mask=[r"\d+"], normalize=rules)["anchor"] == [0, 0]


def test_dropped_paths(tmp_path: Path) -> None:
    """In objects, in lists of objects, and in text that holds JSON."""
    values = [
        {"page": "cart", "meta": {"time": 1, "user": "a"}},
        {"page": "cart", "meta": {"time": 2, "user": "a"}},
        {"page": "cart", "meta": {"time": 2, "user": "b"}},
        {"page": "cart", "time": 3, "meta": {"user": "a"}},
    ]
    rows = visits(values)
    texts = visits(json.dumps(value) for value in values)
    assert package_credit(texts)["anchor"] == [0, 1, 2, 3]
    for table in (
        package_credit(texts, drop=["meta.time"]),
        package_credit(rows, drop=["meta.time"]),
        annotated_rows(rows, tmp_path, ".jsonl", drop=["meta.time"]),
    ):
        assert table["anchor"] == [0, 0, 1, 2]
    assert package_credit(rows, drop=["meta", "time"])["anchor"] == [0] * 4
    steps = visits([[{"t": 1, "say": "a"}], [{"t": 2, "say": "a"}], [{"t": 2, "say": "b"}]])
    assert package_credit(steps, drop=["t"])["anchor"] == [0, 0, 1]


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(OptionError, match="--mask"):
        package_credit(visits(["a"]), mask=["("])
    with pytest.raises(OptionError, match="--normalize"):
        package_credit(visits(["a"]), normalize=["upper"])
