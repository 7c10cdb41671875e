"""The search for rules: candidates one after the other, each kept only if trying it pays.

Order: text operations first, since everything reads texts; then rows that are no steps and replies
that say nothing; then carried slots, and once these explain what follows, silent replies again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import Op, RuleFile
from crbc_cli.engine.suggestions.frames import Frames
from crbc_cli.engine.suggestions.layout import layouts
from crbc_cli.engine.suggestions.sample import Sample, Trial
from crbc_cli.engine.suggestions.silent import (
    EMPTY,
    no_op_candidates,
    situated,
    thoughts,
    worth_inheriting,
)
from crbc_cli.engine.suggestions.slots import (
    HITS_PER_MISS,
    Candidate,
    candidates,
    renamed,
    worth_splitting,
)
from crbc_cli.engine.suggestions.volatile import masks

__all__ = ["Numbers", "Search", "Suggestion", "suggest"]

_ROUNDS = 3
_MOST_SLOTS = 6

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Numbers:
    """A trial in numbers.

    Attributes:
      visits, anchors: sizes on the sample.
      shared: share of the visits on anchors of several rollouts.
      conflict_rate: see `crbc_cli.process.quality`; None where no pair is visited twice.
      foretold: expected visits that other rollouts foretell.
      wrong: expected visits that they foretell wrongly.
    """

    visits: int
    anchors: int
    shared: float
    conflict_rate: float | None
    foretold: float
    wrong: float

    @classmethod
    def of(cls, trial: Trial) -> "Numbers":
        return cls(
            trial.visits,
            trial.anchors,
            trial.shared,
            trial.conflicts.rate,
            round(trial.hits, 3),
            round(trial.misses, 3),
        )


@dataclass(frozen=True)
class Suggestion:
    """One change of the rules.

    Attributes:
      kind: clock, counter, uuid, whitespace, task, thought, missing, no-op, slot, key, …
      why: the evidence.
      change: entries of a rule file; lists of patterns and the key are whole, tables are added.
      option: the same as a command-line option, "" if there is none.
      before, after: numbers on the sample.
    """

    kind: str
    why: str
    change: Mapping[str, object]
    option: str
    before: Numbers
    after: Numbers


@dataclass
class Search:
    """Rules under construction.

    Attributes:
      sample: what rules are tried on.
      rules: rules so far.
      now: their trial.
      found: what was suggested so far.
    """

    sample: Sample
    rules: RuleFile
    now: Trial
    found: list[Suggestion]

    def take(
        self,
        kind: str,
        why: str,
        rules: RuleFile,
        trial: Trial,
        change: Mapping[str, object],
        option: str = "",
    ) -> None:
        """Keeps a change."""
        before, after = Numbers.of(self.now), Numbers.of(trial)
        self.found.append(Suggestion(kind, why, change, option, before, after))
        self.rules, self.now = rules, trial


def suggest(sample: Sample, rules: RuleFile) -> Search:
    """Rules that a log suggests on top of those it was read with.

    Args:
      sample: rows.
      rules: rules to start from.
    """
    search = Search(sample, rules, sample.trial(rules), [])
    _text_operations(search)
    _missing_and_thoughts(search)
    frames = Frames.of(search.sample, ~search.now.rows.thought)
    for _ in range(_ROUNDS):
        size = len(search.found)
        _no_ops(search, frames)
        _slots(search, frames)
        if len(search.found) == size:
            break
    if _place_for_reply(search, frames):
        _slots(search, frames)
    return search


def _with_ops(rules: RuleFile, ops: Sequence[Op]) -> RuleFile:
    return msgspec.structs.replace(rules, reply=(*rules.reply, *ops))


def _text_operations(search: Search) -> None:
    _volatile_spans(search)
    for _ in range(_ROUNDS):
        size = len(search.found)
        for layout in layouts(search.sample, search.rules):
            rules = _with_ops(search.rules, layout.ops)
            trial = search.sample.trial(rules)
            if _worth_merging(search.now, trial):
                option = f"--normalize {layout.kind}" if layout.kind in _NORMALIZE else ""
                change = {"reply": list(layout.ops)}
                search.take(layout.kind, layout.why, rules, trial, change, option)
                break
        if len(search.found) == size:
            break


_NORMALIZE = ("nfc", "whitespace", "case")


def _volatile_spans(search: Search) -> None:
    """Masks. Those that are certain are tried together, since one alone joins nothing where a text
    has two; each that makes no difference to the others is left out."""
    found = masks(search.sample, search.rules)
    certain = [mask for mask in found if mask.certain]
    together = search.sample.trial(_with_ops(search.rules, [m.op for m in certain]))
    for mask in reversed(certain.copy()):
        others = [m for m in certain if m is not mask]
        without = search.sample.trial(_with_ops(search.rules, [m.op for m in others]))
        if not _joins(without, together):
            certain, together = others, without
    for mask in [*certain, *(m for m in found if not m.certain)]:
        rules = _with_ops(search.rules, [mask.op])
        trial = search.sample.trial(rules)
        if mask in certain or (_joins(search.now, trial) and _worth_merging(search.now, trial)):
            option = f"--mask {_quoted(mask.pattern)}"
            search.take(mask.kind, mask.why, rules, trial, {"reply": [mask.op]}, option)
            if mask.pattern.startswith("^"):
                prefix = mask.pattern.removeprefix(r"^\s*")
                search.sample = replace(search.sample, prefix=prefix)


def _joins(before: Trial, after: Trial) -> bool:
    """Whether clearly fewer anchors are left."""
    return after.anchors < before.anchors - max(2, 0.002 * before.anchors)


def _worth_merging(before: Trial, after: Trial) -> bool:
    """Whether other rollouts foretell more visits, and hardly more of them wrongly; or fewer
    anchors foretell as much."""
    gained, worse = after.hits - before.hits, after.misses - before.misses
    if _joins(before, after) and gained >= 0 and worse <= 0:
        return True
    rate = before.misses / max(before.hits + before.misses, 1.0)
    return gained >= max(3.0, 0.002 * before.visits) and worse <= max(2 * rate, 0.1) * gained


def _quoted(text: str) -> str:
    """A shell word."""
    return "'" + text.replace("'", "'\\''") + "'"


def _missing_and_thoughts(search: Search) -> None:
    sample = search.sample
    step = ~search.now.rows.thought
    if not search.rules.thought:
        for pattern in thoughts(sample):
            rules = msgspec.structs.replace(
                search.rules, thought=(*search.rules.thought, pattern.pattern)
            )
            change = {"thought": list(rules.thought)}
            search.take("thought", pattern.why, rules, sample.trial(rules), change)
    step = ~search.now.rows.thought
    answers = np.flatnonzero(~sample.first & np.roll(step, 1))
    empty = sample.observation.str.contains(EMPTY).fill_null(False)
    if empty.any() and EMPTY not in search.rules.missing:
        rules = msgspec.structs.replace(search.rules, missing=(*search.rules.missing, EMPTY))
        why = f"{int(empty.sum())} replies are empty, {int(empty.gather(answers).sum())} to a step"
        search.take("missing", why, rules, sample.trial(rules), {"missing": list(rules.missing)})


def _no_ops(search: Search, frames: Frames) -> None:
    sample = search.sample
    some = situated(sample, search.now, sample.base(search.rules))
    for pattern in no_op_candidates(sample, frames, search.rules, search.now):
        rules = msgspec.structs.replace(search.rules, no_op=(*search.rules.no_op, pattern.pattern))
        trial = sample.trial(rules)
        silent = sample.observation.str.contains(pattern.pattern).fill_null(False).to_numpy()
        evidence = np.ones_like(some) if pattern.general else some
        if worth_inheriting(search.now, trial, silent, evidence, pattern.plain):
            search.take("no-op", pattern.why, rules, trial, {"no_op": list(rules.no_op)})


def _slots(search: Search, frames: Frames) -> None:
    """Slots, the one that pays most first."""
    sample, rules = search.sample, search.rules
    offered = candidates(sample, frames, rules)
    words = _words(sample, rules, offered)
    base = sample.base(rules)
    left = list(range(len(offered)))
    while left and len(search.rules.slot) - len(rules.slot) < _MOST_SLOTS:
        trials = {i: sample.judge(search.now.rows.split(words[i]), base) for i in left}
        worth = [i for i in left if worth_splitting(search.now, trials[i])]
        if not worth:
            break
        best = max(worth, key=lambda i: trials[i].hits - HITS_PER_MISS * trials[i].misses)
        left.remove(best)
        slot = renamed(offered[best].slot, search.rules)
        wider = msgspec.structs.replace(
            search.rules, slot=(*search.rules.slot, slot), key=(*search.rules.key, slot.name)
        )
        change = {"slot": [slot], "key": list(wider.key)}
        search.take("slot", offered[best].why, wider, trials[best], change)


def _place_for_reply(search: Search, frames: Frames) -> bool:
    """A place in the key instead of the reply, since looking, examining and arriving give
    different texts in one situation; only if other rollouts foretell no more visits wrongly."""
    sample, rules = search.sample, search.rules
    if rules.key == ("reply",) or "reply" not in rules.key:
        return False
    kept = tuple(part for part in rules.key if part != "reply")
    offered = [c for c in candidates(sample, frames, rules) if c.place]
    attempts = [("the slots of the key already tell it", rules, kept)] if _has_place(rules) else []
    for candidate in offered:
        slot = renamed(candidate.slot, rules)
        wider = msgspec.structs.replace(rules, slot=(*rules.slot, slot))
        attempts.append((candidate.why, wider, (slot.name, *kept)))
    best: tuple[str, RuleFile, Trial] | None = None
    for why, wider, key in attempts:
        bare = msgspec.structs.replace(wider, key=key)
        trial = sample.trial(bare)
        gained, worse = trial.hits - search.now.hits, trial.misses - search.now.misses
        worth = gained >= max(3.0, 0.005 * search.now.visits) and worse <= 0.5 + 0.002 * gained
        if worth and (best is None or trial.hits > best[2].hits):
            best = why, bare, trial
    if best is None:
        return False
    why, bare, trial = best
    change: dict[str, object] = {"key": list(bare.key)}
    if len(bare.slot) > len(rules.slot):
        change["slot"] = list(bare.slot[len(rules.slot) :])
    search.take("key", f"{why}; beside it the reply tells nothing more", bare, trial, change)
    return True


def _has_place(rules: RuleFile) -> bool:
    return any(slot.kind == "last" and slot.name in rules.key for slot in rules.slot)


def _words(sample: Sample, rules: RuleFile, offered: Sequence[Candidate]) -> list[Words]:
    """What each offered slot holds in each row."""
    if not offered:
        return []
    names = tuple(f"offer{number}" for number in range(len(offered)))
    slots = list(rules.slot)
    for name, candidate in zip(names, offered, strict=True):
        slots.append(msgspec.structs.replace(candidate.slot, name=name))
    return sample.rows_under(msgspec.structs.replace(rules, slot=tuple(slots), key=names)).parts
