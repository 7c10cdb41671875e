"""Carried context: what each kind of slot remembers, who keeps the anchor before, where it ends.

Examples go through rule files and rows; `carry` itself is held against a second implementation that
walks row by row with dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import prepared
from hypothesis import given
from hypothesis import strategies as st

from crbc_cli.anchors.carry import carry
from crbc_cli.anchors.rulefile import RuleFile, Slot, Update, load_rules
from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import OptionError

HEAD = 'schema = 1\nname = "toy"\ntitle = "Toy"\n'
SILENCE = "no_op = ['^Nothing happens']\nmissing = ['^$']\nthought = ['^think:']\n"
HAND = """
[[slot]]
name = "hand"
kind = "last"
  [[slot.update]]
  on = "reply"
  pattern = '^You take the (?<thing>\\w+)'
  value = "{thing}"
  [[slot.update]]
  on = "reply"
  pattern = '^You drop'
  clear = true
"""

Rollout = Sequence[tuple[Any, str]]
Anchors = Callable[..., list[list[int | None]]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Prepared]:
    """A log of one group, rollouts as (reply, action) pairs, under a rule file."""

    def run(rules: str, *rollouts: Rollout, after: Sequence[str] = (), **options: Any) -> Prepared:
        path = tmp_path / "rules.toml"
        path.write_text(HEAD + rules, encoding="utf-8")
        rows = []
        for number, visits in enumerate(rollouts):
            for step, (reply, action) in enumerate(visits):
                row = {"group_id": "g", "rollout_id": number, "step": step, "observation": reply}
                last = step == len(visits) - 1
                row |= {"action": action, "success": False, "truncated": last and bool(after)}
                rows.append(row | ({"next_observation": after[number]} if after else {}))
        return prepared(rows, rules=str(path), **options)

    return run


@pytest.fixture
def anchors(run: Callable[..., Prepared]) -> Anchors:
    """Anchor of each row per rollout, numbered from 0 by first visit; None where there is none."""

    def anchors(rules: str, *rollouts: Rollout) -> list[list[int | None]]:
        p = run(rules, *rollouts)
        number: dict[int, int] = {}
        labels = [
            number.setdefault(key, len(number)) if known else None
            for key, known in zip(p.anchor_key.tolist(), p.has_anchor.tolist(), strict=True)
        ]
        bounds = p.rollouts.offsets.tolist()
        return [labels[a:b] for a, b in pairwise(bounds)]

    return anchors


def replies(*texts: str) -> Rollout:
    """A rollout whose actions do not matter."""
    return [(text, "act") for text in texts]


# --- which reply stands for a row -----------------------------------------------------------------


def test_a_no_op_keeps_the_anchor_before_it_and_is_never_one_itself(anchors: Anchors) -> None:
    said = replies("Nothing happens.", "hall", "Nothing happens.", "Nothing happens.", "shed")
    assert anchors('key = ["reply"]\n' + SILENCE, said) == [[None, 0, 0, 0, 1]]


def test_silence_after_a_thought_keeps_the_anchor_and_after_a_step_is_unknown(
    anchors: Anchors,
) -> None:
    said = [("hall", "think: on"), ("", "open"), ("", "open"), ("Nothing happens.", "open")]
    expected: list[int | None] = [0, 0, None, None, 1]
    assert anchors('key = ["reply"]\n' + SILENCE, [*said, ("shed", "open")]) == [expected]


def test_a_null_reply_is_silence_too(anchors: Anchors) -> None:
    said = [("hall", "think: on"), (None, "open"), (None, "open")]
    assert anchors('key = ["reply"]\n' + SILENCE, said) == [[0, 0, None]]


def test_no_rollout_inherits_from_the_one_before(anchors: Anchors) -> None:
    rules = 'key = ["reply", "hand"]\n' + SILENCE + HAND
    first = replies("You take the cup.", "hall")
    second = replies("Nothing happens.", "hall")
    assert anchors(rules, first, second, second) == [[0, 1], [None, 2], [None, 2]]


def test_slots_go_on_while_the_reply_is_unknown(anchors: Anchors) -> None:
    rules = 'key = ["reply", "hand"]\n' + SILENCE + HAND
    with_cup = [("You take the cup.", "go"), ("", "go"), ("hall", "go")]
    assert anchors(rules, with_cup, replies("hall")) == [[0, None, 1], [2]]


# --- slot kinds -----------------------------------------------------------------------------------


def test_last_holds_the_latest_value_until_cleared(anchors: Anchors) -> None:
    said = replies("hall", "You take the cup.", "hall", "You take the pan.", "hall", "You drop it.")
    assert anchors('key = ["hand"]' + HAND, said) == [[0, 1, 1, 2, 2, 0]]


def test_a_later_update_of_the_same_row_wins(anchors: Anchors) -> None:
    rules = """
