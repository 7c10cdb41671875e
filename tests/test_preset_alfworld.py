"""The ALFWorld presets on an excerpt from the real engine and on rows in its other wordings."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from anchor_scores import Scores, scores
from conftest import ROOT, crbc
from helpers import prepared

from crbc_cli.anchors.rulefile import load_rules, preset_text
from crbc_cli.engine.prepare import Prepared

SAMPLE = ROOT / "sample_logs" / "alfworld.parquet"
OTHERS = ROOT / "tests" / "data" / "alfworld_handwritten.jsonl"
LOG = ["group_id", "rollout_id", "step", "observation", "action", "success", "truncated"]
EXTENDS = 'schema = 1\nname = "mine"\ntitle = "Mine"\nextends = "alfworld"'

Rows = list[dict[str, Any]]


def sample(*more: str) -> Rows:
    """The excerpt, without the columns that tell the hidden state."""
    return pl.read_parquet(SAMPLE, columns=[*LOG, *more]).to_dicts()


def sample_scores(**options: Any) -> Scores:
    states = pl.read_parquet(SAMPLE, columns=["true_state"])["true_state"].to_list()
    return scores(prepared(sample(), **options), states)


def others(group: str) -> Rows:
    rows = [json.loads(line) for line in OTHERS.read_text("utf-8").splitlines()]
    return [row for row in rows if row["group_id"] == group]


# --- the real engine ------------------------------------------------------------------------------


def test_raw_text_is_a_bad_anchor() -> None:
    """What the preset is for: nine visits in ten share their text with another state."""
    raw = sample_scores()
    assert raw.aliased > 0.9
    assert raw.shared > 0.9


def test_the_preset_gives_the_true_states_of_the_real_engine() -> None:
    found = sample_scores(preset="alfworld")
    assert found.aliased == 0
    assert found.exact
    assert found.shared > 0.58  # the states themselves: 58.03 %


def test_the_full_key_only_splits() -> None:
    found = sample_scores(preset="alfworld-full")
    assert found.aliased == 0
    assert 0.45 < found.shared < 0.58


@pytest.mark.parametrize("slot", ["at", "things", "made", "lamps", "open"])
def test_every_slot_is_needed(slot: str, tmp_path: Path) -> None:
    """Without any one of them states alias; `here` follows from `open` in this wording."""
    key = [part for part in load_rules(preset_text("alfworld"), "").key if part != slot]
    path = tmp_path / "rules.toml"
    path.write_text(f"{EXTENDS}\nkey = {key}\n", encoding="utf-8")
    assert sample_scores(rules=str(path)).aliased > 0.005


def test_admissible_commands_count_in_any_order() -> None:
    rows = sample("admissible")
    shuffle = random.Random(0)
    for row in rows:
        commands = json.loads(row.pop("admissible"))
        row["admissible_commands"] = shuffle.sample(commands, len(commands))
    without = partition(prepared(sample(), preset="alfworld-full"))
    assert partition(prepared(rows, preset="alfworld-full")) == without  # they follow from the rest
    texts = [row | {"admissible_commands": json.dumps(row["admissible_commands"])} for row in rows]
    assert partition(prepared(texts, preset="alfworld-full")) == without


def test_other_admissible_commands_make_another_anchor() -> None:
    rows = [row | {"admissible_commands": ["look"]} for row in walk("a", PASSED)[1:3]]
    rows[0]["observation"] = rows[1]["observation"]
    same = partition(prepared(rows, preset="alfworld-full"))
    rows[1]["admissible_commands"] = ["look", "help"]
    assert (same, partition(prepared(rows, preset="alfworld-full"))) == ([0, 0], [0, 1])


def partition(p: Prepared) -> list[int]:
    """Anchors in canonical order, numbered by first visit."""
    number: dict[tuple[int, int], int] = {}
    pairs = zip(p.rollouts.row_group().tolist(), p.anchor_key.tolist(), strict=True)
    return [number.setdefault(pair, len(number)) for pair in pairs]


def test_ids_name_the_situation_and_not_the_words(tmp_path: Path) -> None:
    output = tmp_path / "credit.parquet"
    done = crbc("annotate", SAMPLE, "--preset", "alfworld", "--anchor-id", "-o", output)
    assert done.code == 0, done.stderr
    ids = pl.read_parquet(output, columns=["group_id", "anchor", "anchor_id"]).unique()
    assert ids.select("group_id", "anchor").is_unique().all()
    assert ids.select("group_id", "anchor_id").is_unique().all()


def test_rows_in_any_order_give_the_same_anchors() -> None:
    rows = sample()
    shuffled = list(rows)
    random.Random(1).shuffle(shuffled)
    assert partition(prepared(rows, preset="alfworld")) == partition(
        prepared(sorted(shuffled, key=lambda row: row["group_id"]), preset="alfworld")
    )


# --- other wordings, written by hand --------------------------------------------------------------


@pytest.mark.parametrize("group", ["older", "loc"])
def test_other_wordings_give_the_states_that_the_words_imply(group: str) -> None:
    rows = others(group)
    p = prepared(rows, preset="alfworld")
    found = scores(p, [row["state"] for row in rows])
    assert found.exact
    assert p.has_anchor.all()


def test_thoughts_are_no_steps() -> None:
    rows = others("older")
    thoughts = [row["action"].lower().startswith(("think", "actionpath")) for row in rows]
    assert prepared(rows, preset="alfworld").thought.tolist() == thoughts
    assert sum(thoughts) == 3


def test_no_op_replies_are_never_an_anchor() -> None:
    for group in ("older", "loc"):
        for preset in ("alfworld", "alfworld-full"):
            rows = others(group)
            p = prepared(rows, preset=preset)
            for i in range(1, len(rows)):
                if rows[i]["observation"] in ("", "OK.", "Nothing happens."):
                    assert p.anchor_key[i] == p.anchor_key[i - 1]


def test_silence_after_a_step_is_unknown() -> None:
    rows = others("older")[:6]
    rows[4]["observation"] = ""
    known = prepared(rows, preset="alfworld").has_anchor.tolist()
    assert known == [True, True, True, True, False, True]


OPENED = [
    ("The cabinet 1 is closed.", "open cabinet 1"),
    ("You open the cabinet 1. The cabinet 1 is open. In it, you see nothing.", "go to desk 1"),
    ("On the desk 1, you see a pen 1.", "look"),
]
PASSED = [
    ("The cabinet 1 is closed.", "examine cabinet 1"),
    ("The cabinet 1 is closed.", "go to desk 1"),
    ("On the desk 1, you see a pen 1.", "look"),
]


def walk(name: str, visits: list[tuple[str, str]], arriving: str = "") -> Rows:
    """A rollout that first goes to cabinet 1; `arriving` comes before what an arrival shows."""
    said = [("You are in the middle of a room.", "go to cabinet 1"), *visits]
    rows = []
    for step, (reply, action) in enumerate(said):
        arrived = step > 0 and said[step - 1][1].startswith("go to ")
        place = said[step - 1][1].removeprefix("go to ")
        reply = f"{arriving.format(place)}{reply}" if arrived else reply
        row = {"group_id": "g", "rollout_id": name, "step": step, "observation": reply}
        rows.append(row | {"action": action, "success": False})
    return rows


@pytest.mark.parametrize(
    ("arriving", "counts"), [("", False), ("You arrive at {}. ", True)], ids=["older", "newer"]
)
def test_openness_elsewhere_counts_in_the_newer_wording_only(arriving: str, counts: bool) -> None:
    rows = [*walk("a", OPENED, arriving), *walk("b", PASSED, arriving)]
    first, second = prepared(rows, preset="alfworld").anchor_key.reshape(2, 4).tolist()
    assert first[:2] == second[:2]
    assert first[2] != second[2]  # at cabinet 1, open and closed
    assert (first[3] != second[3]) is counts  # at desk 1


def test_a_file_that_extends_the_preset_can_count_it_in_both(tmp_path: Path) -> None:
    text = preset_text("alfworld")
    slot = text[text.index('[[slot]]\nname = "open"') :].replace('when = "arrivals"', "")
    path = tmp_path / "rules.toml"
    path.write_text(f"{EXTENDS}\n{slot}", encoding="utf-8")
    rows = [*walk("a", OPENED), *walk("b", PASSED)]
    first, second = prepared(rows, rules=str(path)).anchor_key.reshape(2, 4).tolist()
    assert first[3] != second[3]


def test_actions_are_compared_without_prompt_signs_case_and_blanks() -> None:
    rows = others("older")[:1]
    spelled = ["go to desk 1", "> go to desk 1", " Go to  desk 1\n", "go to desk 2"]
    log = [rows[0] | {"rollout_id": i, "action": action} for i, action in enumerate(spelled)]
    keys = prepared(log, preset="alfworld").action_key.tolist()
    assert keys[0] == keys[1] == keys[2] != keys[3]


# --- recognition ----------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [SAMPLE, OTHERS], ids=["engine", "other wordings"])
def test_auto_takes_the_preset_and_says_why(log: Path, tmp_path: Path) -> None:
    done = crbc("annotate", log, "--preset", "auto", "-o", tmp_path / "credit.parquet")
    assert done.code == 0, done.stderr
    assert "--preset auto takes alfworld: " in done.stderr
    assert "of observations match" in done.stderr


def test_auto_does_not_take_it_for_another_log(tmp_path: Path) -> None:
    log = ROOT / "sample_logs" / "sokoban.parquet"
    done = crbc("annotate", log, "--preset", "auto", "-o", tmp_path / "credit.parquet")
    assert "alfworld:" not in done.stderr
