"""Anchors from what replies said and what rollouts carry along, once steps are in order.

Arrays only. A slot at row t holds what replies up to t and actions before t have set; a reply that
says "nothing happened" changes nothing, and the row keeps the anchor before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import RuleFile, Slot, Update

__all__ = ["Carried", "carry"]

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]

_T = TypeVar("_T", bound=np.generic)
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Carried:
    """Anchors of rows in canonical order.

    Attributes:
      key: uint64 (n,), 0 where there is none.
      known: bool (n,), the row has an anchor.
      reply: int64 (n,), row whose reply stands for this row, -1 if there is none.
      parts: uint64 (n,) each, key parts other than the reply.
    """

    key: Words
    known: Bools
    reply: Ints
    parts: list[Words]


def carry(rules: RuleFile, rollout: Ints, columns: Mapping[str, tuple[Words, Bools]]) -> Carried:
    """Anchor of each row.

    A row without a reply keeps the anchor before it if the row before was a thought; after an
    environment step the situation is unknown, and the row has no anchor.

    Args:
      rules: what makes up the anchor.
      rollout: int64 (n,), rollout of each row, non-decreasing; rows in step order.
      columns: name -> (uint64 (n,), not-null (n,)) of the columns `keys.keyed` leaves behind.
    """
    n = len(rollout)
    rows = np.arange(n)
    starts = np.ones(n, bool)
    starts[1:] = rollout[1:] != rollout[:-1]
    start = np.maximum.accumulate(np.where(starts, rows, 0))
    reply, said = columns["reply_key"]
    no_op, thought = _flag(columns, "no_op", n), _flag(columns, "thought", n)
    follows = rows > start
    after_thought = follows & _after(thought)
    acted = said & follows & ~after_thought
    latest = _latest(said, start)
    lost = _latest(~said & ~no_op & ~after_thought, start)
    known = latest > lost

    slots: dict[str, Words] = {}
    for number, slot in enumerate(rules.slot):
        slots[slot.name] = _slot(number, slot, slots, start, said, acted, columns)
    parts, all_parts = [], []
    for part in rules.key:
        if part == "reply":
            words = np.where(known, reply[latest], np.uint64(0))
        else:
            words = slots[part] if part in slots else _logged(part, n, columns)
            parts.append(words)
        all_parts.append(words)
    alone = rules.key == ("reply",)
    key = all_parts[0] if alone else np.where(known, _mixed(all_parts), np.uint64(0))
    return Carried(key, known, np.where(known, latest, -1), parts)


def _flag(columns: Mapping[str, tuple[Words, Bools]], name: str, n: int) -> Bools:
    return columns[name][0].astype(bool) if name in columns else np.zeros(n, bool)


def _logged(part: str, n: int, columns: Mapping[str, tuple[Words, Bools]]) -> Words:
    """Content of the log column of a key part `column:NAME`, uint64 (n,); 0 where it is null."""
    name = f"column {part.split(':', 1)[1]}"
    if name not in columns:
        return np.zeros(n, np.uint64)
    values, given = columns[name]
    return np.where(given, values, np.uint64(0))


def _latest(given: Bools, start: Ints) -> Ints:
    """Row of the latest given value of the rollout up to each row, -1 if there is none."""
    at = np.maximum.accumulate(np.where(given, np.arange(len(given)), -1))
    return np.where(at >= start, at, -1)


@dataclass(frozen=True)
class _Events:
    """Where and how one update of a slot applies, in row order, (k,) each; value 0 unsets."""

    row: Ints
    value: Words
    key: Words
    origin: Words

    def where(self, kept: Bools) -> "_Events":
        """Some of the rows."""
        return _Events(self.row[kept], self.value[kept], self.key[kept], self.origin[kept])


def _slot(
    number: int,
    slot: Slot,
    earlier: Mapping[str, Words],
    start: Ints,
    said: Bools,
    acted: Bools,
    columns: Mapping[str, tuple[Words, Bools]],
) -> Words:
    """State of one slot at each row, uint64 (n,); 0 is unset."""
    n = len(start)
    happened = [
        (update, _events(f"s{number}u{u}", update, earlier, said, acted, columns))
        for u, update in enumerate(slot.update)
        if f"s{number}u{u}" in columns
    ]
    if not any(len(events.row) for _, events in happened):
        return np.zeros(n, np.uint64)
    if slot.kind == "last":
        value, given = np.zeros(n, np.uint64), np.zeros(n, bool)
        for _, events in happened:
            value[events.row], given[events.row] = events.value, True
        latest = _latest(given, start)
        return np.where(latest >= 0, value[latest], np.uint64(0))
    cleared = np.zeros(n, bool)
    lasting = []
    for update, events in reversed(happened):
        if update.clear and not update.key:
            cleared[events.row] = True
        else:
            lasting.append((update, events.where(~cleared[events.row])))
    lasting.reverse()
    begin = np.maximum(start, _latest(cleared, start)) if cleared.any() else start
    if slot.kind == "count":
        total = np.zeros(n, np.int64)
        for update, events in lasting:
            total[events.row] += update.add
        running = _since(total.view(np.uint64), begin).view(np.int64)
        return (running % slot.modulo if slot.modulo > 0 else running).astype(np.uint64)
    return _since(_changes([e for _, e in lasting], slot.kind, begin), begin)


def _events(
    name: str,
    update: Update,
    earlier: Mapping[str, Words],
    said: Bools,
    acted: Bools,
    columns: Mapping[str, tuple[Words, Bools]],
) -> _Events:
    """Where an update applies: the row of the reply, or the row after the action."""
    applies = columns[name][1]
    if update.on == "action":
        row = np.flatnonzero(applies[:-1] & acted[1:]) + 1
    else:
        row = np.flatnonzero(applies & said)
    if update.reply:
        row = row[columns[f"{name}r"][0][row] != 0]
    if update.when:
        row = row[_holds(update.when, earlier, row)]
    if update.before:
        row = row[_holds(update.before, earlier, row - 1)]
    source = row - (update.on == "action")

    def words(suffix: str, template: str) -> Words:
        if name + suffix not in columns:
            return np.zeros(len(row), np.uint64)
        slots = [earlier[slot][row] for slot in update.slots_in(template)]
        found = columns[name + suffix][0][source]
        return _mixed([found, *slots]) if slots else found

    value = np.maximum(words("", update.value), np.uint64(1))
    value = np.zeros(len(row), np.uint64) if update.clear else value
    return _Events(row, value, words("k", update.key), words("o", update.origin))


def _holds(condition: str, slots: Mapping[str, Words], row: Ints) -> Bools:
    """Whether a slot is set (NAME) or a count stands at a number (NAME=NUMBER), per row."""
    name, _, number = condition.partition("=")
    words = slots[name][row]
    holds: Bools = words == np.uint64(int(number)) if number else words != 0
    return holds


def _since(changes: Words, begin: Ints) -> Words:
    """Running sum of changes from row `begin` of each row on, modulo 2⁶⁴."""
    running = np.cumsum(changes)
    return running - (running - changes)[begin]


def _after(values: NDArray[_T]) -> NDArray[_T]:
    """Each row gets the value of the row before."""
    shifted = np.zeros_like(values)
    shifted[1:] = values[:-1]
    return shifted


def _changes(events: list[_Events], kind: str, begin: Ints) -> Words:
    """What each row adds to a digest of everything set so far, uint64 (n,).

    Each (key, value) in force adds one word, so that order does not matter; a new value of a key
    takes the old one's word off. In a set the values are the keys; in a sequence the place is part
    of the word.
    """
    changes = np.zeros(len(begin), np.uint64)
    if not events:
        return changes
    row, value, key, origin = (
        np.concatenate([getattr(e, part) for e in events])
        for part in ("row", "value", "key", "origin")
    )
    key = value if kind == "set" else key
    order = np.lexsort((row, key, begin[row]))
    row, value, key, origin = row[order], value[order], key[order], origin[order]
    same = np.zeros(len(row), bool)
    same[1:] = (begin[row][1:] == begin[row][:-1]) & (key[1:] == key[:-1])
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(row))))
    if kind == "sequence":
        place = (np.arange(len(row)) - first).astype(np.uint64)
        change = _scrambled(value ^ _scrambled(place))
    else:
        unset = (value == 0) | (value == origin[first])
        word = np.where(unset, np.uint64(0), _mixed([key, value, origin[first]]))
        change = word.copy()
        change[same] -= word[np.flatnonzero(same) - 1]
    np.add.at(changes, row, change)
    return changes


def _scrambled(words: Words) -> Words:
    """splitmix64's finaliser: every input bit reaches every output bit."""
    with np.errstate(over="ignore"):
        words = words + _ODD
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _mixed(parts: list[Words]) -> Words:
    """One word per row from several, position by position."""
    whole = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        whole = _scrambled(whole ^ _scrambled(part))
    return whole
