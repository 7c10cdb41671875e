"""The credit table: numbers of each visit, back on the rows of the input."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.estimate import Estimates, estimate, next_step, singletons
from crbc_cli.engine.prepare import CHUNK_ROWS, Prepared
from crbc_cli.methods.registry import Chosen, parse_method
from crbc_cli.tables import GROUP_STATUSES, METHOD_NUMBERS, REASONS

__all__ = ["credit_table", "table_of"]

_T = TypeVar("_T", bound=np.generic)
_REASON_CODE = {name: code for code, name in enumerate(REASONS)}


def credit_table(
    prepared: Prepared,
    clock: Clock,
    methods: Sequence[Chosen] | None = None,
    *,
    chunk_rows: int = CHUNK_ROWS,
) -> pl.DataFrame:
    """Credit columns of every row, in input order.

    Args:
      prepared: the log.
      clock: stages "build", "solve", "coverage" and "combine" are added to.
      methods: estimators; `crbc` with the run's options by default. The numbers of several get
        their label and an underscore as prefix.
      chunk_rows: rows merged and solved at a time; no number depends on it.
    Returns:
      Frame with the columns of `crbc_cli.tables.CREDIT_COLUMNS` (and of `UNCERTAINTY_COLUMNS` if
      asked for, and `anchor_id` if it was loaded), one row per row of the input.
    Raises:
      ClosureError: the exact solve failed its residual check.
    """
    settings = prepared.settings
    methods = methods or (parse_method("crbc", settings.credit, settings.group_advantage),)
    numbers = estimate(prepared, methods, clock, chunk_rows=chunk_rows)
    with clock("combine"):
        return table_of(prepared, numbers)


def table_of(prepared: Prepared, numbers: Estimates) -> pl.DataFrame:
    """The credit table of numbers that `estimate` gave."""
    rollouts, outcomes, frame = prepared.rollouts, prepared.outcomes, prepared.frame
    spread = _Spread(prepared)
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
    }
    for label, method in numbers.methods.items():
        prefix = f"{label}_" if len(numbers.methods) > 1 else ""
        for name in METHOD_NUMBERS:
            columns[prefix + name] = spread.floats(getattr(method, name))
    columns |= {name: spread.floats(column) for name, column in numbers.uncertainty.items()}
    columns |= {
        "reachable_rollouts": spread.integers(numbers.reachable),
        "group_status": _named(GROUP_STATUSES, outcomes.group_status[rollouts.group_of_row]),
        "reason": _named(REASONS, spread.reasons(_reasons(prepared, numbers.removed))),
    }
    if "anchor_id" in frame.columns:
        taken = columns["anchor"].is_not_null()
        columns["anchor_id"] = frame["anchor_id"].set(~taken, None)
    return pl.DataFrame(columns)


def _not_steps(prepared: Prepared) -> NDArray[np.bool_]:
    """Thought rows without numbers of their own or of a following step, bool (n,)."""
    if prepared.settings.anchor.thoughts == "null":
        return prepared.thought
    return prepared.thought & (next_step(prepared) < 0)


def _reasons(prepared: Prepared, censored: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index into REASONS of each canonical row, -1 for none."""
    outcomes, rollout = prepared.outcomes, prepared.rollouts.rollout
    rule = prepared.settings.outcome.truncated
    cut = outcomes.cut[rollout]
    removed = np.zeros(len(rollout), bool)
    removed[censored] = True
    conditions = {
        "unscored": ~outcomes.scored[rollout],
        "excluded": cut & (rule == "exclude"),
        "censored": (cut & (rule == "censor")) | removed,
        "not_a_step": _not_steps(prepared),
        "no_anchor": ~prepared.has_anchor,
        "singleton_group": singletons(prepared),
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
