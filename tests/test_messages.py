"""Lists of chat messages as observations: the message that counts, and anchors that grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import ROOT, crbc
from helpers import approx, package_credit, table_of, write_log

import crbc_cli
from crbc_cli.anchors.choose import detect_preset
from crbc_cli.anchors.values import VIEWS
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.growth import say_growing_anchors
from crbc_cli.engine.load import load
from crbc_cli.engine.prepare import prepare
from crbc_cli.logs.sources import Source
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

Rows = list[dict[str, Any]]

CASE = ROOT / "tests" / "cases" / "history-in-observation.jsonl"
CHAT = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": "Find the key."},
    {"role": "assistant", "content": "look"},
    {"role": "tool", "content": "A hall."},
    {"role": "assistant", "content": None},
]


# --- views ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "found"),
    [
        ("last-user-message", "Find the key."),
        ("last-tool-result", "A hall."),
        ("last-message", "A hall."),
    ],
)
def test_views_take_one_message(view: str, found: str) -> None:
    assert VIEWS[view](CHAT) == found
    assert VIEWS[view](CHAT[:1]) is None


def test_other_names_of_the_same_roles() -> None:
    """AgentGym's `from`/`value`, OpenAI's older `function`."""
    chat = [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "look"}]
    assert VIEWS["last-message"](chat) == "Hi."
    assert VIEWS["last-message"]([*chat, {"role": "function", "content": "A hall."}]) == "A hall."


@pytest.mark.parametrize("value", ["A hall.", [1, 2], [{"from": "JFK", "to": "SEA"}], {"x": 1}, []])
def test_what_is_no_chat_stays(value: Any) -> None:
    assert VIEWS["last-message"](value) is value


def case_credit(folder: Path, suffix: str, anchor: str) -> pl.DataFrame:
    rows = [json.loads(line) for line in CASE.read_text("utf-8").splitlines()]
    path = write_log(rows, folder / f"log{suffix}")
    output = str(folder / "credit.parquet")
    crbc_cli.annotate([str(path)], output, force=True, anchor=[anchor])
    return pl.read_parquet(output)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_history_in_observation(suffix: str, tmp_path: Path) -> None:
    """Whole messages give two anchors and credit 0; the last tool result gives one,
    +1 and -1, V = 0.98/2. Objects in JSONL, a list of structs in Parquet."""
    whole = case_credit(tmp_path, suffix, "messages")
    assert whole["anchor"].to_list() == [0, 1]
    assert whole["credit"].to_list() == [0, 0]
    last = case_credit(tmp_path, suffix, "last-tool-result")
    assert last["anchor"].to_list() == [0, 0]
    assert last["step_credit"].to_list() == approx([1, -1])
    assert last["state_value"].to_list() == approx([0.49, 0.49])


def test_a_row_without_such_a_message_has_no_anchor() -> None:
    rows = [row(i, messages=CHAT[: 2 + 2 * i]) for i in range(2)]
    numbers = package_credit(rows, anchor=["last-tool-result"])
    assert numbers["anchor"] == [None, 0]
    assert numbers["reason"][0] == "no_anchor"


def row(rollout: int, **cells: Any) -> dict[str, Any]:
    whole = {"group_id": "g", "rollout_id": rollout, "step": 0, "done": True, "success": True}
    return whole | {"action": "a"} | cells


# --- the chat preset ------------------------------------------------------------------------------


def chat_anchors(*observations: Any) -> list[Any]:
    rows = [row(i, observation=said) for i, said in enumerate(observations)]
    return package_credit(rows, preset="chat")["anchor"]


def test_the_chat_preset_normalises_the_last_message() -> None:
    plain = "You see caf\u00e9 doors."
    same = ["Turn 12:\nYou see cafe\u0301  doors. (reward: -0.5)", " You see\tcaf\u00e9 doors.\n"]
    assert chat_anchors(plain, *same, "You see caf\u00e9 door.") == [0, 0, 0, 1]


def test_the_chat_preset_leaves_the_history_out() -> None:
    later = [*CHAT, {"role": "user", "content": "Find the key. "}]
    texts = [json.dumps(CHAT[:2]), json.dumps(later), json.dumps(CHAT)]
    assert chat_anchors(*texts) == [0, 0, 1]
    assert chat_anchors(CHAT[:2], later, CHAT) == [0, 0, 1]
    assert chat_anchors(*texts[:2], "Find the key.") == [0, 0, 0]


def test_json_that_is_no_chat_stays_text() -> None:
    """A tool's JSON reply, list or object, is compared as it is written."""
    assert chat_anchors('[{"from": "JFK"}]', '[{"from":"JFK"}]', '{"a": 1}', " ") == [0, 1, 2, None]