key = ["at"]
[[slot]]
name = "at"
kind = "last"
  [[slot.update]]
  on = "reply"
  pattern = '(?<place>\\w+)'
  value = "{place}"
  [[slot.update]]
  on = "reply"
  pattern = 'but (?<place>\\w+)'
  value = "{place}"
"""
    assert anchors(rules, replies("hall but shed", "shed", "hall")) == [[0, 0, 1]]


PLACES = """
key = ["things"]
[[slot]]
name = "things"
kind = "map"
  [[slot.update]]
  on = "reply"
  pattern = '^(?<thing>\\w+) to (?<place>\\w+)'
  key = "{thing}"
  value = "{place}"
  [[slot.update]]
  on = "reply"
  pattern = '^lose (?<thing>\\w+)'
  key = "{thing}"
  clear = true
  [[slot.update]]
  on = "reply"
  pattern = '^lose everything'
  clear = true
"""


def test_map_keeps_the_latest_value_of_each_key_in_any_order(anchors: Anchors) -> None:
    assert anchors(
        PLACES,
        replies("start", "cup to shelf", "pan to table", "cup to table"),
        replies("start", "pan to table", "cup to table", "cup to shelf"),
    ) == [[0, 1, 2, 3], [0, 4, 3, 2]]


def test_map_forgets_one_key_or_all(anchors: Anchors) -> None:
    said = replies("start", "cup to shelf", "pan to table", "lose pan", "lose everything")
    assert anchors(PLACES, said) == [[0, 1, 2, 1, 0]]


def test_a_key_back_at_its_origin_was_never_touched(anchors: Anchors) -> None:
    rules = """
key = ["things"]
[[slot]]
name = "things"
kind = "map"
  [[slot.update]]
  on = "reply"
  pattern = '^take (?<thing>\\w+) off (?<place>\\w+)'
  key = "{thing}"
  value = "hand"
  origin = "{place}"
  [[slot.update]]
  on = "reply"
  pattern = '^put (?<thing>\\w+) on (?<place>\\w+)'
  key = "{thing}"
  value = "{place}"
"""
    first = ["start", "take cup off shelf", "put cup on table"]
    back = ["take cup off table", "put cup on shelf"]
    assert anchors(rules, replies(*first, *back)) == [[0, 1, 2, 1, 0]]
    elsewhere = replies("start", "take cup off table", "put cup on shelf", "put cup on table")
    assert anchors(rules, replies(*first), elsewhere) == [[0, 1, 2], [0, 3, 4, 0]]


def gathering(kind: str, more: str = "") -> str:
    return f"""
key = ["seen"]
[[slot]]
name = "seen"
kind = "{kind}"
{more}
  [[slot.update]]
  on = "reply"
  pattern = '^see (?<thing>\\w+)'
  value = "{{thing}}"
  [[slot.update]]
  on = "reply"
  pattern = '^forget'
  clear = true
"""


def test_set_knows_neither_order_nor_number(anchors: Anchors) -> None:
    first = replies("start", "see a", "see b", "see a", "forget", "see b")
    assert anchors(gathering("set"), first, replies("start", "see b", "see a")) == [
        [0, 1, 2, 2, 0, 3],
        [0, 3, 2],
    ]


def test_sequence_knows_both(anchors: Anchors) -> None:
    first = replies("start", "see a", "see b", "see a", "forget", "see b")
    assert anchors(gathering("sequence"), first, replies("start", "see b", "see a")) == [
        [0, 1, 2, 3, 0, 4],
        [0, 4, 5],
    ]


def turns(modulo: int) -> str:
    return f"""
