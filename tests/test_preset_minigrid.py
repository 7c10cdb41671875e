"""The MiniGrid preset on levels played in MiniGrid (see tests/data/README.md), and by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from anchor_scores import Scores, scores
from anchored import anchors_along
from conftest import ROOT
from helpers import prepared

from crbc_cli.anchors.choose import detect_preset
from crbc_cli.anchors.rulefile import load_rules, preset_text
from crbc_cli.engine.clock import Clock
from crbc_cli.errors import OptionError
from crbc_cli.notes import Notes
from crbc_cli.process.quality import Conflicts, pair_outcomes

LEVELS = pl.read_parquet(ROOT / "tests" / "data" / "minigrid.parquet")
STATES = LEVELS["true_state"].to_list()
SEEN = LEVELS.drop("true_state", pl.selectors.starts_with("true_"))


def level_scores(log: pl.DataFrame = SEEN, **options: Any) -> Scores:
    return scores(prepared(log.to_dicts(), **options), STATES)


def without(*parts: str, folder: Path) -> str:
    """A rule file with the preset's key but for some parts."""
    key = [part for part in load_rules(preset_text("minigrid"), "").key if part not in parts]
    path = folder / "rules.toml"
    path.write_text(f'schema=1\nname="m"\ntitle="M"\nextends="minigrid"\nkey={key}\n', "utf-8")
    return str(path)


# --- the real engine ------------------------------------------------------------------------------


def test_views_of_seven_cells_alias() -> None:
    assert level_scores().aliased > 0.3


def test_the_preset_aliases_nothing_and_splits_little() -> None:
    found = level_scores(preset="minigrid")
    assert found.aliased == 0
    assert found.shared > 0.77  # the states themselves: 78.48 %


def test_only_dropped_keys_are_split(tmp_path: Path) -> None:
    """Without them, anchors and states are one to one here."""
    assert not level_scores(preset="minigrid").exact
    assert level_scores(rules=without("things", folder=tmp_path)).exact


@pytest.mark.parametrize(
    "parts", [("reply",), ("doors",), ("east", "south"), ("heading", "east", "south")]
)
def test_what_else_is_needed(parts: tuple[str, ...], tmp_path: Path) -> None:
    """Without any of these, states alias; the heading alone follows from the place and the view."""
    assert level_scores(rules=without(*parts, folder=tmp_path)).aliased > 0.02


def test_nothing_follows_an_action_in_two_ways() -> None:
    """The levels are deterministic, and the log's own evidence says so only under the preset."""

    def conflicts(**options: Any) -> Conflicts:
        whole = Conflicts()
        for chunk in prepared(SEEN.to_dicts(), **options).chunks(Clock()):
            whole += pair_outcomes(chunk.process).conflicts
        return whole

    assert conflicts().visits > 20
    assert conflicts(preset="minigrid").visits == 0
    assert conflicts(preset="minigrid").repeated > 400


def test_another_wording_gives_the_same_anchors() -> None:
    """BabyAI-text has no full stops, and some logs name actions by the engine's words."""
    log = SEEN.with_columns(
        pl.col("observation").str.replace_all(r"(?m)\.$", ""),
        pl.col("action").replace({"turn left": "left", "turn right": "turn_right"}),
    )
    ours, theirs = (prepared(rows.to_dicts(), preset="minigrid") for rows in (SEEN, log))
    pairs = set(zip(ours.anchor_key.tolist(), theirs.anchor_key.tolist(), strict=True))
    assert len(pairs) == len(set(ours.anchor_key.tolist()))
    assert len(pairs) == len(set(theirs.anchor_key.tolist()))


def test_the_mission_may_be_said_once() -> None:
    mission = r"^Goal of the agent:.*\n"
    later = (
        pl.when(pl.col("step") > 0)
        .then(pl.col("observation").str.replace(mission, ""))
        .otherwise("observation")
    )
    found = level_scores(SEEN.with_columns(later.alias("observation")), preset="minigrid")
    assert found.aliased == 0
    assert found.shared == level_scores(preset="minigrid").shared


def test_auto_recognises_it() -> None:
    notes = Notes()
    assert detect_preset([SEEN.select("observation", "action")], notes) == "minigrid"
    assert "100% of observations" in notes.items[0].message


