"""The credit table: numbers of each visit, back on the rows of the input."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.prepare import CHUNK_ROWS, Prepared
from crbc_cli.methods.crbc import crbc
from crbc_cli.methods.trajectory import group_advantage
from crbc_cli.process.coverage import reachable_rollouts
from crbc_cli.tables import GROUP_STATUSES, REASONS

__all__ = ["credit_table"]

_T = TypeVar("_T", bound=np.generic)
_REASON_CODE = {name: code for code, name in enumerate(REASONS)}
_SINGLETON = list(GROUP_STATUSES).index("singleton")


@dataclass
class _Numbers:
    """Columns under construction, one entry per row in canonical order; NaN and -1 are null."""

    anchor: NDArray[np.int32]
    visits: NDArray[np.int32]
    actions: NDArray[np.int32]
    reachable: NDArray[np.int32]
    state_value: NDArray[np.float64]
    action_value: NDArray[np.float64]
    credit: NDArray[np.float64]
    step_credit: NDArray[np.float64]

    @classmethod
    def empty(cls, rows: int) -> "_Numbers":
        whole = [np.full(rows, -1, np.int32) for _ in range(4)]
        real = [np.full(rows, np.nan) for _ in range(4)]
        return cls(whole[0], whole[1], whole[2], whole[3], real[0], real[1], real[2], real[3])


def credit_table(prepared: Prepared, clock: Clock, *, chunk_rows: int = CHUNK_ROWS) -> pl.DataFrame:
    """Credit columns of every row, in input order.

    Args:
      prepared: the log.
      clock: stages "build", "solve", "coverage" and "combine" are added to.
      chunk_rows: rows merged and solved at a time; no number depends on it.
    Returns:
      Frame with the columns of `crbc_cli.tables.CREDIT_COLUMNS` (and `anchor_id` if it was
      loaded), one row per row of the input.
    Raises:
      ClosureError: the exact solve failed its residual check.
    """
    numbers = _Numbers.empty(len(prepared.rollouts.row))
    censored = _solve(prepared, numbers, clock, chunk_rows)
    with clock("combine"):
        return _table(prepared, numbers, censored)


def _solve(
    prepared: Prepared, numbers: _Numbers, clock: Clock, chunk_rows: int
) -> NDArray[np.int64]:
    """Fills `numbers`; returns canonical positions of visits that censoring removed."""
    settings = prepared.settings
    options = settings.group_advantage
    penalised = options.invalid_penalty in ("step", "both")
    step_penalty = options.penalty / options.success_reward if penalised else 0.0
    removed = [np.empty(0, np.int64)]
    for chunk in prepared.chunks(clock, chunk_rows):
        process, position = chunk.process, chunk.position
        removed.append(chunk.removed)
        with clock("solve"):
            step = crbc(process, settings.credit, step_penalty)
        with clock("coverage"):
            reachable = reachable_rollouts(process)
        with clock("combine"):
            first_state = np.searchsorted(process.state_group, process.state_group, side="left")
            numbers.anchor[position] = (np.arange(process.states) - first_state)[process.state]
            numbers.visits[position] = process.state_visits[process.state]
            numbers.actions[position] = process.state_actions[process.state]
            numbers.reachable[position] = reachable[process.state]
            numbers.state_value[position] = step.state_value
            numbers.action_value[position] = step.action_value
            numbers.credit[position] = step.credit
            numbers.step_credit[position] = step.step_credit
    _give_thoughts_credit(prepared, numbers)
    return np.concatenate(removed)


def _table(prepared: Prepared, numbers: _Numbers, censored: NDArray[np.int64]) -> pl.DataFrame:
    settings, rollouts, outcomes = prepared.settings, prepared.rollouts, prepared.outcomes
    advantage = group_advantage(prepared.episodes(), settings.group_advantage)
    reason = _reasons(prepared, censored)
    alone = (outcomes.group_status == _SINGLETON)[rollouts.row_group()]
    match settings.group_advantage.singleton:
        case "zero":
            numbers.step_credit[alone & ~np.isnan(numbers.step_credit)] = 0.0
        case "drop":
            for column in (
                numbers.state_value,
                numbers.action_value,
                numbers.credit,
                numbers.step_credit,
            ):
                column[alone] = np.nan
    step_part = np.where(np.isnan(numbers.step_credit), 0.0, numbers.step_credit)
    combined = settings.credit.w_g * advantage + settings.credit.w_s * step_part
    spread = _Spread(prepared)
    frame = prepared.frame
    columns: dict[str, pl.Series] = {
        "source_file": pl.Series([s.name for s in prepared.loaded.sources], dtype=pl.String).gather(
            frame["source"]
        ),
        "source_row": frame["source_row"].cast(pl.Int64),
        "group_id": frame["group_id"],
        "rollout_id": frame["rollout_id"],
        "step": frame["step"]
        if "step" in frame.columns
        else spread.integers(rollouts.step, pl.Int64),
        "anchor": spread.integers(numbers.anchor),
        "visits": spread.integers(numbers.visits),
        "actions": spread.integers(numbers.actions),
        "state_value": spread.floats(numbers.state_value),
        "action_value": spread.floats(numbers.action_value),
        "credit": spread.floats(numbers.credit),
        "step_credit": spread.floats(numbers.step_credit),
        "group_advantage": spread.floats(advantage),
        "advantage": spread.floats(combined),
        "reachable_rollouts": spread.integers(numbers.reachable),
        "group_status": _named(GROUP_STATUSES, outcomes.group_status[rollouts.group_of_row]),
        "reason": _named(REASONS, spread.reasons(reason)),
    }
    if "anchor_id" in frame.columns:
        taken = columns["anchor"].is_not_null()
        columns["anchor_id"] = frame["anchor_id"].set(~taken, None)
    return pl.DataFrame(columns)


def _give_thoughts_credit(prepared: Prepared, numbers: _Numbers) -> None:
    """Thought rows take the numbers of the environment step that follows in their rollout."""
    rule = prepared.settings.anchor.thoughts
    if rule == "null" or not prepared.thought.any():
        return
    step = _next_step(prepared)
    rows = np.flatnonzero(prepared.thought & (step >= 0))
    for f in fields(numbers):
        column = getattr(numbers, f.name)
        column[rows] = column[step[rows]]
    if rule == "zero":
        scored = rows[~np.isnan(numbers.step_credit[rows])]
        numbers.credit[scored] = numbers.step_credit[scored] = 0.0


def _next_step(prepared: Prepared) -> NDArray[np.int64]:
    """Next visit of the rollout at or after each row, -1 if there is none, int64 (n,)."""
    n = len(prepared.rollouts.row)
    ahead = np.where(prepared.is_visit, np.arange(n), n)
    ahead = np.minimum.accumulate(ahead[::-1])[::-1]
    end = prepared.rollouts.offsets[1:][prepared.rollouts.rollout]
    return np.where(ahead < end, ahead, -1)


def _not_steps(prepared: Prepared) -> NDArray[np.bool_]:
    """Thought rows without numbers of their own or of a following step, bool (n,)."""
    if prepared.settings.anchor.thoughts == "null":
        return prepared.thought
    return prepared.thought & (_next_step(prepared) < 0)


def _reasons(prepared: Prepared, censored: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index into REASONS of each canonical row, -1 for none."""
    outcomes, rollout = prepared.outcomes, prepared.rollouts.rollout
    rule = prepared.settings.outcome.truncated
    cut = outcomes.cut[rollout]
    removed = np.zeros(len(rollout), bool)
    removed[censored] = True
    alone = (outcomes.group_status == _SINGLETON)[prepared.rollouts.row_group()]
    conditions = {
        "unscored": ~outcomes.scored[rollout],
        "excluded": cut & (rule == "exclude"),
        "censored": (cut & (rule == "censor")) | removed,
        "not_a_step": _not_steps(prepared),
        "no_anchor": ~prepared.has_anchor,
        "singleton_group": alone,
    }
    return np.select(list(conditions.values()), [_REASON_CODE[name] for name in conditions], -1)


