"""Estimators side by side on one log: how far they agree, and how close they are to a truth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.comparison import Comparison, PairAgreement
from crbc_cli.engine.disagree import Numbers, described, farthest
from crbc_cli.engine.estimate import estimate
from crbc_cli.engine.ground import Ground, codes, ground_fields, ground_of
from crbc_cli.engine.measured import Measured, differences_of, measure, results_of, size_of
from crbc_cli.engine.prepare import Prepared
from crbc_cli.engine.reader import Reader
from crbc_cli.engine.regroup import Cut, cuts_of, regrouped
from crbc_cli.engine.sweep import Entry
from crbc_cli.engine.texts import row_texts
from crbc_cli.errors import IdentityError, OptionError
from crbc_cli.methods.agreement import agreement
from crbc_cli.methods.normalise import Classes
from crbc_cli.notes import Notes

__all__ = ["CompareOptions", "compare_logs"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CompareOptions:
    """What is compared, besides methods and settings.

    Attributes:
      truth, state, task: columns; see `crbc_cli.engine.ground.ground_of`.
      group_sizes: rollouts per group; empty leaves groups as they are.
      cuts: random cuts into such groups; 0 cuts once, in the order of the log.
      seed: of the cuts.
      disagreements: steps listed per pair of methods.

    Raises:
      OptionError: cuts without a group size, or a negative number.
    """

    truth: str | None = None
    state: str | None = None
    task: str | None = None
    group_sizes: tuple[int, ...] = ()
    cuts: int = 0
    seed: int = 0
    disagreements: int = 3

    def __post_init__(self) -> None:
        for name in ("cuts", "seed", "disagreements"):
            if getattr(self, name) < 0:
                raise OptionError(f"--{name} {getattr(self, name)} is negative")
        if self.cuts and not self.group_sizes:
            raise OptionError("--cuts needs --group-size", todo="for example --group-size 8")


def compare_logs(
    readers: Sequence[Reader],
    entries: Sequence[Entry],
    options: CompareOptions,
    clock: Clock,
    notes: Notes,
) -> Comparison:
    """Computes all entries and compares them.

    Agreement is that of the first cut of each size; the rest is averaged over cuts.

    Args:
      readers, entries: of `crbc_cli.engine.sweep.plan_entries`.
      options: what is compared.
      clock, notes: filled.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    if options.group_sizes and any(r.settings.anchor.merge_similar for r in readers):
        raise OptionError(
            "--merge-similar looks at the groups of the log, not at those of --group-size",
            todo="leave one of them out",
        )
    logs = list(_read(readers, entries, options))
    ground = ground_of(logs[0], options.truth, options.state, options.task, notes)
    measured: list[Measured] = []
    pairs: list[PairAgreement] = []
    for size, cut in _cuts(logs[0], ground, options):
        shown = [log if cut is None else regrouped(log, cut) for log in logs]
        numbers = _compute(shown, entries, clock)
        with clock("combine"):
            if all(size != done.size for done in measured):
                pairs += _agreements(size, shown[0], entries, numbers, options.disagreements)
            task = _task_of_groups(ground, shown[0]) if cut is None else cut.task
            measured.append(measure(size, task, shown[0], ground, numbers))
    with clock("combine"):
        sizes = list(dict.fromkeys(done.size for done in measured))
        parts = [[done for done in measured if done.size == size] for size in sizes]
        in_value_units = [_value_units(e, n, logs) for e, n in zip(entries, numbers, strict=True)]
        return Comparison(
            entries,
            [result for part in parts for result in results_of(part, in_value_units)],
            [difference for part in parts for difference in differences_of(part)],
            pairs,
            [size_of(part) for part in parts],
            len(logs[0].rollouts.row),
            options.truth,
            ground.state_column,
            ground.task_column,
            options.cuts,
            options.seed,
            readers[0].settings.echo(),
        )


