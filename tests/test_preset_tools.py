"""The tool-calling preset on rollouts written by hand in the formats of tau-bench and AppWorld."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import ROOT
from helpers import package_credit, prepared, write_log

import crbc_cli
from crbc_cli.anchors.choose import detect_preset
from crbc_cli.anchors.values import tool_call
from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import OptionError
from crbc_cli.notes import Notes

Rows = list[dict[str, Any]]

LINES = (ROOT / "tests" / "data" / "tools_handwritten.jsonl").read_text("utf-8").splitlines()
ROWS: Rows = [json.loads(line) for line in LINES]


def group(name: str) -> Rows:
    return [row for row in ROWS if row["group_id"] == name]


def seen(rows: Rows) -> Rows:
    return [{name: cell for name, cell in row.items() if name != "state"} for row in rows]


def partition(log: Prepared, labels: list[Any]) -> tuple[int, int, int]:
    """Distinct anchors, labels, and pairs of both; equal if anchors and labels are one to one."""
    found = pl.DataFrame(
        {"anchor": log.anchor_key, "label": pl.Series(labels).gather(log.rollouts.row)}
    ).filter(pl.Series(log.has_anchor))
    return found["anchor"].n_unique(), found["label"].n_unique(), found.n_unique()


@pytest.mark.parametrize("name", ["desk", "player"])
def test_anchors_are_what_was_done_and_asked(name: str) -> None:
    rows = group(name)
    anchors, states, pairs = partition(
        prepared(seen(rows), preset="tool-calling"), [row["state"] for row in rows]
    )
    assert anchors == states == pairs > 4


def test_wording_and_argument_order_leave_no_mark() -> None:
    """Rollouts a and b of the desk ask in other words and write arguments in another order."""
    numbers = package_credit(seen(group("desk")), preset="tool-calling")
    visits = [row["rollout_id"] for row in group("desk")]
    a, b = (
        [n for n, r in zip(numbers["anchor"], visits, strict=True) if r == name] for name in "ab"
    )
    assert b == [0, 1, 2, 3]
    assert a == [0, 1, 1, 2, 2, 3, 4]


def test_a_failed_call_changes_nothing() -> None:
    """The order that was not found is no anchor of its own, and its call no write."""
    rows = group("desk")
    [failed] = [i for i, row in enumerate(rows) if row["observation"].startswith("Error")]
    anchors = package_credit(seen(rows), preset="tool-calling")["anchor"]
    assert anchors[failed] == anchors[failed - 1]


def test_thoughts_are_no_steps() -> None:
    numbers = package_credit(seen(group("desk")), preset="tool-calling", thoughts="null")
    [thought] = [i for i, row in enumerate(group("desk")) if row["action"].startswith("think")]
    assert numbers["reason"][thought] == "not_a_step"
    assert numbers["anchor"][thought + 1] == numbers["anchor"][8]


# --- other notations of the same calls ------------------------------------------------------------


def openai_message(action: str, number: int) -> dict[str, Any]:
    """The assistant message of an action, with the call id that such logs have."""
    call = re.fullmatch(r"(\w+)\((\{.*\})\)", action)
    if call is None:
        return {"role": "assistant", "content": action, "tool_calls": None}
    function = {"name": call[1], "arguments": call[2]}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def with_messages(rows: Rows) -> Rows:
    """The log with messages in place of texts: the whole history, and the assistant's answer."""
    result = []
    history: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        if row["step"] == 0:
            history = [{"role": "system", "content": "Be kind."}]
        role = "tool" if history[-1].get("tool_calls") else "user"
        history = [*history, {"role": role, "content": row["observation"]}]
        answer = openai_message(row["action"], number)
        result.append(row | {"observation": history, "action": answer})
        history = [*history, answer]
    return result


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_messages_give_the_same_anchors(suffix: str, tmp_path: Path) -> None:
    rows = seen(group("desk"))
    path = write_log(with_messages(rows), tmp_path / f"log{suffix}")
    output = tmp_path / "credit.parquet"
    crbc_cli.annotate([str(path)], str(output), preset="tool-calling")
    ours, theirs = pl.read_parquet(output), package_credit(rows, preset="tool-calling")
    for name in ("anchor", "visits", "actions", "reason"):
        assert ours[name].to_list() == theirs[name], name