class _Spread:
    """Values in canonical order -> one per input row; copies take their original's value."""

    def __init__(self, prepared: Prepared) -> None:
        rollouts = prepared.rollouts
        self._rows = len(rollouts.group_of_row)
        self._row = rollouts.row
        self._copies = rollouts.copies
        self._discarded = rollouts.discarded
        self._in_order = len(self._row) == self._rows and np.array_equal(
            self._row, np.arange(self._rows)
        )

    def floats(self, values: NDArray[np.float64]) -> pl.Series:
        return pl.Series(self._place(values, np.nan)).fill_nan(None)

    def integers(
        self, values: NDArray[np.int32] | NDArray[np.int64], dtype: type[pl.DataType] = pl.Int32
    ) -> pl.Series:
        placed = pl.Series(self._place(values, -1), dtype=dtype)
        return placed.set(placed < 0, None) if (placed < 0).any() else placed

    def reasons(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        placed = self._place(codes, -1)
        duplicate = _REASON_CODE["duplicate"]
        placed[self._copies[:, 0]] = duplicate
        placed[self._discarded] = duplicate
        return placed

    def _place(self, values: NDArray[_T], missing: float) -> NDArray[_T]:
        if self._in_order:
            return values
        placed = np.full(self._rows, missing, values.dtype)
        placed[self._row] = values
        placed[self._copies[:, 0]] = values[self._copies[:, 1]]
        return placed


def _named(names: Sequence[str] | dict[str, str], codes: NDArray[np.int64]) -> pl.Series:
    """Strings of codes; -1 is null."""
    table = pl.Series([*names, None], dtype=pl.String)
    return table.gather(np.where(codes < 0, len(table) - 1, codes))