# --- by hand --------------------------------------------------------------------------------------

HALL = "You see a wall 5 steps left."
"""The view in the middle of a large hall: nothing near."""
WALL = "You see a wall 1 step forward."


def along(*steps: tuple[str, str]) -> list[Any]:
    return anchors_along("minigrid", *steps)


def test_four_turns_make_a_circle() -> None:
    assert along(*[(HALL, "turn right")] * 5) == [0, 1, 2, 3, 0]
    assert along((HALL, "turn left"), (HALL, "turn right"), (HALL, "toggle")) == [0, 1, 0]


def test_a_way_there_and_back_ends_where_it_began() -> None:
    back = [(HALL, "turn right"), (HALL, "turn right"), (HALL, "go forward")]
    way = [(HALL, "go forward"), *back, *back]
    assert along(*way, (HALL, "toggle")) == [0, 1, 2, 3, 4, 5, 0, 1]


def test_steps_to_the_side_are_other_places() -> None:
    """Two cells ahead and one ahead, one aside: four views of one text, four anchors."""
    ahead = along((HALL, "go forward"), (HALL, "go forward"), (HALL, "toggle"))
    aside = along(
        (HALL, "go forward"),
        (HALL, "turn left"),
        (HALL, "go forward"),
        (HALL, "turn right"),
        (HALL, "toggle"),
    )
    assert ahead == [0, 1, 2]
    assert aside == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("ahead", "moves"),
    [
        (WALL, False),
        ("You see a closed red door 1 step forward.", False),
        ("You see a locked red door 1 step forward.", False),
        ("You see a open red door 1 step forward.", True),
        ("You see a grey box 1 step forward.", False),
        ("You see a goal 1 step forward.", True),
        ("You see a wall 1 step left.", True),
        ("You see a red key 1 step forward and 1 step left.", True),
    ],
)
def test_what_stands_in_the_way(ahead: str, moves: bool) -> None:
    """Whether the view changes says nothing: the step counts by what was in the way before it."""
    assert along((ahead, "go forward"), (ahead, "toggle")) == [0, int(moves)]


def test_a_door_is_remembered_out_of_sight_until_it_is_as_it_was() -> None:
    door = "You see a {} red door 1 step forward."
    assert along(
        (door.format("closed"), "turn left"),
        (HALL, "turn right"),
        (door.format("closed"), "toggle"),
        (door.format("open"), "turn left"),
        (HALL, "turn right"),
        (door.format("open"), "toggle"),
        (door.format("closed"), "turn left"),
        (HALL, "toggle"),
    ) == [0, 1, 0, 2, 3, 2, 0, 1]


def test_a_dropped_thing_is_remembered_where_it_lies() -> None:
    key, carried = "You see a red key 1 step forward.", f"{HALL}\nYou carry a red key."
    assert along(
        (carried, "drop"),
        (key, "turn left"),
        (HALL, "turn right"),
        (key, "pick up"),
        (carried, "turn left"),
        (carried, "drop"),
        (key, "turn right"),
        (HALL, "toggle"),
    ) == [0, 1, 2, 1, 0, 3, 4, 5]


# --- the conditions that the preset is made of ----------------------------------------------------


@pytest.mark.parametrize(
    "condition", ['when = "later"', 'before = "later"', 'when = "turns=left"', 'before = "turns="']
)
def test_conditions_name_earlier_slots(condition: str) -> None:
    text = f"""schema = 1
name = "m"
title = "M"
key = ["x"]
slot = [
  {{ name = "turns", kind = "count", update = [{{ on = "action", pattern = "turn", add = 1 }}] }},
  {{ name = "x", kind = "count", update = [
    {{ on = "action", pattern = "go", add = 1, {condition} }}] }},
  {{ name = "later", kind = "last", update = [{{ on = "reply", pattern = "a", value = "b" }}] }},
]"""
    with pytest.raises(OptionError, match="names no earlier slot"):
        load_rules(text, "rules.toml")


def test_only_actions_have_a_before() -> None:
    text = preset_text("minigrid").replace('when = "dropped"', 'before = "dropped"')
    with pytest.raises(OptionError, match="before is for updates on an action"):
        load_rules(text, "rules.toml")
