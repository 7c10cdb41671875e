"""What a comparison stands on: tasks, the truth of steps, and the cells they fall into."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import ColumnError, OptionError
from crbc_cli.logs.columns import Field
from crbc_cli.methods.fidelity import Truth
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

__all__ = ["Ground", "Steps", "codes", "ground_fields", "ground_of"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_TRUTH, _STATE, _TASK = ":truth", ":state", ":task"
_DEFAULT_STATE, _DEFAULT_TASK = "true_state", "task_id"


@dataclass(frozen=True)
class Ground:
    """Facts of a log that no method and no setting changes, by row of its frame or by rollout.

    Attributes:
      task: int64 (r,), task of each rollout of the log, by value of the task column.
      usable: bool (r,), rollouts that have an outcome.
      truth: float64 (rows of the frame,), NaN where a row has none; None if none was asked for.
      state: int64 (rows of the frame,), true state; None to take anchors for it.
      task_column, state_column: where they were read, None for groups and anchors.
    """

    task: Ints
    usable: Bools
    truth: Floats | None
    state: Ints | None
    task_column: str | None
    state_column: str | None

    def mixed(self, log: Prepared) -> Bools:
        """Groups of `log`, which may be regrouped, with a success and a failure, bool (groups,)."""
        rollouts, outcomes = log.rollouts, log.outcomes
        number = np.bincount(rollouts.group[outcomes.scored], minlength=rollouts.groups)
        wins = np.bincount(rollouts.group, outcomes.success, rollouts.groups)
        return (wins > 0) & (wins < number)

    def steps(self, log: Prepared) -> "Steps | None":
        """Steps of `log`, which may be regrouped, that have a truth; None if none was asked for."""
        if self.truth is None:
            return None
        rollouts = log.rollouts
        value = self.truth[rollouts.row]
        row = np.flatnonzero(~np.isnan(value) & ~log.thought)
        state = codes(log.anchor_key) if self.state is None else self.state[rollouts.row]
        truth = Truth.build(
            value[row],
            rollouts.row_group()[row],
            state[row],
            codes(log.action_key)[row],
            self.mixed(log),
        )
        return Steps(row, truth)


@dataclass(frozen=True)
class Steps:
    """Steps with a truth.

    Attributes:
      row: int64 (n,), their canonical positions.
      truth: what estimates are measured against.
    """

    row: Ints
    truth: Truth


def ground_fields(
    settings: Settings, truth: str | None, state: str | None, task: str | None
) -> list[Field]:
    """Columns to read besides those of the settings."""

    def column(name: str) -> str:
        return settings.log.column_map.get(name, name)

    fields = [Field(_TASK, column(task or _DEFAULT_TASK), "label")]
    if truth is not None:
        fields.append(Field(_TRUTH, column(truth), "number"))
        fields.append(Field(_STATE, column(state or _DEFAULT_STATE), "label"))
    return fields


def ground_of(
    log: Prepared, truth: str | None, state: str | None, task: str | None, notes: Notes
) -> Ground:
    """Takes the ground of a log from the columns that `ground_fields` names.

    Args:
      log: read with them.
      truth: column of the true advantage, or None.
      state: column of the true state; by default `true_state`, or anchors if there is none.
      task: column of the task; by default `task_id`, or each group its own if there is none.
      notes: told what was taken where nothing was named.
    Raises:
      OptionError: a state without a truth.
      ColumnError: a named column is not there, or the truth has no number.
    """
    if state is not None and truth is None:
        raise OptionError("--state says which cells --truth is measured in; give --truth too")
    extra, rollouts = log.loaded.extra, log.rollouts
    for name, asked, flag in (
        (_TRUTH, truth, "truth"),
        (_STATE, state, "state"),
        (_TASK, task, "task"),
    ):
        if asked is not None and name not in extra.columns:
            raise _missing(log, asked, flag)
    values = None
    if truth is not None:
        values = extra[_TRUTH].fill_null(np.nan).to_numpy()
        if np.isnan(values[rollouts.row]).all():
            raise ColumnError(f"column {truth} holds no number", _names(log), "name another column")
    states = None
    if _STATE in extra.columns:
        states = _ranks(extra[_STATE])
    elif truth is not None:
        notes.say("no_true_state", "no column true_state: cells are (anchor, action); see --state")
    tasks = rollouts.group
    if _TASK in extra.columns:
        tasks = _ranks(extra[_TASK])[rollouts.first]
    return Ground(
        tasks,
        log.outcomes.scored,
        values,
        states,
        (task or _DEFAULT_TASK) if _TASK in extra.columns else None,
        (state or _DEFAULT_STATE) if states is not None else None,
    )


def _missing(log: Prepared, column: str, flag: str) -> ColumnError:
    return ColumnError(f"has no column {column}", _names(log), f"name another with --{flag} COLUMN")


def _names(log: Prepared) -> str:
    names: Sequence[str] = [source.name for source in log.loaded.sources]
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _ranks(series: pl.Series) -> Ints:
    """Equal values get equal ids ≥ 0, in order of the values; null is a value like any other."""
    ranks: Ints = series.rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
    return ranks


def codes(keys: NDArray[np.uint64]) -> Ints:
    """Equal keys get equal ids ≥ 0."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)
