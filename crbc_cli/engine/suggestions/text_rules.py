"""Text operations that join anchors, tried one after the other."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from crbc_cli.anchors.rulefile import Op, RuleFile
from crbc_cli.engine.suggestions.layout import layouts
from crbc_cli.engine.suggestions.ledger import Search
from crbc_cli.engine.suggestions.trial import Trial
from crbc_cli.engine.suggestions.volatile import Mask

__all__ = ["text_operations", "volatile_spans"]

_ROUNDS = 3
_NORMALIZE = ("nfc", "whitespace", "case")
_SAFE = ("nfc", "whitespace", "task")
"""What never is a state, so that joining anchors needs no gain."""


def _with_ops(rules: RuleFile, ops: Sequence[Op]) -> RuleFile:
    return msgspec.structs.replace(rules, reply=(*rules.reply, *ops))


def text_operations(search: Search) -> None:
    """White space, case, list order, and tasks around first observations."""
    for _ in range(_ROUNDS):
        size = len(search.found)
        for layout in layouts(search.sample, search.rules):
            rules = _with_ops(search.rules, layout.ops)
            trial = search.sample.trial(rules)
            safe = layout.kind in _SAFE and _joins(search.now, trial)
            no_worse = trial.hits >= search.now.hits and trial.misses <= search.now.misses
            if (safe and no_worse) or _worth_merging(search.now, trial):
                option = f"--normalize {layout.kind}" if layout.kind in _NORMALIZE else ""
                change = {"reply": list(layout.ops)}
                search.take(layout.kind, layout.why, rules, trial, change, option)
                break
        if len(search.found) == size:
            break


def volatile_spans(search: Search, found: Sequence[Mask]) -> None:
    """Masks. Those that are certain are tried together, since one alone joins nothing where a text
    has two; each that makes no difference to the others is left out."""
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
    """Whether fewer anchors are left, by more than a few of thousands."""
    return before.anchors - after.anchors >= max(1, 0.002 * before.anchors)


def _worth_merging(before: Trial, after: Trial) -> bool:
    """Whether other rollouts foretell more visits, and hardly more of them wrongly."""
    gained, worse = after.hits - before.hits, after.misses - before.misses
    rate = before.misses / max(before.hits + before.misses, 1.0)
    return gained >= max(3.0, 0.002 * before.visits) and worse <= max(2 * rate, 0.1) * gained


def _quoted(text: str) -> str:
    """A shell word."""
    return "'" + text.replace("'", "'\\''") + "'"