CALL = ["move", {"to": "desk", "fast": True}]
LAST = {"function": {"name": "move", "arguments": CALL[1]}}


@pytest.mark.parametrize(
    "written",
    [
        'move({"to": "desk", "fast": true})',
        ' move( {"fast":true,"to":"desk"} ) ',
        {"name": "move", "arguments": '{"fast": true, "to": "desk"}'},
        {"name": "move", "arguments": {"fast": True, "to": "desk"}},
        '{"name": "move", "parameters": {"fast": true, "to": "desk"}}',
        {"id": "c1", "type": "function", "function": {"name": "move", "arguments": CALL[1]}},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "stay"}}, LAST]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I go."},
                {"type": "tool_use", "id": "t1", "name": "move", "input": CALL[1]},
            ],
        },
        'So:\n<tool_call>\n{"name": "move", "arguments": {"to": "desk", "fast": true}}</tool_call>',
    ],
)
def test_one_call_in_many_notations(written: Any) -> None:
    assert tool_call(written) == CALL


@pytest.mark.parametrize(
    "written",
    [
        "I go to the desk.",
        "Use move(x) to go",
        "move(desk)",
        '["a", "b"]',
        "[1, 2]",
        {"x": 1},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
        "[" * 400,
        None,
        7,
    ],
)
def test_what_is_no_call_stays(written: Any) -> None:
    expected = written["content"] if isinstance(written, dict) and "content" in written else written
    assert tool_call(written) == expected


def test_a_call_without_arguments() -> None:
    assert tool_call("look()") == ["look", {}]
    assert tool_call({"function": {"name": "look", "arguments": ""}}) == ["look", {}]


# --- reads and writes -----------------------------------------------------------------------------


def is_write(action: str, tmp_path: Path) -> bool:
    """Whether a successful action leaves a mark in `writes`."""
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'schema = 1\nname = "w"\ntitle = "W"\nextends = "tool-calling"\nkey = ["writes"]\n', "utf-8"
    )
    rows = [
        {
            "group_id": "g",
            "rollout_id": 0,
            "step": step,
            "observation": "fine",
            "action": said,
            "success": True,
            "done": step == 1,
        }
        for step, said in enumerate([action, "Bye."])
    ]
    return package_credit(rows, rules=str(rules))["anchor"] == [0, 1]


@pytest.mark.parametrize(
    "action",
    [
        'get_user({"id": 1})',
        'searchFlights({"to": "SEA"})',
        'list({"all": true})',
        'spotify__show_account({"id": 1})',
        'db.query({"sql": "select 1"})',
        'calculate({"expression": "1 + 1"})',
        "print(apis.spotify.show_liked_songs(page_index=0))",
        "Would you like to cancel it?",
    ],
)
def test_reads_leave_no_mark(action: str, tmp_path: Path) -> None:
    assert not is_write(action, tmp_path)


@pytest.mark.parametrize(
    "action",
    [
        'update_user({"id": 1})',
        'listen({"to": "me"})',
        'getaway({"to": "SEA"})',
        'spotify__like_song({"id": 1})',
        'transfer_to_human_agents({"summary": "sorry"})',
        "apis.spotify.like_song(song_id=1)",
        "for song in songs:\n    apis.spotify.like_song(song_id=song)",
    ],
)
def test_writes_do(action: str, tmp_path: Path) -> None:
    assert is_write(action, tmp_path)


# --- recognising such logs ------------------------------------------------------------------------


def sample(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame(
        {"observation": [r["observation"] for r in rows], "action": [r["action"] for r in rows]}
    )


@pytest.mark.parametrize("name", ["desk", "player"])
def test_auto_recognises_calls(name: str) -> None:
    assert detect_preset([sample(group(name))], Notes()) == "tool-calling"


def test_auto_does_not_take_plain_games_for_tools() -> None:
    rows = [{"observation": "You are in a hall.", "action": "open door (slowly)"}] * 9
    with pytest.raises(OptionError, match="looks like none of the presets"):
        detect_preset([sample(rows)], Notes())
    with pytest.raises(OptionError, match="looks like none of the presets"):
        detect_preset([], Notes())