def test_auto_recognises_lists_of_messages_in_any_file(tmp_path: Path) -> None:
    texts = pl.DataFrame({"observation": [json.dumps(CHAT)] * 3, "action": ["look"] * 3})
    assert detect_preset([texts], Notes()) == "chat"
    for suffix in (".jsonl", ".parquet"):
        path = write_log([row(i, messages=CHAT) for i in range(2)], tmp_path / f"log{suffix}")
        ended = crbc("coverage", path, "--preset", "auto", "--anchor", "messages")
        assert "--preset auto takes chat: 100% of observations" in ended.stderr


# --- anchors that grow ----------------------------------------------------------------------------


def growing(rollouts: int, flat: int, steps: int = 4) -> Rows:
    """Rollouts whose texts grow with the step, and `flat` ones whose texts do not."""
    return [
        {
            "group_id": "g",
            "rollout_id": r,
            "step": s,
            "observation": f"{r} " + "x" * (10 if r < flat else 10 * (s + 1)),
            "action": "a",
            "done": s == steps - 1,
            "success": True,
        }
        for r in range(rollouts)
        for s in range(steps)
    ]


def told(rows: Rows, **options: Any) -> list[str]:
    """What is said about the growth of a log's anchors."""
    settings, notes = Settings.from_flat(options), Notes()
    frame = pl.from_arrow(table_of(rows))
    assert isinstance(frame, pl.DataFrame)
    source = Source("<table>", Path(), "memory", frame=frame)
    loaded = load([source], settings, Clock(), notes, lengths=True)
    say_growing_anchors(prepare(loaded, settings, Clock()))
    return [n.message for n in notes.items if n.code == "anchor_growth"]


def test_growing_anchors_are_told_with_their_lengths() -> None:
    """Ten rollouts of "r xxx": 2 + 10, 20, 30, 40 bytes; the median of all is 27."""
    [message] = told(growing(10, flat=0))
    assert message.startswith("the anchor grows with the step in 10 of 10 rollouts")
    assert "12 to 42 bytes, median 27, 90 % up to 42" in message
    assert "median 12 at a rollout's first step, 42 at its last" in message


def test_more_than_four_rollouts_in_five_must_grow() -> None:
    assert told(growing(10, flat=2)) == []
    assert len(told(growing(11, flat=2))) == 1


def test_two_steps_do_not_make_a_trend() -> None:
    assert told(growing(10, flat=0, steps=2)) == []
    mixed = [*growing(1, flat=0), *(r | {"group_id": "h"} for r in growing(10, 10, steps=2))]
    assert len(told(mixed)) == 1


def test_only_texts_in_the_key_count(tmp_path: Path) -> None:
    """The tool-calling anchor has no text in it, and the rules may cut what grows."""
    assert told(growing(10, flat=0), preset="tool-calling") == []
    assert told(growing(10, flat=0), mask=["x+"]) == []


@pytest.mark.parametrize("command", ["annotate", "coverage"])
def test_commands_warn(command: str, tmp_path: Path) -> None:
    path = write_log(growing(10, flat=0), tmp_path / "log.parquet")
    more = ["-o", tmp_path / "credit.parquet"] if command == "annotate" else []
    ended = crbc(command, path, *more)
    assert "warning: the anchor grows with the step in 10 of 10 rollouts" in ended.stderr
    assert ended.code == 0
    assert crbc(command, path, *more, "--strict", "--force").code in (1, 2)


def test_histories_grow_and_last_messages_do_not(tmp_path: Path) -> None:
    rows: Rows = []
    for rollout in range(3):
        chat = CHAT[:1]
        for step in range(5):
            chat = [*chat, {"role": "user", "content": f"place {step % 2}"}]
            cells = {"rollout_id": rollout, "step": step, "done": step == 4, "messages": chat}
            rows.append(row(rollout) | cells)
            chat = [*chat, {"role": "assistant", "content": "go"}]
    for suffix in (".jsonl", ".parquet"):
        path = write_log(rows, tmp_path / f"log{suffix}")
        grows = crbc("coverage", path, "--anchor", "messages").stderr
        assert "the anchor grows with the step in 3 of 3 rollouts" in grows
        assert "grows" not in crbc("coverage", path, "--anchor", "last-message").stderr
