"""One group, or one step of it, with everything its numbers were made from.

The numbers are those of `credit_table`; what stands beside them (counts, successors, sigma, the
terms of a formula) is read off the same merged process.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.anchor_parts import AnchorParts
from crbc_cli.engine.annotate import credit_table
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.explanation import (
    ActionFacts,
    AnchorFacts,
    GroupExplanation,
    RolloutFacts,
    StepExplanation,
    StepFacts,
    Successor,
    VisitFacts,
)
from crbc_cli.engine.prepare import Prepared
from crbc_cli.engine.shares import EvidenceShares, evidence_shares
from crbc_cli.engine.terms import sigma_credit, trajectory_terms, values_before
from crbc_cli.engine.texts import Text, TextReader, row_texts
from crbc_cli.methods.crbc import gate, sigma
from crbc_cli.process.empirical import SUCCESS

__all__ = ["explain_group", "explain_step"]

Ints = NDArray[np.int64]


def explain_group(
    log: Prepared, clock: Clock, read_texts: TextReader = row_texts
) -> GroupExplanation:
    """Every rollout and anchor of a group.

    Args:
      log: a log of one group, see `Prepared.only`.
      clock: stages are added to.
      read_texts: where the text of rows comes from.
    Raises:
      ClosureError: as `credit_table`.
    """
    view = _View(log, clock, read_texts)
    with clock("read"):
        texts = view.texts(view.pair_visit)
    return view.explanation([view.anchor(s, texts) for s in range(view.process.states)])


def explain_step(log: Prepared, position: int, clock: Clock) -> StepExplanation:
    """One row of a group, its anchor and the anchors it led to.

    Args:
      log: a log of one group.
      position: the row, in canonical order.
      clock: stages are added to.
    Raises:
      ClosureError: as `credit_table`.
    """
    view = _View(log, clock)
    process = view.process
    state = view.rows[position]["anchor"]
    shown: list[int] = []
    if state is not None:
        following = process.successor[process.state == state]
        shown = [state, *sorted(set(following[following >= 0].tolist()) - {state})]
    has_anchor = bool(log.has_anchor[position])
    with clock("read"):
        texts = view.texts(
            view.pair_visit, position, *(view.made.needed(position) if has_anchor else ())
        )
    group = view.explanation([view.anchor(s, texts) for s in shown])
    rollout = int(log.rollouts.rollout[position])
    facts = group.rollouts[rollout]
    observation, action = texts[position]
    return StepExplanation(
        group,
        facts,
        facts.steps[position - int(log.rollouts.offsets[rollout])],
        observation,
        action,
        trajectory_terms(log, position),
        () if state is None else tuple(view.reachable(state)),
        view.made.parts(position, texts) if has_anchor else (),
        None if state is None else view.evidence(position, texts),
    )


class _View:
    """One group's credit rows and merged process, side by side.

    `rows` are the credit table's, in canonical order; `position` is the row of each visit;
    `pair_visit` is the first visit of each (anchor, action).
    """

    def __init__(self, log: Prepared, clock: Clock, read_texts: TextReader = row_texts) -> None:
        self.log = log
        self.read_texts = read_texts
        self.rows = credit_table(log, clock)[log.rollouts.row].to_dicts()
        [chunk] = log.chunks(clock)
        self.process, self.position = chunk.process, chunk.position
        self.made = AnchorParts(log)
        process, credit = chunk.process, log.settings.credit
        self.visit_at = {p: visit for visit, p in enumerate(self.position.tolist())}
        self.visits_of_state = _members(process.state, process.states)
        self.visits_of_pair = _members(process.pair, process.pairs)
        _, self.pair_visit = np.unique(process.pair, return_index=True)
        self.pairs_of: list[list[int]] = [[] for _ in range(process.states)]
        self.action_index: list[int] = []
        for pair, state in enumerate(process.pair_state.tolist()):
            self.action_index.append(len(self.pairs_of[state]))
            self.pairs_of[state].append(pair)
        self.transitions: list[list[tuple[int, int]]] = [[] for _ in range(process.pairs)]
        for pair, successor, count in zip(*(a.tolist() for a in process.transitions), strict=True):
            self.transitions[pair].append((successor, count))
        with clock("solve"):
            self.before = values_before(process, credit)
            self.sigma_credit = sigma_credit(log, process, self.pair_visit)
            self.sigma = sigma(process, self.sigma_credit)
        self.gate = gate(process, credit.gate)
        self.returns = process.suffix_returns(credit.discount)
        invalid = process.invalid.astype(np.float64)
        self.pair_invalid = process.pair_mean(invalid)
        self.state_invalid = process.state_mean(invalid)
        self.pair_reward = None if process.reward is None else process.pair_mean(process.reward)

    def texts(self, visits: Ints, *positions: int) -> dict[int, Text]:
        """Text of some visits and of the replies that stand for them, by canonical position."""
        shown = [*self.position[visits].tolist(), *positions]
        shown = [*dict.fromkeys((*shown, *map(self.made.reply, shown)))]
        row = self.log.rollouts.row
        found = self.read_texts(self.log, [int(row[p]) for p in shown])
        return {p: found[int(row[p])] for p in shown}

    def explanation(self, anchors: Iterable[AnchorFacts]) -> GroupExplanation:
        log, frame = self.log, self.log.frame
        first = {name: frame[name][0] for name in frame.columns if name.startswith("key:")}
        return GroupExplanation(
            tuple(log.loaded.sources[i].name for i in frame["source"].unique().sort()),
            self.rows[0]["group_id"],
            {name.removeprefix("key:"): value for name, value in first.items()},
            self.rows[0]["group_status"],
            log.settings,
            tuple(self.rollout(i) for i in range(len(log.rollouts.group))),
            tuple(anchors),
        )

    def rollout(self, index: int) -> RolloutFacts:
        outcomes, offsets = self.log.outcomes, self.log.rollouts.offsets
        begin, end = int(offsets[index]), int(offsets[index + 1])
        steps = [self._step(position) for position in range(begin, end)]
        terms = {step.group_advantage for step in steps}
        return RolloutFacts(
            self.rows[begin]["source_file"],
            self.rows[begin]["rollout_id"],
            "unscored"
            if not outcomes.scored[index]
            else "success"
            if outcomes.success[index]
            else "truncated"
            if outcomes.cut[index]
            else "failure",
            bool(outcomes.counts[index]),
            terms.pop() if len(terms) == 1 else None,
            tuple(steps),
        )

    def _step(self, position: int) -> StepFacts:
        row = self.rows[position]
        visit = carried_from = None
        if row["anchor"] is not None:
            at = self._carrier(position)
            visit = self.visit_at[at]
            carried_from = None if at == position else self.rows[at]["step"]
        return StepFacts(
            action_index=None if visit is None else self.action_index[self.process.pair[visit]],
            carried_from=carried_from,
            **{name: row[name] for name in _STEP_NUMBERS},
        )

    def _carrier(self, position: int) -> int:
        """The row itself, or the environment step that follows a thought."""
        while position not in self.visit_at:
            position += 1
        return position

    def evidence(self, position: int, texts: dict[int, Text]) -> EvidenceShares:
        """What the numbers of a row are made of."""
        return evidence_shares(
            self.process,
            int(self.process.pair[self.visit_at[self._carrier(position)]]),
            self.log.settings.credit,
            self.log.rollouts.rollout[self.position],
            lambda pair: (
                self.action_index[pair],
                texts[int(self.position[self.pair_visit[pair]])][1],
            ),
        )

    def anchor(self, state: int, texts: dict[int, Text]) -> AnchorFacts:
        process = self.process
        mine = self.visits_of_state[state]
        first = self.rows[self.position[mine[0]]]
        rollout, step = self.log.rollouts.rollout, self.log.rollouts.step
        return AnchorFacts(
            state,
            texts[self.made.reply(int(self.position[mine[0]]))][0],
            first["state_value"],
            float(self.sigma[state]),
            bool(self.gate[state]),
            first["reachable_rollouts"],
            float(self.state_invalid[state]),
            tuple(self._action(pair, texts) for pair in self.pairs_of[state]),
            tuple(
                VisitFacts(
                    int(rollout[self.position[v]]),
                    int(step[self.position[v]]),
                    self.action_index[process.pair[v]],
                    float(self.returns[v]),
                )
                for v in mine.tolist()
            ),
        )

    def _action(self, pair: int, texts: dict[int, Text]) -> ActionFacts:
        position = int(self.position[self.pair_visit[pair]])
        row = self.rows[position]
        successors = [self._successor(pair, x, count) for x, count in self.transitions[pair]]
        return ActionFacts(
            texts[position][1],
            int(self.process.pair_visits[pair]),
            row["action_value"],
            row["credit"],
            row["step_credit"],
            float(self.sigma_credit[pair]),
            None if self.pair_reward is None else float(self.pair_reward[pair]),
            float(self.pair_invalid[pair]),
            tuple(sorted(successors, key=lambda x: -x.count)),
        )

    def _successor(self, pair: int, successor: int, count: int) -> Successor:
        if successor >= 0:
            value = None if self.before is None else float(self.before[successor])
            return Successor(successor, None, count, value)
        process = self.process
        visits = self.visits_of_pair[pair]
        ends = visits[process.successor[visits] == successor]
        worth = None if self.before is None else float(process.exit_value[ends].mean())
        return Successor(None, "success" if successor == SUCCESS else "failure", count, worth)

    def reachable(self, state: int) -> list[int]:
        """Rollouts that visit an anchor which observed transitions lead to."""
        process = self.process
        source, target = process.edges
        first = np.searchsorted(source, np.arange(process.states + 1)).tolist()
        following = target.tolist()
        reached, left = {state}, [state]
        while left:
            at = left.pop()
            fresh = set(following[first[at] : first[at + 1]]) - reached
            reached |= fresh
            left += fresh
        seen = self.position[np.isin(process.state, [*reached])]
        return sorted(set(self.log.rollouts.rollout[seen].tolist()))


def _members(ids: Ints, count: int) -> list[Ints]:
    """Positions of each id from 0 to count - 1, in order."""
    order = np.argsort(ids, kind="stable")
    return np.split(order, np.cumsum(np.bincount(ids, minlength=count))[:-1])


_STEP_NUMBERS = (
    "step",
    "source_row",
    "anchor",
    "state_value",
    "action_value",
    "credit",
    "step_credit",
    "group_advantage",
    "advantage",
    "reason",
)