key = ["heading"]
no_op = ['^Nothing']
[[slot]]
name = "heading"
kind = "count"
modulo = {modulo}
  [[slot.update]]
  on = "action"
  pattern = '^right'
  add = 1
  [[slot.update]]
  on = "action"
  pattern = '^left'
  add = -1
  [[slot.update]]
  on = "reply"
  pattern = '^north'
  clear = true
"""


def test_count_runs_and_wraps_and_starts_anew(anchors: Anchors) -> None:
    seen = [("room", "right"), ("room", "right"), ("room", "right"), ("room", "right")]
    back = [("room", "left"), ("room", "right"), ("north", "right"), ("room", "look")]
    assert anchors(turns(4), [*seen, *back]) == [[0, 1, 2, 3, 0, 3, 0, 1]]
    assert anchors(turns(0), [*seen, *back]) == [[0, 1, 2, 3, 4, 3, 0, 1]]


def test_an_action_counts_only_if_the_environment_answered_it(anchors: Anchors) -> None:
    seen = [("room", "right"), ("Nothing", "right"), ("room", "look"), ("room", "look")]
    assert anchors(turns(4), seen) == [[0, 0, 1, 1]]


def test_a_thought_is_no_action(anchors: Anchors) -> None:
    rules = turns(4) + "\n"
    thinking = rules.replace("no_op", "thought = ['^right, I think']\nno_op")
    seen = [("room", "right, I think"), ("room", "look"), ("room", "right"), ("room", "look")]
    assert anchors(rules, seen) == [[0, 1, 1, 2]]
    assert anchors(thinking, seen) == [[0, 0, 0, 1]]


def test_an_update_may_ask_for_an_earlier_slot(anchors: Anchors) -> None:
    rules = """
key = ["door"]
[[slot]]
name = "keyring"
kind = "last"
  [[slot.update]]
  on = "reply"
  pattern = '^key'
  value = "yes"
[[slot]]
name = "door"
kind = "last"
  [[slot.update]]
  on = "reply"
  pattern = '^turn'
  value = "open"
  when = "keyring"
"""
    assert anchors(rules, replies("hall", "turn", "key", "hall", "turn")) == [[0, 0, 0, 0, 1]]
    with pytest.raises(OptionError, match="keyring2"):
        load_rules(HEAD + rules.replace('when = "keyring"', 'when = "keyring2"'), "rules.toml")


def test_an_update_may_ask_how_a_slot_was_when_the_action_was_taken(anchors: Anchors) -> None:
    rules = """
key = ["steps"]
[[slot]]
name = "blocked"
kind = "last"
  [[slot.update]]
  on = "reply"
  pattern = '^wall'
  value = "yes"
  [[slot.update]]
  on = "reply"
  pattern = '^free'
  clear = true
[[slot]]
name = "steps"
kind = "count"
  [[slot.update]]
  on = "action"
  pattern = '^walk'
  add = 1
  [[slot.update]]
  on = "action"
  pattern = '^walk'
  before = "blocked"
  add = -1