def _read(
    readers: Sequence[Reader], entries: Sequence[Entry], options: CompareOptions
) -> Iterator[Prepared]:
    """The log under each reading; all inputs at once, as a task may span files."""
    first: Prepared | None = None
    for number, reader in enumerate(readers):
        needs = [entry.chosen.needs for entry in entries if entry.reading == number]
        extra = ground_fields(reader.settings, options.truth, options.state, options.task)
        log = reader.read(
            reader.sources,
            following=any("terminal" in need for need in needs),
            extra=extra if first is None else (),
        )
        first = first or log
        if not np.array_equal(log.rollouts.row, first.rollouts.row):
            raise IdentityError(
                "settings of the sweep differ in which rows repeat others",
                todo="remove repeated rows, or sweep something else",
            )
        yield log


def _cuts(
    log: Prepared, ground: Ground, options: CompareOptions
) -> Iterator[tuple[int | None, Cut | None]]:
    """Every cut of every size; nothing but (None, None) for groups as they were logged."""
    if not options.group_sizes:
        yield None, None
    for size in options.group_sizes:
        for cut in cuts_of(
            log.rollouts,
            ground.task,
            ground.usable,
            size=size,
            cuts=options.cuts,
            seed=options.seed,
        ):
            yield size, cut


def _compute(logs: Sequence[Prepared], entries: Sequence[Entry], clock: Clock) -> list[Numbers]:
    """Numbers of each entry; entries of one reading share its merged process."""
    numbers: dict[int, Numbers] = {}
    for reading, log in enumerate(logs):
        mine = [i for i, entry in enumerate(entries) if entry.reading == reading]
        chosen = [replace(entries[i].chosen, label=str(i)) for i in mine]
        found = estimate(log, chosen, clock)
        for i in mine:
            method = found.methods[str(i)]
            numbers[i] = Numbers(
                getattr(method, entries[i].score),
                method.credit,
                method.state_value,
                method.action_value,
                found.anchor,
                found.visits,
                found.actions,
            )
    return [numbers[i] for i in range(len(entries))]


def _task_of_groups(ground: Ground, log: Prepared) -> Ints:
    """Task of each group's first rollout, int64 (groups,)."""
    group = log.rollouts.group
    return ground.task[np.searchsorted(group, np.arange(log.rollouts.groups))]


def _agreements(
    size: int | None,
    log: Prepared,
    entries: Sequence[Entry],
    numbers: Sequence[Numbers],
    most: int,
) -> list[PairAgreement]:
    """Every pair of entries, over the environment steps of the log."""
    visit = log.is_visit
    shown = [replace(n, score=np.where(visit, n.score, np.nan)) for n in numbers]
    readings = {entry.reading: n for entry, n in zip(entries, numbers, strict=True)}
    pairs = {reading: _pairs(log, n) for reading, n in readings.items()}
    found = []
    for a, b in combinations(range(len(entries)), 2):
        pair, x, y = pairs[entries[a].reading], shown[a].score, shown[b].score
        found.append((a, b, agreement(x, y, pair), farthest(x, y, pair, most)))
    positions = np.unique(np.concatenate([[], *(where for *_, where in found)]).astype(np.int64))
    texts = row_texts(log, np.unique(log.rollouts.row[positions]).tolist())
    return [
        PairAgreement(
            a,
            b,
            size,
            agreed,
            described(log, (entries[a], entries[b]), (shown[a], shown[b]), where, texts),
        )
        for a, b, agreed, where in found
    ]


def _pairs(log: Prepared, numbers: Numbers) -> Ints:
    """Distinct (group, anchor, action) of each row, int64 (n,); -1 where there is no anchor."""
    known = numbers.anchor >= 0
    anchor, action = numbers.anchor[known].astype(np.int64), codes(log.action_key)[known]
    states = Classes.build(
        log.rollouts.row_group()[known] * (int(anchor.max(initial=0)) + 1) + anchor
    )
    pair = np.full(len(known), -1, np.int64)
    pair[known] = Classes.build(states.of * (int(action.max(initial=0)) + 1) + action).of
    return pair


def _value_units(entry: Entry, numbers: Numbers, logs: Sequence[Prepared]) -> bool:
    """The numbers are differences of values on the scale of outcomes, divided by nothing."""
    if logs[entry.reading].settings.group_advantage.success_reward != 1:
        return False
    score, credit = numbers.score, numbers.credit
    return bool(np.any(~np.isnan(credit))) and np.array_equal(score, credit, equal_nan=True)
