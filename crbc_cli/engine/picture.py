"""One group at several closure depths, with all of its text: what a drawing of it is made from."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.explain import explain_group
from crbc_cli.engine.explanation import GroupExplanation, TrajectoryFacts
from crbc_cli.engine.prepare import Prepared
from crbc_cli.engine.shares import EvidenceShares, evidence_shares
from crbc_cli.engine.terms import trajectory_terms
from crbc_cli.engine.texts import Text, TextReader, row_texts
from crbc_cli.methods.crbc import crbc
from crbc_cli.process.coverage import coverage_by_depth, reachable_sets
from crbc_cli.process.empirical import EmpiricalProcess

__all__ = ["DEPTHS", "DepthNumbers", "GroupPicture", "picture_group"]

DEPTHS = (0.0, 1.0, 2.0, 3.0, 5.0, math.inf)
"""Depths that are always drawn; those of the run and where coverage settles come on top."""


@dataclass(frozen=True, slots=True)
class DepthNumbers:
    """Numbers of one depth.

    Attributes:
      depth: K.
      state_value: V by anchor.
      reachable: by anchor, the rollouts whose evidence reaches it, as bits of a whole number:
        bit j is the j-th rollout of `taking_part`.
      action_value, credit, step_credit: Q, Q - V and A_S, by anchor and action as `GroupPicture`
        lists them.
    """

    depth: float
    state_value: list[float]
    reachable: list[int]
    action_value: list[float]
    credit: list[float]
    step_credit: list[float]


@dataclass(frozen=True)
class GroupPicture:
    """A group to be drawn.

    Attributes:
      group: the group; its actions in order are those of the first anchor, the second, and so on.
      depths: numbers by depth, shallow first.
      settled: smallest depth at which every anchor reaches all that it ever does.
      taking_part: indices of the rollouts that the bits of `reachable` stand for.
      led_to: for each row its next anchor, SUCCESS (-1) or FAILURE (-2); None where a row is no
        visit.
      texts: (observation, action) of each row, rollout by rollout.
      terms: terms of each rollout's group advantage, as at its first row.
      evidence: what the run's numbers are made of, by anchor and action; empty unless asked for.
    """

    group: GroupExplanation
    depths: tuple[DepthNumbers, ...]
    settled: int
    taking_part: tuple[int, ...]
    led_to: tuple[int | None, ...]
    texts: tuple[Text, ...]
    terms: tuple[TrajectoryFacts | None, ...]
    evidence: tuple[EvidenceShares, ...] = ()

    @property
    def run(self) -> int:
        """Which of `depths` the run's own options ask for."""
        wanted = self.group.settings.credit.depth
        return next(i for i, numbers in enumerate(self.depths) if numbers.depth == wanted)


def picture_group(
    log: Prepared,
    clock: Clock,
    *,
    depths: Sequence[float] = DEPTHS,
    evidence: bool = False,
    read_texts: TextReader = row_texts,
) -> GroupPicture:
    """Everything a drawing of a group needs.

    Args:
      log: a log of one group, see `Prepared.only`.
      clock: stages are added to.
      depths: depths to solve at, besides the run's and the one at which coverage settles.
      evidence: also take the numbers of every action apart, which costs two solves for each.
      read_texts: where the text of rows comes from.
    Raises:
      ClosureError: as `credit_table`.
    """
    group = explain_group(log, clock, read_texts)
    [chunk] = log.chunks(clock)
    process = chunk.process
    with clock("coverage"):
        settled = sum(1 for _ in coverage_by_depth(process)) - 1
    with clock("solve"):
        every = sorted({*depths, float(max(settled, 0)), log.settings.credit.depth})
        numbers = tuple(_numbers(log, process, depth, group.group_status) for depth in every)
    with clock("read"):
        rows = [int(row) for row in log.rollouts.row]
        texts = read_texts(log, rows)
    led_to: list[int | None] = [None] * len(rows)
    for position, successor in zip(
        chunk.position.tolist(), process.successor.tolist(), strict=True
    ):
        led_to[position] = successor
    first = log.rollouts.offsets[:-1].tolist()
    taking_part = np.unique(log.rollouts.rollout[chunk.position]).tolist()
    return GroupPicture(
        group,
        numbers,
        max(settled, 0),
        tuple(taking_part),
        tuple(led_to),
        tuple(texts[row] for row in rows),
        tuple(trajectory_terms(log, position) for position in first),
        tuple(_evidence(log, process, chunk.position, group)) if evidence else (),
    )


def _evidence(
    log: Prepared, process: EmpiricalProcess, position: NDArray[np.int64], group: GroupExplanation
) -> Iterator[EvidenceShares]:
    rollout = log.rollouts.rollout[position]
    listed = np.argsort(process.pair_state, kind="stable").tolist()
    actions = [
        (index, action.action)
        for anchor in group.anchors
        for index, action in enumerate(anchor.actions)
    ]
    name_of = dict(zip(listed, actions, strict=True))
    for pair in listed:
        yield evidence_shares(process, pair, log.settings.credit, rollout, name_of.__getitem__)


def _numbers(log: Prepared, process: EmpiricalProcess, depth: float, status: str) -> DepthNumbers:
    options, term = replace(log.settings.credit, depth=depth), log.settings.group_advantage
    penalised = term.invalid_penalty in ("step", "both")
    step = crbc(process, options, term.penalty / term.success_reward if penalised else 0.0)
    _, visit_of_state = np.unique(process.state, return_index=True)
    _, visit_of_pair = np.unique(process.pair, return_index=True)
    listed = visit_of_pair[np.argsort(process.pair_state, kind="stable")]

    def of_pairs(values: NDArray[np.float64]) -> list[float]:
        chosen: list[float] = values[listed].tolist()
        return chosen

    step_credit = of_pairs(step.step_credit)
    if status == "singleton" and term.singleton != "raw":
        step_credit = [0.0] * len(step_credit)

    return DepthNumbers(
        depth,
        step.state_value[visit_of_state].tolist(),
        reachable_sets(process, depth),
        of_pairs(step.action_value),
        of_pairs(step.credit),
        step_credit,
    )