"""
    seen = [("free", "walk"), ("wall", "walk"), ("wall", "turn"), ("free", "walk"), ("free", "end")]
    assert anchors(rules, seen) == [[0, 1, 1, 1, 2]]


# --- behind the last row --------------------------------------------------------------------------


def test_what_follows_the_last_row_is_anchored_like_a_row(run: Callable[..., Prepared]) -> None:
    rules = 'key = ["reply", "hand"]\n' + SILENCE + HAND
    p = run(
        rules,
        replies("You take the cup.", "hall", "shed"),
        replies("You take the cup."),
        replies("You take the pan."),
        replies("You take the cup.", "shed"),
        replies("hall"),
        after=["yard", "hall", "hall", "Nothing happens.", ""],
        truncated="bootstrap",
    )
    hall_with_cup, shed_with_cup = p.anchor_key[1], p.anchor_key[2]
    assert p.continues.tolist() == [True, True, True, True, False]
    assert p.next_key[1] == hall_with_cup
    assert p.next_key[3] == shed_with_cup
    assert p.next_key[2] not in p.anchor_key
    assert p.has_anchor.all()


def test_an_update_that_only_the_last_reply_makes_is_not_lost(
    run: Callable[..., Prepared],
) -> None:
    rules = 'key = ["hand"]\n' + HAND
    p = run(
        rules, replies("hall"), replies("hall"), after=["You take the cup.", "hall"],
        truncated="bootstrap",
    )  # fmt: skip
    assert p.next_key[0] != p.anchor_key[0] == p.next_key[1]


# --- against a second implementation --------------------------------------------------------------

KINDS = ("last", "map", "set", "sequence", "count")
Cells = dict[str, list[int | None]]


@dataclass(frozen=True)
class Case:
    """Rules, and what a scan left behind: a small number, or None, per row and column."""

    rules: RuleFile
    rollout: list[int]
    cells: Cells


def _column(draw: Any, n: int, words: Sequence[int | None]) -> list[int | None]:
    return draw(st.lists(st.sampled_from(words), min_size=n, max_size=n))


@st.composite
def cases(draw: Any) -> Case:
    rollout = sorted(draw(st.lists(st.integers(0, 2), min_size=1, max_size=14)))
    n = len(rollout)
    cells: Cells = {"reply_key": _column(draw, n, [1, 2, 3, 4, None])}
    no_op = _column(draw, n, [0, 1])
    cells["no_op"] = [
        0 if said else flag for said, flag in zip(cells["reply_key"], no_op, strict=True)
    ]
    cells["thought"] = _column(draw, n, [0, 0, 1])
    slots: list[Slot] = []
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(KINDS))
        updates = []
        for u in range(draw(st.integers(1, 3))):
            name = f"s{number}u{u}"
            update = _update(draw, kind, slots)
            updates.append(update)
            cells[name] = _column(draw, n, [1, 2, 3, None, None])
            if update.key:
                cells[f"{name}k"] = _column(draw, n, [1, 2])
            if update.origin:
                cells[f"{name}o"] = _column(draw, n, [1, 2, 3])
            if update.reply:
                cells[f"{name}r"] = _column(draw, n, [0, 1])
        modulo = draw(st.sampled_from([0, 2, 3]))
        slots.append(Slot(f"slot{number}", kind, tuple(updates), modulo))
    cells["column x"] = _column(draw, n, [1, 2, None])
    parts = ["reply", "column?:x", *(slot.name for slot in slots)]
    key = draw(st.lists(st.sampled_from(parts), min_size=1, unique=True))
    rules = RuleFile(schema=1, name="toy", title="Toy", key=tuple(key), slot=tuple(slots))
    return Case(rules, rollout, cells)


def _update(draw: Any, kind: str, earlier: list[Slot]) -> Update:
    counts = [slot.name for slot in earlier if slot.kind == "count"]
    conditions = ["", *(slot.name for slot in earlier), *(f"{c}={n}" for c in counts for n in "01")]
    on = draw(st.sampled_from(["reply", "action"]))
    clear = draw(st.integers(0, 3)) == 0
    whole = clear and draw(st.booleans())
    return Update(
        on=on,
        pattern="(?<v>.)",
        reply=draw(st.sampled_from(["", "."])),
        key="{v}" if kind == "map" and not whole else "",
        origin="{v}" if kind == "map" and not clear and draw(st.booleans()) else "",
        when=draw(st.sampled_from(conditions)),
        before=draw(st.sampled_from(conditions)) if on == "action" else "",
        clear=clear,
        add=0 if clear else draw(st.sampled_from([1, 2, -1])),
    )


class Walk:
    """One rollout, row by row."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.held: dict[str, Any] = {slot.name: None for slot in case.rules.slot}
        self.begun: dict[str, dict[int, int]] = {slot.name: {} for slot in case.rules.slot}
        self.reply = -1
        self.known = False

    def go(self, row: int, previous: int | None) -> tuple[int, tuple[Any, ...]] | None:
        """(row whose reply stands for this one, anchor), or None where there is none."""
        cells, rules = self.case.cells, self.case.rules
        said = cells["reply_key"][row] is not None
        thought = previous is not None and cells["thought"][previous] == 1
        if said:
            self.reply, self.known = row, True
        elif not (cells["no_op"][row] or thought):
            self.known = False
        answered = said and previous is not None and not thought
        before = {slot.name: self.visible(slot.name) for slot in rules.slot}
        for number, slot in enumerate(rules.slot):
            applied = []
            for u, update in enumerate(slot.update):
                name = f"s{number}u{u}"
                source = row if update.on == "reply" else previous
                heard = said if update.on == "reply" else answered
                if not heard or source is None or cells[name][source] is None:
                    continue
                if update.reply and not cells[f"{name}r"][row]:
                    continue
                now = {slot.name: self.visible(slot.name) for slot in rules.slot[:number]}
                if not (_holds(update.when, now) and _holds(update.before, before)):
                    continue
                words = [cells[name + s][source] if name + s in cells else None for s in ("", "k")]
                origin = cells[f"{name}o"][source] if f"{name}o" in cells else 0
                applied.append((update, *words, origin))
            self.advance(slot, applied)
        if not self.known:
            return None
        return self.reply, tuple(self.part(part, row) for part in rules.key)

    def advance(self, slot: Slot, applied: list[Any]) -> None:
        name = slot.name
        if slot.kind == "last":
            for update, value, _, _ in applied:
                self.held[name] = None if update.clear else value
            return
        for update, value, key, origin in applied:
            if update.clear and not update.key:
                self.held[name], self.begun[name] = None, {}
                continue
            held = self.held[name]
            match slot.kind:
                case "map":
                    self.begun[name].setdefault(key, origin)
                    self.held[name] = {**(held or {}), key: None if update.clear else value}
                case "set":
                    self.held[name] = (held or frozenset()) | {value}
                case "sequence":
                    self.held[name] = (*(held or ()), value)
                case "count":
                    self.held[name] = (held or 0) + update.add

    def visible(self, name: str) -> Any:
        """What a slot shows: None while it is unset, and a map's keys at their origin are."""
        slot = next(s for s in self.case.rules.slot if s.name == name)
        held = self.held[name]
        if slot.kind == "count":
            held = held % slot.modulo if held and slot.modulo else held
        if slot.kind == "map":
            origins = self.begun[name]
            moved = {(k, v, origins[k]) for k, v in (held or {}).items() if v}
            held = frozenset(m for m in moved if m[1] != m[2])
        return held or None

    def part(self, part: str, row: int) -> Any:
        if part == "reply":
            return self.case.cells["reply_key"][self.reply]
        if part.startswith("column"):
            return self.case.cells["column x"][row]
        return self.visible(part)


