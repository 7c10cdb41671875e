"""Blocks of JSON lines decoded by polars give what the careful decoder gives."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from crbc_cli.errors import CrbcError
from crbc_cli.logs.columns import Field, conform
from crbc_cli.logs.formats import jsonl, lines, plain
from crbc_cli.logs.formats.lines import LineReport
from crbc_cli.logs.sources import Source

FIELDS = [
    Field("group_id", "group_id", "id", True),
    Field("step", "step", "integer", True),
    Field("observation", "observation", "value", True),
    Field("action", "action", "value", True),
    Field("success", "success", "flag"),
    Field("reward", "reward", "number"),
    Field("rule:reward", "reward", "scalar"),
    Field("score", "score", "number"),
    Field("by:tag", "tag", "label"),
    Field("absent", "absent", "flag"),
]

Read = tuple[pl.DataFrame | str, dict[str, str], LineReport]


def read(path: Path) -> Read:
    """All batches of a file after conforming: (rows or the error, kinds, what was tolerated)."""
    source, report = Source(str(path), path, "jsonl"), LineReport()
    frames, kinds = [], {}
    by_name = {f.name: f for f in FIELDS}
    try:
        for batch in jsonl.read(source, FIELDS, False, report):
            columns = [
                conform(c, by_name[c.name], batch.where)
                for c in batch.frame.collect()
                if c.name in by_name
            ]
            number = batch.rows
            if number is None:
                height = batch.frame.select(pl.len()).collect().item()
                number = pl.int_range(height, eager=True) + batch.first_row
            frames.append(pl.DataFrame([number.alias("source_row"), *columns]))
            for name, kind in batch.kinds.items():
                kinds[name] = "json" if "json" in (kind, kinds.get(name)) else kind
        empty = pl.DataFrame(schema={"source_row": pl.Int64})
        return pl.concat([empty, *frames], how="diagonal_relaxed"), kinds, report
    except (CrbcError, pl.exceptions.PolarsError) as error:
        return str(error), {}, report


def both(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Read, Read, int]:
    """(fast, careful, number of plain blocks)."""
    taken = []
    fast = plain.PlainBlocks.frame

    def counted(
        self: plain.PlainBlocks, block: bytes, lines: Callable[[], int]
    ) -> pl.DataFrame | None:
        frame = fast(self, block, lines)
        taken.append(frame is not None)
        return frame

    with monkeypatch.context() as patch:
        patch.setattr(plain.PlainBlocks, "frame", counted)
        quick = read(path)
    with monkeypatch.context() as patch:
        patch.setattr(plain.PlainBlocks, "frame", lambda self, block, lines: None)
        slow = read(path)
    return quick, slow, sum(taken)


def assert_same(quick: Read, slow: Read) -> None:
    """The same but for columns of nulls alone, which the fast way may not have noticed."""
    if isinstance(slow[0], str) or isinstance(quick[0], str):
        assert str(quick[0]) == str(slow[0])
    else:
        assert set(quick[0].columns) <= set(slow[0].columns)
        filled = sorted(c.name for c in slow[0] if c.null_count() < slow[0].height)
        assert_frame_equal(quick[0].select(filled), slow[0].select(filled))
        assert quick[1].items() <= slow[1].items()
    assert quick[2] == slow[2]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks in a few lines, every one of them tried."""
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 600)
    monkeypatch.setattr(plain, "_FEWEST_LINES", 1)
    monkeypatch.setattr(plain, "_SAMPLE_LINES", 2)
    monkeypatch.setattr(plain, "_PATIENCE", 1000)


def row(**changes: Any) -> dict[str, Any]:
    record = {
        "group_id": "g1",
        "step": 3,
        "observation": "You see a door.",
        "action": "open door",
        "success": None,
        "reward": 0.5,
        "tag": "t",
        "other": {"deep": [1, 2.5, None, "x"]},
    }
    return record | changes


def write(path: Path, records: list[Any]) -> Path:
    text = "".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


