"""The search for rules: candidates one after the other, each kept only if trying it pays.

Order: text operations first, since everything reads texts; then rows that are no steps and replies
that say nothing; then carried slots, and once these explain what follows, silent replies again.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.engine.suggestions.frames import Frames
from crbc_cli.engine.suggestions.ledger import Search
from crbc_cli.engine.suggestions.sample import Sample
from crbc_cli.engine.suggestions.silent import (
    EMPTY,
    Pattern,
    no_op_candidates,
    plausible,
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
from crbc_cli.engine.suggestions.text_rules import text_operations, volatile_spans
from crbc_cli.engine.suggestions.trial import Trial
from crbc_cli.engine.suggestions.volatile import Mask, masks

__all__ = ["suggest"]

_ROUNDS = 3
_MOST_SLOTS = 6

Words = NDArray[np.uint64]


def suggest(sample: Sample, rules: RuleFile, spans: Sequence[Mask] | None = None) -> Search:
    """Rules that a log suggests on top of those it was read with.

    Args:
      sample: rows.
      rules: rules to start from.
      spans: volatile spans under these rules, if they are known already.
    """
    search = Search(sample, rules, sample.trial(rules), [])
    volatile_spans(search, masks(sample, rules) if spans is None else spans)
    text_operations(search)
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
    """Silent replies. They come one after the other, so that each is tried beside all others that
    are plausible on their own, and those go that then do not stand the test."""
    sample, rules = search.sample, search.rules
    some = situated(sample, search.now, sample.base(rules))

    def silenced(patterns: Sequence[Pattern]) -> RuleFile:
        added = (pattern.pattern for pattern in patterns)
        return msgspec.structs.replace(rules, no_op=(*rules.no_op, *added))

    kept = [
        pattern
        for pattern in no_op_candidates(sample, frames, rules, search.now)
        if plausible(search.now, sample.trial(silenced([pattern])), pattern)
    ]
    together = sample.trial(silenced(kept))
    for pattern in reversed(kept.copy()):
        others = [other for other in kept if other is not pattern]
        without = sample.trial(silenced(others))
        silent = sample.observation.str.contains(pattern.pattern).fill_null(False).to_numpy()
        evidence = silent if pattern.general else silent & some
        if not worth_inheriting(without, together, evidence, pattern):
            kept, together = others, without
    for number, pattern in enumerate(kept, 1):
        quieter = silenced(kept[:number])
        change = {"no_op": list(quieter.no_op)}
        search.take("no-op", pattern.why, quieter, sample.trial(quieter), change)


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
