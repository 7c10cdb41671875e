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

    parts, all_parts = [], []
    for part in rules.key:
        if part == "reply":
            words = np.where(known, reply[latest], np.uint64(0))
        else:
            words = _part(rules, part, rollout, start, acted, columns)
            parts.append(words)
        all_parts.append(words)
    alone = rules.key == ("reply",)
    key = all_parts[0] if alone else np.where(known, _mixed(all_parts), np.uint64(0))
    return Carried(key, known, np.where(known, latest, -1), parts)


def _flag(columns: Mapping[str, tuple[Words, Bools]], name: str, n: int) -> Bools:
    return columns[name][0].astype(bool) if name in columns else np.zeros(n, bool)


def _part(
    rules: RuleFile,
    part: str,
    rollout: Ints,
    start: Ints,
    acted: Bools,
    columns: Mapping[str, tuple[Words, Bools]],
) -> Words:
    if part.startswith(("column:", "column?:")):
        name = f"column {part.split(':', 1)[1]}"
        if name not in columns:
            return np.zeros(len(rollout), np.uint64)
        values, given = columns[name]
        return np.where(given, values, np.uint64(0))
    number, slot = next((i, s) for i, s in enumerate(rules.slot) if s.name == part)
    return _slot(number, slot, rollout, start, acted, columns)


def _latest(given: Bools, start: Ints) -> Ints:
    """Row of the latest given value of the rollout up to each row, -1 if there is none."""
    at = np.maximum.accumulate(np.where(given, np.arange(len(given)), -1))
    return np.where(at >= start, at, -1)


def _slot(
    number: int,
    slot: Slot,
    rollout: Ints,
    start: Ints,
    acted: Bools,
    columns: Mapping[str, tuple[Words, Bools]],
) -> Words:
    """State of one slot at each row, uint64 (n,); 0 is unset."""
    n = len(rollout)
    value, given = np.zeros(n, np.uint64), np.zeros(n, bool)
    events: list[tuple[Ints, Words, Words]] = []
    total = np.zeros(n, np.int64)
    for u, update in enumerate(slot.update):
        name = f"s{number}u{u}"
        if name not in columns:
            continue
        new, applies = columns[name]
        key = columns[f"{name}k"][0] if f"{name}k" in columns else np.zeros(n, np.uint64)
        if update.on == "action":
            new, applies, key = _after(new), _after(applies) & acted, _after(key)
            if update.reply:
                applies = applies & columns[f"{name}r"][0].astype(bool)
        new = np.zeros(n, np.uint64) if update.clear else np.maximum(new, np.uint64(1))
        at = np.flatnonzero(applies)
        match slot.kind:
            case "count":
                total[at] += update.add
            case "last":
                value[at], given[at] = new[at], True
            case "map":
                events.append((at, key[at], new[at]))
            case "set":
                events.append((at, new[at], new[at]))
            case "sequence":
                events.append((at, np.zeros(len(at), np.uint64), new[at]))
    if slot.kind == "last":
        latest = _latest(given, start)
        return np.where(latest >= 0, value[latest], np.uint64(0))
    if slot.kind == "count":
        running = np.cumsum(total)
        running = running - (running - total)[start]
        return (running % slot.modulo if slot.modulo > 0 else running).astype(np.uint64)
    return _accumulated(events, slot.kind, rollout, start)


def _after(values: NDArray[_T]) -> NDArray[_T]:
    """Each row gets the value of the row before."""
    shifted = np.zeros_like(values)
    shifted[1:] = values[:-1]
    return shifted


def _accumulated(
    events: list[tuple[Ints, Words, Words]], kind: str, rollout: Ints, start: Ints
) -> Words:
    """Order-free digest of everything set so far, as running sums of mixed words.

    Each (key, value) in force adds one word; a new value of a key takes the old one's word off.
    """
    row = np.concatenate([e[0] for e in events]) if events else np.empty(0, np.int64)
    key = np.concatenate([e[1] for e in events]) if events else np.empty(0, np.uint64)
    value = np.concatenate([e[2] for e in events]) if events else np.empty(0, np.uint64)
    order = np.lexsort((row, key, rollout[row]))
    row, key, value = row[order], key[order], value[order]
    same = np.zeros(len(row), bool)
    same[1:] = (rollout[row][1:] == rollout[row][:-1]) & (key[1:] == key[:-1])
    if kind == "sequence":
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(row)))) if len(row) else row
        place = (np.arange(len(row)) - first).astype(np.uint64)
        change = _scrambled(value ^ _scrambled(place))
    else:
        word = np.where(value == 0, np.uint64(0), _scrambled(key ^ _scrambled(value)))
        change = word.copy()
        change[same] -= word[np.flatnonzero(same) - 1]
        if kind == "set":
            change[same] = 0
    added = np.zeros(len(rollout), np.uint64)
    np.add.at(added, row, change)
    running = np.cumsum(added)
    return running - (running - added)[start]


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
