"""Anchors from what replies said and what rollouts carry along, once steps are in order.

Arrays only. A slot at row t holds what replies up to t and actions before t have set; a reply that
says "nothing happened" changes nothing, and the row keeps the anchor before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import RuleFile, Slot

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
    start = np.maximum.accumulate(np.where(np.diff(rollout, prepend=-1) != 0, rows, 0))
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
        slots[slot.name] = _slot(number, slot, slots, start, acted, columns)
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
    """Updates of one slot that apply, in update order and each in row order, (k,) each."""

    row: Ints
    key: Words
    value: Words
    origin: Words


def _slot(
    number: int,
    slot: Slot,
    earlier: Mapping[str, Words],
    start: Ints,
    acted: Bools,
    columns: Mapping[str, tuple[Words, Bools]],
) -> Words:
    """State of one slot at each row, uint64 (n,); 0 is unset."""
    n = len(start)
    nothing = np.zeros(n, np.uint64)
    value, given, cleared = nothing.copy(), np.zeros(n, bool), np.zeros(n, bool)
    total = np.zeros(n, np.int64)
    events: list[_Events] = []
    for u, update in enumerate(slot.update):
        name = f"s{number}u{u}"
        if name not in columns:
            continue
        new, applies = columns[name]
        key, origin = (columns[name + s][0] if name + s in columns else nothing for s in "ko")
        if update.on == "action":
            new, applies = _after(new), _after(applies) & acted
            key, origin = _after(key), _after(origin)
            if update.reply:
                applies = applies & columns[f"{name}r"][0].astype(bool)
        if update.when:
            applies = applies & (earlier[update.when] != 0)
        new = _filled(new, update.slots_in(update.value), earlier)
        key = _filled(key, update.slots_in(update.key), earlier)
        origin = _filled(origin, update.slots_in(update.origin), earlier)
        new = nothing if update.clear else np.maximum(new, np.uint64(1))
        at = np.flatnonzero(applies)
        if slot.kind == "last":
            value[at], given[at] = new[at], True
        elif update.clear and not update.key:
            cleared[at] = True
        elif slot.kind == "count":
            total[at] += update.add
        else:
            key = key if slot.kind == "map" else new if slot.kind == "set" else nothing
            events.append(_Events(at, key[at], new[at], origin[at]))
    if slot.kind == "last":
        latest = _latest(given, start)
        return np.where(latest >= 0, value[latest], np.uint64(0))
    begin = np.maximum(start, _latest(cleared, start))
    if slot.kind == "count":
        running = _since(total.view(np.uint64), begin).view(np.int64)
        return (running % slot.modulo if slot.modulo > 0 else running).astype(np.uint64)
    return _since(_changes(events, slot.kind, begin), begin)


def _filled(words: Words, names: list[str], slots: Mapping[str, Words]) -> Words:
    """Templates' words with what the named slots hold mixed in."""
    return _mixed([words, *(slots[name] for name in names)]) if names else words


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
    takes the old one's word off. In a sequence the place is part of the word.
    """
    changes = np.zeros(len(begin), np.uint64)
    if not events:
        return changes
    row = np.concatenate([e.row for e in events])
    key = np.concatenate([e.key for e in events])
    order = np.lexsort((row, key, begin[row]))
    row, key = row[order], key[order]
    value = np.concatenate([e.value for e in events])[order]
    same = np.zeros(len(row), bool)
    same[1:] = (begin[row][1:] == begin[row][:-1]) & (key[1:] == key[:-1])
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(row))))
    if kind == "sequence":
        place = (np.arange(len(row)) - first).astype(np.uint64)
        change = _scrambled(value ^ _scrambled(place))
    else:
        origin = np.concatenate([e.origin for e in events])[order][first]
        unset = (value == 0) | (value == origin)
        word = np.where(unset, np.uint64(0), _mixed([key, value, origin]))
        change = word.copy()
        change[same] = 0 if kind == "set" else word[same] - word[np.flatnonzero(same) - 1]
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