words = st.sampled_from(
    [
        *("", "go", "true", "false", "null", "5", "-1", "007", "5.0", "1e3", "{}", '{"a": 1}'),
        *("[1, 2]", "[x", "- dash", "é", "😀", 'a "quoted" \\ word', "line\nbreak", "tab\t", " "),
    ]
)
texts = words | st.text(max_size=8).filter(lambda t: not any(0xD800 <= ord(c) < 0xE000 for c in t))
numbers = st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False, width=64)
large = st.sampled_from([2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**30])
odd_values = st.one_of(
    st.none(), st.booleans(), texts, numbers, large, st.just([1, "x"]), st.just({"a": 1.0})
)
odd_lines = st.sampled_from(
    [
        "\n",
        "  \n",
        '{"group_id": "g1", "step": 1, "observation": "\\ud800", "action": "a"}\n',
        '{"group_id": "g1", "step": 1, "observation": "\\u0000", "action": "a"}\n',
        '{"group_id": "g1", "step": 1, "observation": "\\ud83d\\ude00", "action": "a"}\n',
        '{"group_id": "g1", "step": 1, "observation": "o", "action": "a", "reward": NaN}\n',
        '{"group_id": "g1", "step": 1, "observation": "o", "action": "a", "x": -Infinity}\n',
        '{"group_id": "g1", "step": 1, "observation": "o", "action": "a", "reward": 1e999}\n',
        '{"group_id": "g1", "step": 1, "observation": "o", "action": "a", "x": 01}\n',
        '{"group_id": "g1", "step": 1, "observation": "\udcff", "action": "a"}\n',
        '{"group_id": "g1", "step": 1, "observation": "o", "action": "a"}\r\n',
        '{"group_id": "g1", "step": 1, "observation": "o", "action": "a"} \n',
        '{"group_id": "g1", "step": 1,\n "observation": "o", "action": "a"}\n',
        '{"group_id": "g1"} {"step": 1}\n',
        "[1]\n",
        '"text"\n',
        '{"group_id": "g1", "step": 1, "observation": "tor',
        "\0\0\0\n",
        '{"g\\u0072oup_id": "g1", "step": 1, "observation": "o", "action": "a"}\n',
    ]
)


@st.composite
def logs(draw: st.DrawFn) -> list[Any]:
    """Plain records of one writer, some of them with an odd value or in place of an odd line."""
    identity = draw(st.sampled_from([texts, st.integers(-5, 5)]))
    rewards = draw(st.sampled_from([numbers, st.integers(0, 1), st.sampled_from([0, 1.0])]))
    columns = {
        "group_id": identity,
        "step": st.integers(0, 99),
        "observation": texts,
        "action": texts | st.none(),
        "success": draw(st.sampled_from([st.booleans(), st.integers(0, 1)])) | st.none(),
        "reward": rewards | st.none(),
        "score": st.integers(0, 1) | st.floats(0, 1),
        "tag": draw(st.sampled_from([texts, st.integers(), st.just([1, "x"])])),
        "other": odd_values,
    }
    always = {"group_id", "step", "observation", "action"}
    kept = [c for c in columns if c in always or draw(st.booleans())]
    records: list[Any] = draw(
        st.lists(st.fixed_dictionaries({c: columns[c] for c in kept}), min_size=1, max_size=30)
    )
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(records) - 1))
        kind = draw(st.sampled_from(["value", "missing", "line"]))
        if kind == "line" or not isinstance(records[at], dict):
            records[at] = draw(odd_lines)
        elif kind == "missing":
            records[at].pop(draw(st.sampled_from(kept)), None)
        else:
            records[at] |= {draw(st.sampled_from(sorted(columns))): draw(odd_values)}
    return records


@given(records=logs())
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_plain_and_careful_decoding_agree(
    records: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, slow, _ = both(write(tmp_path / "log.jsonl", records), monkeypatch)
    assert_same(quick, slow)


def test_plain_logs_are_decoded_by_polars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [row(step=i, success=i % 9 == 8, reward=i / 7) for i in range(60)]
    quick, slow, taken = both(write(tmp_path / "log.jsonl", records), monkeypatch)
    assert taken >= 10
    assert_same(quick, slow)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("observation", 5),
        ("observation", True),
        ("observation", {"b": 1.0}),
        ("observation", [1, 2]),
        ("group_id", 7),
        ("step", 3.0),
        ("step", True),
        ("success", 1),
        ("reward", True),
        ("reward", "0.5"),
        ("tag", 1.5),
    ],
)
def test_a_value_of_another_type_is_never_taken_for_plain(
    member: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands where no sample looks."""
    records = [row(step=i) for i in range(40)]
    records[17] = row(**{member: value})
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 1 << 20)
    quick, slow, taken = both(write(tmp_path / "log.jsonl", records), monkeypatch)
    assert taken == 0
    assert_same(quick, slow)


@pytest.mark.parametrize("text", ["12", "-3", "1.5", "true", '{"a": 1}', "[1, 2]", "{", "-"])
def test_texts_that_look_like_other_json_stay_plain(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [row(step=i, observation=text, group_id=text) for i in range(40)]
    quick, slow, taken = both(write(tmp_path / "log.jsonl", records), monkeypatch)
    assert taken > 5
    assert_same(quick, slow)
    assert isinstance(quick[0], pl.DataFrame)
    assert quick[0]["observation"].unique().to_list() == [text]


def test_types_that_drift_end_the_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_PATIENCE", 3)
    tried = []
    monkeypatch.setattr(plain, "_decode", lambda block, dtypes: tried.append(block))
    read(write(tmp_path / "log.jsonl", [row(step=i) for i in range(80)]))
    assert len(tried) == 3


def test_a_lenient_polars_is_not_relied_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain._polars_is_strict()
    monkeypatch.setattr(plain, "_decode", lambda block, dtypes: pl.DataFrame({"a": [1]}))
    assert not plain._polars_is_strict.__wrapped__()