def _holds(condition: str, visible: dict[str, Any]) -> bool:
    name, _, number = condition.partition("=")
    if number:
        return (visible[name] or 0) == int(number)
    return not condition or visible[name] is not None


def walked(case: Case) -> list[tuple[int, tuple[Any, ...]] | None]:
    """The same as `carry`, one row after the other."""
    found = []
    walk = Walk(case)
    for row, rollout in enumerate(case.rollout):
        first = row == 0 or case.rollout[row - 1] != rollout
        walk = Walk(case) if first else walk
        found.append(walk.go(row, None if first else row - 1))
    return found


def carried(case: Case) -> tuple[list[int], list[bool], list[int]]:
    """Key, known and reply of each row as the package has them."""
    columns = {
        name: (
            np.array([value or 0 for value in column], np.uint64),
            np.array([value is not None for value in column]),
        )
        for name, column in case.cells.items()
    }
    result = carry(case.rules, np.array(case.rollout, np.int64), columns)
    return result.key.tolist(), result.known.tolist(), result.reply.tolist()


@given(cases())
def test_carry_agrees_with_a_walk_in_dicts(case: Case) -> None:
    expected = walked(case)
    key, known, reply = carried(case)
    assert known == [e is not None for e in expected]
    assert reply == [-1 if e is None else e[0] for e in expected]
    assert all(k == 0 for k, e in zip(key, expected, strict=True) if e is None)
    pairs = {(k, e[1]) for k, e in zip(key, expected, strict=True) if e is not None}
    assert len({k for k, _ in pairs}) == len({anchor for _, anchor in pairs}) == len(pairs)


@given(cases())
def test_rollouts_do_not_touch_each_other(case: Case) -> None:
    key, *_ = carried(case)
    for rollout in set(case.rollout):
        rows = [i for i, r in enumerate(case.rollout) if r == rollout]
        cells = {name: [column[i] for i in rows] for name, column in case.cells.items()}
        alone, *_ = carried(replace(case, rollout=[0] * len(rows), cells=cells))
        assert alone == [key[i] for i in rows]
