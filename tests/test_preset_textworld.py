"""The TextWorld preset, on games played in TextWorld's interpreter (see tests/data/README.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crbc_cli.anchors.choose import detect_preset
from crbc_cli.notes import Notes
from tests.anchored import aliased_and_shared, anchored, anchors_along

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def games() -> pl.DataFrame:
    return pl.read_parquet(DATA / "textworld.parquet")


def test_anchors_are_the_engines_states(games: pl.DataFrame) -> None:
    log = anchored(games, preset="textworld")
    pairs = log.select("group_id", "anchor", "true_state").unique()
    assert pairs.height == log.select("group_id", "anchor").unique().height
    assert pairs.height == log.select("group_id", "true_state").unique().height


def test_raw_text_shares_less_and_aliases_more(games: pl.DataFrame) -> None:
    # The status line counts moves, so that raw text repeats almost only where nothing was counted.
    aliased, shared = aliased_and_shared(anchored(games))
    _, possible = aliased_and_shared(anchored(games, preset="textworld"))
    assert aliased > 0.2
    assert shared < possible / 2


def test_status_line_and_banner_leave_no_mark(games: pl.DataFrame) -> None:
    text = [re.sub(r"\n>.*$", "", raw, flags=re.DOTALL) for raw in games["observation"]]
    bare = [re.sub(r"^.*\n(?=-= )", "", t, flags=re.DOTALL).strip() for t in text]
    assert max(map(len, bare)) < games["observation"].str.len_chars().max() / 2
    left = anchored(games, preset="textworld")
    right = anchored(games.with_columns(observation=pl.Series(bare)), preset="textworld")
    assert left["anchor"].to_list() == right["anchor"].to_list()


def anchors(*steps: tuple[str, str]) -> list[Any]:
    """Anchors along one rollout of (reply, next action); every reply as the game words it."""
    return anchors_along("textworld", *steps)


KITCHEN, PANTRY = "-= Kitchen =-\nA kitchen.", "-= Pantry =-\nA pantry."


def test_what_is_undone_leaves_no_trace() -> None:
    assert anchors(
        (KITCHEN, "close wooden door"),
        ("You close wooden door.", "open wooden door"),
        ("You open wooden door.", "take key from box"),
        ("You take the key from the box.", "unlock safe with key"),
        ("You unlock the safe.", "open safe"),
        ("You open the safe, revealing a coin.", "close safe"),
        ("You close the safe.", "lock safe with key"),
        ("You lock the safe.", "insert key into box"),
        ("You put the key into the box.", "take old knife"),
        ("You pick up the old knife from the ground.", "drop old knife"),
        ("You drop the old knife on the ground.", "look"),
    ) == [0, 1, 0, 2, 3, 4, 3, 2, 0, 5, 0]


def test_where_something_was_dropped_matters() -> None:
    there_and_back = anchors(
        (KITCHEN, "take coin"),
        ("You pick up the coin from the ground.", "go east"),
        (PANTRY, "drop coin"),
        ("You drop the coin on the ground.", "go west"),
        (KITCHEN, "go east"),
        (PANTRY, "take coin"),
        ("You pick up the coin from the ground.", "go west"),
        (KITCHEN, "drop coin"),
        ("You drop the coin on the ground.", "look"),
    )
    assert there_and_back == [0, 1, 2, 3, 4, 3, 2, 1, 0]


def test_food_remembers_how_it_was_cut_and_cooked() -> None:
    assert anchors(
        (KITCHEN, "cook potato with stove"),
        ("You fried the potato.", "slice potato with knife"),
        ("You slice the potato.", "cook potato with oven"),
        ("You burned the potato!", "prepare meal"),
        ("Adding the meal to your inventory.", "eat meal"),
        ("You eat the meal. Not bad.", "look"),
    ) == [0, 1, 2, 3, 4, 5]


def test_refusals_and_readings_change_nothing() -> None:
    replies = (
        "You can't go that way.",
        "That's not a verb I recognise.",
        "You are carrying nothing.",
        "You have to unlock the safe with the old key first.",
        'You open the copy of "Cooking: A Modern Approach (3rd Ed.)" and start reading:\n\nRecipe',
        "Can only prepare meal in the -= Pantry =-.",
        "\n-= Kitchen =-\nA kitchen, told in other words.\n\n> -= Kitchen =-0/7",
    )
    assert set(anchors((KITCHEN, "go up"), *((reply, "wait") for reply in replies))) == {0}


def test_a_point_once_scored_is_remembered() -> None:
    won = "You take the coin from the box.\n\nYour score has just gone up by one point."
    assert anchors(
        (KITCHEN, "take coin from box"),
        (won, "insert coin into box"),
        ("You put the coin into the box.", "take coin from box"),
        ("You take the coin from the box.", "look"),
    ) == [0, 1, 2, 1]


def test_auto_recognises_it_and_not_alfworld(games: pl.DataFrame) -> None:
    assert detect_preset([games], Notes()) == "textworld"
    # ALFWorld's first text names TextWorld between the same signs.
    welcome = "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room."
    alfworld = ["You arrive at bed 1. On the bed 1, you see a pillow 1.", welcome]
    log = pl.DataFrame({"observation": alfworld, "action": ["go to bed 1", "look"]})
    assert detect_preset([log], Notes()) == "alfworld"
