"""The Sokoban preset on boards of gym-sokoban, in the wordings that agents get to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from anchor_scores import scores
from conftest import ROOT
from helpers import package_credit, prepared

from crbc_cli.anchors.choose import detect_preset
from crbc_cli.notes import Notes

LOG = pl.read_parquet(
    ROOT / "sample_logs" / "sokoban.parquet",
    columns=["group_id", "rollout_id", "step", "observation", "action", "success", "true_state"],
)
STATES = LOG["true_state"].to_list()
SEEN = LOG.drop("true_state")

PROMPT = """You are a Sokoban solver. # wall, _ floor, O target, X box, P you.
Rules:
# push, never pull
Turn {step}:
State:
{board}
You have {step} actions left. Answer in <answer> tags.
(reward: -0.1)"""

HISTORY = """Before this step you have taken {step} step(s).
[Observation {step}:
# # # # # #
# P _ _ _ #
# # # # # #
, Action {step}: 'up']
You are now at step {step} and your current observation is:
{board}
Now it's your turn."""


def test_the_board_is_the_state() -> None:
    found = scores(prepared(SEEN.to_dicts(), preset="sokoban"), STATES)
    assert found.exact
    assert found.aliased == 0


def reworded(change: Callable[[int, str], str]) -> pl.DataFrame:
    """The log with every board worded anew from (step, board)."""
    pairs = zip(SEEN["step"], SEEN["observation"], strict=True)
    return SEEN.with_columns(observation=pl.Series([change(*pair) for pair in pairs]))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _, board: board.replace(" ", ""), id="no blanks"),
        pytest.param(
            lambda _, board: "\n".join(
                "".join(f" {cell} \t" for cell in row.split(" ")) for row in board.split("\n")
            ),
            id="tabs",
        ),
        pytest.param(lambda _, board: board.replace("\n", "\r\n") + "\r\n", id="line ends"),
        pytest.param(lambda _, board: board.replace("\n", "\n\n"), id="empty lines"),
        pytest.param(lambda step, board: PROMPT.format(step=step, board=board), id="prompt"),
        pytest.param(lambda step, board: HISTORY.format(step=step, board=board), id="history"),
    ],
)
def test_what_stands_around_the_board_leaves_no_mark(change: Callable[[int, str], str]) -> None:
    plain = prepared(SEEN.to_dicts(), preset="sokoban")
    other = prepared(reworded(change).to_dicts(), preset="sokoban")
    assert other.anchor_key.tolist() == plain.anchor_key.tolist()


def test_boxes_and_targets_count() -> None:
    """One cell makes another state, whichever symbols are used."""
    boards = ["#####\n#@$.#\n#####", "#####\n#@ *#\n#####", "#####\n#+$ #\n#####"]
    rows = [row(board, "right") | {"rollout_id": i} for i, board in enumerate(boards * 2)]
    assert package_credit(rows, preset="sokoban")["anchor"] == [0, 1, 2, 0, 1, 2]


def row(observation: str, action: str) -> dict[str, Any]:
    cells = {"group_id": "g", "rollout_id": 0, "step": 0, "done": True, "success": True}
    return cells | {"observation": observation, "action": action}


def test_text_without_a_board_is_taken_whole() -> None:
    texts = ["Solved!", "Failed!", "# Hall #"]
    rows = [row(text, "up") | {"rollout_id": i} for i, text in enumerate(texts)]
    assert package_credit(rows, preset="sokoban")["anchor"] == [0, 1, 2]


def test_an_empty_reply_is_no_state() -> None:
    numbers = package_credit([row(" \n", "up"), row("P", "up") | {"step": 1}], preset="sokoban")
    assert numbers["anchor"] == [None, 0]
    assert numbers["reason"][0] == "no_anchor"


@pytest.mark.parametrize("preset", ["sokoban", "sokoban-rgb"])
def test_actions_come_out_of_their_tags(preset: str) -> None:
    said = ["right", "<answer> Right </answer>", "<think>up?</think><action>RIGHT</action>", "up"]
    rows = [row("P", action) | {"rollout_id": i} for i, action in enumerate(said)]
    assert package_credit(rows, preset=preset)["actions"] == [2] * 4


def test_auto_recognises_boards_alone() -> None:
    assert detect_preset([SEEN.select("observation", "action")], Notes()) == "sokoban"
    prompts = reworded(lambda step, board: PROMPT.format(step=step, board=board))
    assert detect_preset([prompts.select("observation", "action")], Notes()) == "sokoban"
