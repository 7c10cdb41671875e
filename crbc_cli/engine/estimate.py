"""Numbers of one or several methods on one log; the merged process is built once and shared."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from crbc_cli.anchors.ids import dense_ids
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.prepare import CHUNK_ROWS, Chunk, Prepared
from crbc_cli.engine.texts import row_texts
from crbc_cli.engine.uncertainty import UncertaintyColumns
from crbc_cli.methods.evidence import Evidence, terminal_states
from crbc_cli.methods.method import StepCredit
from crbc_cli.methods.registry import Chosen
from crbc_cli.methods.trajectory import group_advantage
from crbc_cli.options import GroupAdvantageOptions
from crbc_cli.process.coverage import reachable_rollouts
from crbc_cli.process.empirical import Rewards
from crbc_cli.process.quality import Conflicts, pair_outcomes
from crbc_cli.tables import GROUP_STATUSES

__all__ = ["Estimates", "MethodNumbers", "estimate", "next_step", "singletons"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass
class MethodNumbers:
    """One method's numbers, float64 (n,) each, in canonical row order; NaN is null."""

    state_value: Floats
    action_value: Floats
    credit: Floats
    step_credit: Floats
    group_advantage: Floats
    advantage: Floats


@dataclass
class Estimates:
    """Numbers of all rows in canonical order.

    Attributes:
      anchor, visits, actions, reachable: int32 (n,), -1 is null.
      methods: numbers by label.
      removed: int64 (k,), canonical positions of visits that censoring removed.
      conflicts: behind the conflict rate of the anchors.
      uncertainty: columns of `UNCERTAINTY_COLUMNS`, float64 (n,) each, NaN is null; empty unless
        asked for.
    """

    anchor: NDArray[np.int32]
    visits: NDArray[np.int32]
    actions: NDArray[np.int32]
    reachable: NDArray[np.int32]
    methods: dict[str, MethodNumbers]
    removed: Ints
    conflicts: Conflicts
    uncertainty: dict[str, Floats]


@dataclass
class _Step:
    """A method's step numbers under construction; `weight` is that of A_G."""

    state_value: Floats
    action_value: Floats
    credit: Floats
    step_credit: Floats
    weight: Floats
    step_weight: float = 0.0

    @classmethod
    def empty(cls, rows: int) -> "_Step":
        nothing = [np.full(rows, np.nan) for _ in range(4)]
        return cls(nothing[0], nothing[1], nothing[2], nothing[3], np.ones(rows))

    def fill(self, position: Ints, step: StepCredit) -> None:
        self.state_value[position] = step.state_value
        self.action_value[position] = step.action_value
        self.credit[position] = step.credit
        self.step_credit[position] = step.step_credit
        self.weight[position] = step.trajectory_weight
        if np.isscalar(step.trajectory_weight):
            self.weight[:] = step.trajectory_weight
        self.step_weight = step.step_weight


def estimate(
    prepared: Prepared,
    methods: Sequence[Chosen],
    clock: Clock,
    *,
    chunk_rows: int = CHUNK_ROWS,
) -> Estimates:
    """Numbers of each method.

    Args:
      prepared: the log.
      methods: with distinct labels.
      clock: stages "build", "solve", "coverage" and "combine" are added to.
      chunk_rows: rows merged and solved at a time; no number depends on it.
    Raises:
      ClosureError: the exact solve failed its residual check.
      OptionError: uncertainty of anything but `crbc` alone.
    """
    rows = len(prepared.rollouts.row)
    anchor, visits, actions, reached = (np.full(rows, -1, np.int32) for _ in range(4))
    steps = {chosen.label: _Step.empty(rows) for chosen in methods}
    unsure = UncertaintyColumns(prepared, methods)
    with clock("combine"):
        advantages = _group_advantages(prepared, methods)
    needs = frozenset[str]().union(*(chosen.needs for chosen in methods))
    removed, conflicts = [np.empty(0, np.int64)], Conflicts()
    for chunk in prepared.chunks(clock, rows if "log" in needs else chunk_rows):
        process, position = chunk.process, chunk.position
        removed.append(chunk.removed)
        conflicts += pair_outcomes(process).conflicts
        with clock("build"):
            evidence = _evidence(prepared, chunk, needs)
        for chosen in methods:
            with clock("solve"):
                at_visits = np.nan_to_num(advantages[chosen.label][position])
                steps[chosen.label].fill(position, chosen.compute(evidence, at_visits))
        first = steps[methods[0].label]
        unsure.fill(chunk, first.state_value, first.action_value, clock)
        with clock("coverage"):
            reachable = reachable_rollouts(process)
        with clock("combine"):
            first_state = np.searchsorted(process.state_group, process.state_group, side="left")
            anchor[position] = (np.arange(process.states) - first_state)[process.state]
            visits[position] = process.state_visits[process.state]
            actions[position] = process.state_actions[process.state]
            reached[position] = reachable[process.state]
    with clock("combine"):
        columns = [*unsure.columns.values(), *_columns(steps)]
        _give_thoughts_credit(prepared, [anchor, visits, actions, reached, *columns])
        unsure.hide(prepared.thought, singletons(prepared))
        numbers = {
            label: _finished(prepared, step, advantages[label]) for label, step in steps.items()
        }
    everything = np.concatenate(removed)
    return Estimates(
        anchor, visits, actions, reached, numbers, everything, conflicts, unsure.columns
    )


