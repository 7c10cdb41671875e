"""Message lists as steps: the rule and the shapes of messages."""

from __future__ import annotations

import pytest

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.conversation import (
    action_of_call,
    conversation_rows,
    prompt_text,
    turns,
    without_thoughts,
)

HALL = [
    {"role": "system", "content": "You are in a house."},
    {"role": "user", "content": "hall"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "go", "arguments": '{"to": 1}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "desk"},
    {"role": "user", "content": "hurry"},
    {"role": "assistant", "content": "<think>lamp?</think>take lamp"},
    {"role": "tool", "content": "taken"},
]


def test_one_assistant_message_is_one_step() -> None:
    first, second = turns(HALL, "x")
    assert (first.index, first.observation, first.action) == (2, "hall", 'go({"to": 1})')
    assert (first.reply, first.response) == ("desk\nhurry", None)
    assert (second.observation, second.action, second.reply) == (
        "desk\nhurry",
        "take lamp",
        "taken",
    )
    assert second.response == "<think>lamp?</think>take lamp"
    assert prompt_text(HALL, "x") == "You are in a house.\nhall"


def test_a_second_answer_in_a_row_sees_the_same_message() -> None:
    talk = [{"role": "user", "content": "a"}, *({"role": "assistant", "content": c} for c in "bc")]
    assert [(t.observation, t.action, t.reply) for t in turns(talk, "x")] == [
        ("a", "b", None),
        ("a", "c", None),
    ]


def test_examples_in_the_prompt_are_no_steps() -> None:
    talk = [
        {"from": "human", "value": "rules"},
        {"from": "gpt", "value": "OK", "loss": False},
        {"from": "human", "value": "hall"},
        {"from": "gpt", "value": "go", "loss": True},
    ]
    [turn] = turns(talk, "x", lambda message: message["loss"] is not False)
    assert (turn.index, turn.observation, turn.action) == (3, "hall", "go")


def test_rewards_and_ends_stand_on_the_last_row() -> None:
    rows = conversation_rows(
        HALL, group_id="g", rollout_id=1, record=7, where="x", reward=1, success=True,
        extra={"trial": "t"},
    )  # fmt: skip
    assert [row["reward"] for row in rows] == [0.0, 1.0]
    assert [row["success"] for row in rows] == [False, True]
    assert [row["done"] for row in rows] == [False, True]
    assert {(row["trial"], row["source_record"], row["truncated"]) for row in rows} == {
        ("t", 7, False)
    }
    cut = conversation_rows(HALL, group_id="g", rollout_id=1, record=7, where="x", truncated=True)
    assert [(row["done"], row["truncated"]) for row in cut] == [(False, False), (False, True)]
    assert not {"reward", "success"} & set(cut[0])


@pytest.mark.parametrize(
    "call",
    [
        {"type": "function", "function": {"name": "go", "arguments": '{"to":1}'}},
        {"name": "go", "arguments": '{"to":1}'},
        {"id": "1", "function": "go", "arguments": {"to": 1}, "type": "function"},
        {"function_name": "go", "arguments": {"to": 1}},
        {"type": "tool_use", "name": "go", "input": {"to": 1}},
        '{"name": "go", "arguments": {"to": 1}}',
    ],
)
def test_calls_of_every_shape_are_one_action(call: object) -> None:
    assert action_of_call(call) == 'go({"to":1})'


def test_parts() -> None:
    """Tool results as parts of a user's message, thoughts as parts, and an image that is kept."""
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    talk = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "first"},
                {"type": "tool_use", "name": "go", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "content": "b"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
    ]
    first, second = turns(talk, "x")
    assert first.observation == [{"type": "text", "text": "a"}, image]
    assert (first.action, first.response, first.reply) == ("go({})", "first", "b")
    assert (second.observation, second.action) == ("b", "c")


def test_several_calls_of_one_message() -> None:
    calls = [{"name": n, "arguments": "{}"} for n in ("a", "b")]
    [turn] = turns([{"role": "assistant", "tool_calls": calls}], "x")
    assert turn.action == "a({})\nb({})"
    assert turn.observation is None


def test_thoughts_end_where_their_tag_ends() -> None:
    assert without_thoughts("hm</think> go") == "go"
    assert without_thoughts("<think>only</think>") == "<think>only</think>"


@pytest.mark.parametrize("message", [{"role": "critic", "content": ""}, "hall", {"content": "x"}])
def test_what_is_no_message_is_refused(message: object) -> None:
    with pytest.raises(InputError, match="f:3 message 0"):
        turns([message], "f:3")
