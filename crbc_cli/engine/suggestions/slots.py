"""Carried slots that make what follows easier to foretell.

Candidates come from templates alone: what a command such as `go to {a}` names is a place that the
rollout is at until the next such command; two replies that take turns for one thing (`You pick up
{a} from {b}.`, `You put {a} in/on {b}.`) say where it is; other replies say what was done to it.
Which of them are worth having is decided by trying them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import RuleFile, Slot, Update
from crbc_cli.engine.suggestions.frames import Event, Frames, Template
from crbc_cli.engine.suggestions.sample import Sample
from crbc_cli.engine.suggestions.trial import Trial
from crbc_cli.process.agreement import codes

__all__ = ["HITS_PER_MISS", "REFUSAL", "Candidate", "candidates", "renamed", "worth_splitting"]

REFUSAL = re.compile(r"\b(?:not|no|nothing|can't|cannot|don't|already|unable|invalid)\b", re.I)
"""Words of a reply that says by itself that nothing happened."""

HITS_PER_MISS = 8.0
"""What a visit foretold wrongly is worth in visits foretold rightly."""

_TURNS = 0.9
_LEAST_TURNS = 3
_MOVES = 0.9
_CHANGES = 0.3

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Candidate:
    """A slot that may be worth having.

    Attributes:
      slot: it.
      why: what in the log speaks for it.
      place: it says where the rollout is.
    """

    slot: Slot
    why: str
    place: bool = False


def worth_splitting(before: Trial, after: Trial) -> bool:
    """Whether telling more anchors apart is worth the evidence that rollouts no longer share.

    Splitting in vain loses hits and misses in the same proportion: clearly more misses must go (by
    three standard deviations of a count). And a miss that goes may cost `HITS_PER_MISS` hits.
    """
    lost = max(before.hits - after.hits, 0.0)
    removed = before.misses - after.misses
    vain = before.misses * lost / max(before.hits, 1.0)
    return removed - vain >= 3 * max(vain, 1.0) ** 0.5 and HITS_PER_MISS * removed >= lost


def candidates(sample: Sample, frames: Frames, rules: RuleFile) -> list[Candidate]:
    """Slots that templates of commands and replies suggest.

    Args:
      sample: rows.
      frames: its templates.
      rules: rules so far; their slots are not offered again.
    """
    known = [slot.update for slot in rules.slot]
    return [
        candidate
        for candidate in (
            *_things(sample, frames.replies),
            *_places(sample, frames.headers, _CHANGES),
            *_places(sample, [*frames.replies, *frames.commands], _MOVES),
        )
        if candidate.slot.update not in known
    ]


def _places(sample: Sample, found: Sequence[Event], least: float) -> list[Candidate]:
    """`last` slots: templates whose phrase is another one in at least a share of the cases."""
    out = []
    for event in found:
        if len(event.phrases) != 1 or len(event.row) < 2 * _LEAST_TURNS:
            continue
        rollout, phrase = (
            sample.rollout[event.row],
            codes(event.phrases[0].hash().to_numpy().view(np.int64)),
        )
        follows = rollout[1:] == rollout[:-1]
        moves = (phrase[1:] != phrase[:-1])[follows]
        if len(moves) < _LEAST_TURNS or moves.mean() < least or phrase.max() == 0:
            continue
        template = event.template
        update = Update(on=template.on, pattern=template.pattern, value="{a}")
        slot = Slot(name=_name(template, "at"), kind="last", update=(update,))
        often = f"in {100 * moves.mean():.0f} % of the cases ({len(event.row)} rows)"
        why = f"`{template.words}` names another {{a}} {often}"
        out.append(Candidate(slot, why, place=True))
    return out


def _things(sample: Sample, found: Sequence[Event]) -> list[Candidate]:
    """Slots about the thing a reply names: turns of several replies, and replies on their own."""
    out: list[Candidate] = []
    left = [event for event in found if event.phrases and not REFUSAL.search(event.template.words)]
    while sides := _best_pair(sample, left):
        left = [event for event in left if event not in sides[0] + sides[1]]
        for event in list(left):
            for wider in (([event, *sides[0]], sides[1]), ([event, *sides[1]], sides[0])):
                number, share = _turns_of(sample, *wider, own=len(event.row))
                if number >= _LEAST_TURNS and share >= _TURNS:
                    sides = wider
                    left.remove(event)
                    break
        first, second = sides
        if _begins(sample, first, second) < 0.5:
            first, second = second, first
        out += _turns(first, second)
    return [*out, *(_done(event) for event in left)]


def _best_pair(sample: Sample, found: Sequence[Event]) -> tuple[list[Event], list[Event]] | None:
    """The two replies that take the most turns for one thing, None if none do."""
    best: tuple[int, tuple[list[Event], list[Event]]] | None = None
    for one, two in combinations(found, 2):
        number, share = _turns_of(sample, [one], [two])
        if share >= _TURNS and number >= _LEAST_TURNS and (best is None or number > best[0]):
            best = number, ([one], [two])
    return best and best[1]


def _turns_of(
    sample: Sample, first: Sequence[Event], second: Sequence[Event], own: int | None = None
) -> tuple[int, float]:
    """(turns from side to side, their share of all steps from event to event) of the same thing in
    the same rollout; if given, only of steps from or to the first `own` rows."""
    row, side, thing = _merged(first, second)
    place = codes(sample.rollout[row], thing)
    order = np.lexsort((row, place))
    steps = place[order][1:] == place[order][:-1]
    if own is not None:
        mine = order < own
        steps &= mine[1:] | mine[:-1]
    turn = (side[order][1:] != side[order][:-1])[steps]
    return int(turn.sum()), float(turn.mean()) if len(turn) else 0.0


def _merged(first: Sequence[Event], second: Sequence[Event]) -> tuple[Ints, Ints, Ints]:
    """(row, side, code of the thing named) of all events."""
    sided = [(event, side) for side, group in enumerate((first, second)) for event in group]
    row = np.concatenate([event.row for event, _ in sided])
    side = np.concatenate([np.full(len(event.row), side) for event, side in sided])
    words = [event.phrases[0].str.to_lowercase().hash().to_numpy() for event, _ in sided]
    return row, side, codes(np.concatenate(words).view(np.int64))


def _begins(sample: Sample, first: Sequence[Event], second: Sequence[Event]) -> float:
    """Share of things whose first event of the rollout is on the first side."""
    row, side, thing = _merged(first, second)
    place = codes(sample.rollout[row], thing)
    order = np.lexsort((row, place))
    starts = np.diff(place[order], prepend=-1) != 0
    return float((side[order][starts] == 0).mean())


def _turns(first: Sequence[Event], second: Sequence[Event]) -> list[Candidate]:
    """Where a thing is, or which of two conditions it is in; once per thing, and for one thing."""
    first, second = (sorted(side, key=lambda event: -len(event.row)) for side in (first, second))
    label = _verb(first[0].template), _verb(second[0].template)

    def value(event: Event, side: int) -> str:
        return "{b}" if side and len(event.phrases) > 1 else label[side]

    def origin(event: Event, side: int) -> str:
        return "{b}" if not side and len(event.phrases) > 1 else label[1 - side]

    sides = [(event, side) for side, group in enumerate((first, second)) for event in group]
    whole = tuple(
        Update(
            on="reply",
            pattern=event.template.pattern,
            key="{a}",
            value=value(event, side),
            origin=origin(event, side),
        )
        for event, side in sides
    )
    latest = tuple(
        Update(on="reply", pattern=event.template.pattern, clear=True)
        if side
        else Update(on="reply", pattern=event.template.pattern, value="{a}")
        for event, side in sides
    )
    words = " and ".join(
        "/".join(f"`{e.template.words}`" for e in group) for group in (first, second)
    )
    why = f"{words} take turns for one {{a}}"
    name = _name(first[0].template, "things")
    return [
        Candidate(Slot(name=name, kind="map", update=whole), why),
        Candidate(Slot(name=name, kind="last", update=latest), why),
    ]


def _done(event: Event) -> Candidate:
    """What was done to a thing."""
    template = event.template
    update = Update(on="reply", pattern=template.pattern, key="{a}", value=_verb(template))
    slot = Slot(name=_name(template, "done"), kind="map", update=(update,))
    return Candidate(
        slot, f"`{template.words}` says what was done to {{a}} ({len(event.row)} rows)"
    )


def _verb(template: Template) -> str:
    """The words of a template that are not holes, without a leading "You"."""
    words = re.sub(r"\{\w\}", " ", template.words).split()
    words = [w for w in words if w.lower() not in ("you", "the", "a", "an")]
    return " ".join(words) or "seen"


def _name(template: Template, default: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", _verb(template).lower()).strip("_")[:24].strip("_")
    return name if re.match(r"[a-z]", name) else default


def renamed(slot: Slot, rules: RuleFile) -> Slot:
    """The slot under a name that the rules do not use yet."""
    taken = {"reply", *(other.name for other in rules.slot)}
    name, number = slot.name, 2
    while name in taken:
        name, number = f"{slot.name}_{number}", number + 1
    return msgspec.structs.replace(slot, name=name)