def singletons(prepared: Prepared) -> Bools:
    """Rows of groups in which one rollout counts, bool (n,)."""
    alone: Bools = prepared.outcomes.group_status == list(GROUP_STATUSES).index("singleton")
    return alone[prepared.rollouts.row_group()]


def next_step(prepared: Prepared) -> Ints:
    """Next visit of the rollout at or after each row, -1 if there is none, int64 (n,)."""
    n = len(prepared.rollouts.row)
    ahead = np.where(prepared.is_visit, np.arange(n), n)
    ahead = np.minimum.accumulate(ahead[::-1])[::-1]
    end = prepared.rollouts.offsets[1:][prepared.rollouts.rollout]
    return np.where(ahead < end, ahead, -1)


def _group_advantages(prepared: Prepared, methods: Sequence[Chosen]) -> dict[str, Floats]:
    """A_G of each row by label; 0 where a method has none, NaN where the rollout does not count."""
    episodes, run = prepared.episodes(), prepared.settings.group_advantage
    nothing = np.where(episodes.counts[episodes.rollout], 0.0, np.nan)
    if run.singleton == "drop":
        nothing = np.where(singletons(prepared), np.nan, nothing)
    done: dict[GroupAdvantageOptions, Floats] = {}
    advantages = {}
    for chosen in methods:
        options = chosen.trajectory(run)
        if options is not None and options not in done:
            done[options] = group_advantage(episodes, options)
        advantages[chosen.label] = nothing if options is None else done[options]
    return advantages


def _evidence(prepared: Prepared, chunk: Chunk, needs: frozenset[str]) -> Evidence:
    process, position = chunk.process, chunk.position
    options = prepared.settings.group_advantage
    rollout = prepared.rollouts.rollout
    ends = np.flatnonzero(np.diff(process.rollout, append=-1))
    of_log = rollout[position[ends]]
    everything = np.sort(np.concatenate([position, chunk.removed]))
    kept = np.isin(everything, chunk.removed, invert=True)
    terminal = np.full(len(ends), -1, np.int64)
    if "terminal" in needs:
        terminal = terminal_states(
            process,
            prepared.anchor_key[position],
            prepared.next_key[of_log],
            prepared.has_next[of_log],
            dense_ids,
        )
    texts = None
    if "texts" in needs:
        first = np.full(process.states, -1, np.int64)
        first[process.state[::-1]] = position[::-1]
        frame_rows = prepared.rollouts.row[first].tolist()
        found = row_texts(prepared, frame_rows)
        texts = [found[row][0] or "" for row in frame_rows]
    penalised = options.invalid_penalty in ("step", "both")
    return Evidence(
        process,
        Rewards(_step_rewards(prepared, everything), rollout[everything], kept),
        prepared.outcomes.reward[of_log],
        options.success_reward,
        options.penalty if penalised else 0.0,
        terminal,
        texts,
    )


def _step_rewards(prepared: Prepared, position: Ints) -> Floats:
    """Environment reward of some visits, as the run's --reward reads the log, float64 (m,).

    Rewards that belong to a whole rollout stand on its last visit.
    """
    if prepared.settings.group_advantage.reward == "sum":
        rewards: Floats = prepared.frame["reward"].fill_null(0.0).to_numpy()
        return rewards[prepared.rollouts.row[position]]
    rollout = prepared.rollouts.rollout[position]
    last = np.diff(rollout, append=-1) != 0
    return np.where(last, prepared.outcomes.reward[rollout], 0.0)


def _columns(steps: dict[str, _Step]) -> list[Floats]:
    return [
        getattr(step, f.name)
        for step in steps.values()
        for f in fields(step)
        if f.name != "step_weight"
    ]


def _give_thoughts_credit(
    prepared: Prepared, columns: Sequence[NDArray[np.int32] | Floats]
) -> None:
    """Thought rows take the numbers of the environment step that follows in their rollout."""
    if prepared.settings.anchor.thoughts == "null" or not prepared.thought.any():
        return
    step = next_step(prepared)
    rows = np.flatnonzero(prepared.thought & (step >= 0))
    for column in columns:
        column[rows] = column[step[rows]]


def _finished(prepared: Prepared, step: _Step, advantage: Floats) -> MethodNumbers:
    """Applies the rules for thoughts and singletons and combines step and trajectory terms."""
    alone = singletons(prepared)
    known = ~np.isnan(step.step_credit)
    if prepared.settings.anchor.thoughts == "zero":
        step.credit[prepared.thought & known] = 0.0
        step.step_credit[prepared.thought & known] = 0.0
    match prepared.settings.group_advantage.singleton:
        case "zero":
            step.step_credit[alone & known] = 0.0
        case "drop":
            for column in (step.state_value, step.action_value, step.credit, step.step_credit):
                column[alone] = np.nan
    part = np.where(np.isnan(step.step_credit), 0.0, step.step_credit)
    return MethodNumbers(
        step.state_value,
        step.action_value,
        step.credit,
        step.step_credit,
        advantage,
        step.weight * advantage + step.step_weight * part,
    )
