"""Rollouts of each task cut into groups of another size, to ask what fewer rollouts would tell."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import OptionError
from crbc_cli.rollouts.identity import Rollouts
from crbc_cli.rollouts.outcomes import Outcomes, group_status

__all__ = ["Cut", "cuts_of", "regrouped"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Cut:
    """Rollouts sorted into new groups; those left over take no part.

    Attributes:
      rollout: int64 (k,), rollouts of the log, by new group and then in canonical order.
      group: int64 (k,), new group of each, non-decreasing from 0.
      task: int64 (groups,), task of each new group.
    """

    rollout: Ints
    group: Ints
    task: Ints


def cuts_of(
    rollouts: Rollouts, task: Ints, usable: Bools, *, size: int, cuts: int, seed: int
) -> Iterator[Cut]:
    """Cuts of each task's rollouts into disjoint groups of `size`.

    Args:
      rollouts: the log.
      task: int64 (r,), task of each rollout; all groups of a task are pooled.
      usable: bool (r,), rollouts that have an outcome.
      size: rollouts per group, at least 2.
      cuts: number of random cuts; 0 cuts once, in the order of the log.
      seed: of the random cuts; cut number i is the same for every number of cuts.
    Raises:
      OptionError: no task has `size` rollouts.
    """
    if size < 2:
        raise OptionError(f"--group-size {size} is not at least 2")
    most = int(np.bincount(task[usable]).max(initial=0))
    if most < size:
        raise OptionError(
            f"--group-size {size}: no task has as many rollouts (at most {most})",
            todo="name the column that tells tasks apart with --task",
        )
    if not cuts:
        yield _cut(task, usable, rollouts.first, size)
    generator = np.random.default_rng(seed)
    for _ in range(cuts):
        yield _cut(task, usable, generator.random(len(task)), size)


def _cut(task: Ints, usable: Bools, key: NDArray[np.generic], size: int) -> Cut:
    """Blocks of `size` of each task's usable rollouts in the order of `key`."""
    order = np.lexsort((key, task))
    order = order[usable[order]]
    mine = task[order]
    number = np.bincount(mine)
    place = np.arange(len(order)) - (np.cumsum(number) - number)[mine]
    whole = place < number[mine] // size * size
    order, mine, place = order[whole], mine[whole], place[whole]
    group = np.cumsum(place % size == 0) - 1
    inside = np.lexsort((order, group))
    return Cut(order[inside], group, mine[::size])


def regrouped(log: Prepared, cut: Cut) -> Prepared:
    """The log with the groups of a cut; a rollout in no group is left out.

    `rollouts.row` still names rows of `log.frame`; what is kept per row of that frame (copies of
    rows, group of every row) says nothing about the new groups and is empty.
    """
    old, chosen = log.rollouts, cut.rollout
    length = old.lengths[chosen]
    offsets = np.concatenate([[0], np.cumsum(length)])
    row = np.arange(offsets[-1]) + np.repeat(old.offsets[chosen] - offsets[:-1], length)
    nothing = np.empty(0, np.int64)
    rollouts = Rollouts(
        row=old.row[row],
        rollout=np.repeat(np.arange(len(chosen)), length),
        step=old.step[row],
        offsets=offsets,
        group=cut.group,
        groups=len(cut.task),
        copies=np.empty((0, 2), np.int64),
        discarded=nothing,
        group_of_row=nothing,
    )
    return replace(
        log,
        rollouts=rollouts,
        outcomes=_outcomes_of(log, rollouts, chosen),
        anchor_key=log.anchor_key[row],
        action_key=log.action_key[row],
        has_anchor=log.has_anchor[row],
        thought=log.thought[row],
        invalid=log.invalid[row],
        reward=None if log.reward is None else log.reward[row],
        next_key=log.next_key[chosen],
        has_next=log.has_next[chosen],
        continues=log.continues[chosen],
    )


def _outcomes_of(log: Prepared, rollouts: Rollouts, chosen: Ints) -> Outcomes:
    """Facts of the chosen rollouts, and what kind of group each new group is."""
    old, options = log.outcomes, log.settings.outcome
    own = {f.name: getattr(old, f.name)[chosen] for f in fields(old) if f.name != "group_status"}
    worths = [own["reward"]] if options.boundary == "outcome" else [own["reward"], own["boundary"]]
    status = group_status(
        rollouts, own["counts"], own["success"], worths, options.expected_group_size
    )
    return Outcomes(**own, group_status=status)
