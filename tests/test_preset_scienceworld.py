"""The ScienceWorld preset, on rollouts of the real simulator (see tests/data/README.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crbc_cli.anchors.choose import detect_preset
from crbc_cli.notes import Notes
from tests.anchored import aliased_and_shared, anchored, anchors_along

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def rollouts() -> pl.DataFrame:
    return pl.read_parquet(DATA / "scienceworld.parquet")


def test_anchors_are_close_to_the_simulators_states(rollouts: pl.DataFrame) -> None:
    # What is left is what time does: water runs and paints mix a step after the command.
    aliased, shared = aliased_and_shared(anchored(rollouts, preset="scienceworld"))
    _, possible = aliased_and_shared(rollouts.with_columns(anchor="true_state"))
    assert aliased <= 0.05
    assert shared == pytest.approx(possible, abs=0.01)


def test_raw_text_is_useless_as_an_anchor(rollouts: pl.DataFrame) -> None:
    aliased, shared = aliased_and_shared(anchored(rollouts))
    _, possible = aliased_and_shared(rollouts.with_columns(anchor="true_state"))
    assert aliased > 0.8
    assert shared > 2 * possible


def anchors(*steps: tuple[str, str]) -> list[Any]:
    """Anchors along one rollout of (reply, next action); every reply as the simulator words it."""
    return anchors_along("scienceworld", *steps)


HALL = "This room is called the hallway. In it, you see: \n\tthe agent\n\ta drawing"
# `look at kitchen` from the hallway: the room is described, and the agent is not in it.
FAR = "This room is called the kitchen. In it, you see: \n\ta substance called air"


def test_looks_and_refusals_change_nothing() -> None:
    replies = (
        FAR,
        HALL,
        "In your inventory, you see:\n\tan orange",
        "No known action matches that input.",
        "The door is already open.",
        "You decide to wait for 1 iterations.",
        "the thermometer measures a temperature of 58 degrees celsius",
        "It's not clear how to get there from here.",
    )
    assert set(anchors((HALL, "look around"), *((reply, "wait1") for reply in replies))) == {0}


def test_doors_devices_and_moves() -> None:
    assert anchors(
        (HALL, "close door to kitchen"),
        ("The door is now closed.", "close door to workshop"),
        ("The door is now closed.", "open door to kitchen"),
        ("The door is now open.", "open door to workshop"),
        ("The door is now open.", "go to kitchen"),
        ("You move to the kitchen.", "activate stove"),
        ("The stove is now activated.", "turn off stove"),
        ("The stove is now deactivated.", "open fridge"),
        ("The fridge is now open.", "close fridge"),
        ("The fridge is now closed.", "open fridge"),
        ("The fridge is now open.", "pick up apple"),
        ("You move the apple to the inventory.", "go to hallway"),
        ("You move through the door to the hallway.", "put down apple"),
        ("You move the apple to the hallway.", "pick up apple"),
        ("You move the apple to the inventory.", "look around"),
    ) == [0, 1, 2, 3, 0, 4, 5, 4, 6, 4, 6, 7, 8, 9, 8]


def test_a_room_that_is_described_from_inside_is_where_the_agent_is() -> None:
    kitchen = FAR.replace("\ta substance", "\tthe agent\n\ta substance")
    assert anchors((HALL, "look"), (kitchen, "look"), ("You move to the hallway.", "look")) == [
        0,
        1,
        0,
    ]


def test_focus_wires_and_pours_are_remembered() -> None:
    assert anchors(
        (HALL, "focus on battery"),
        ("You focus on the battery.", "reset task"),
        ("You reset the goal progress and focus.", "connect battery anode to wire terminal 1"),
        ("anode on battery is now connected to terminal 1 on wire", "pour cup into jug"),
        ("You pour the contents of the cup into the jug.", "pour cup into jug"),
        ("You pour the contents of the cup into the jug.", "look around"),
        (HALL, "mix jug"),
        ("Red and yellow paint mix to produce orange paint.", "look around"),
    ) == [0, 1, 0, 2, 3, 4, 4, 5]


def test_a_pending_question_is_a_situation_of_its_own() -> None:
    question = "Ambiguous request: Please enter the number for the action you intended:\n0:\teat"
    unknown = "Unknown action.  Type 'help' for a list of actions"
    assert anchors((HALL, "eat orange"), (question, "look around"), (unknown, "wait")) == [0, 1, 0]


def test_auto_recognises_it(rollouts: pl.DataFrame) -> None:
    assert detect_preset([rollouts], Notes()) == "scienceworld"
