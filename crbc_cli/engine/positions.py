"""Credit by position in the rollout and by outcome."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crbc_cli.engine.annotate import credit_table
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.prepare import Prepared
from crbc_cli.methods.registry import Chosen
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["PositionReport", "measure_positions"]

_OUTCOMES = ("success", "failure")


@dataclass(frozen=True)
class PositionReport:
    """Step credit by position and outcome.

    Attributes:
      method: label of the estimator.
      table: one row per position and outcome, in that order: `position` counts steps of the rollout
        from 0; `steps`; `mean`, `low` and `high`, the mean and quartiles of the step credit;
        `credited_share`, the share of the steps whose step credit is not 0; `mean_advantage`.
      left_out: rows without a step credit, or of rollouts without an outcome.
    """

    method: str
    table: pl.DataFrame
    left_out: int

    def rows(self) -> list[dict[str, Any]]:
        """For `--csv`."""
        return self.table.to_dicts()

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "steps",
            "method": self.method,
            "steps": int(self.table["steps"].sum()),
            "rows_left_out": self.left_out,
            "positions": self.rows(),
        }


def measure_positions(logs: Iterable[Prepared], method: Chosen, clock: Clock) -> PositionReport:
    """Averages step credit over all groups.

    Args:
      logs: prepared logs.
      method: the estimator.
      clock: stages are added to.
    Raises:
      ClosureError: as `credit_table`.
    """
    parts, rows = [], 0
    for log in logs:
        table = credit_table(log, clock, (method,))[log.rollouts.row]
        rollout, outcomes = log.rollouts.rollout, log.outcomes
        frame = table.select("step_credit", "advantage").with_columns(
            position=pl.Series(np.arange(len(rollout)) - log.rollouts.offsets[rollout]),
            outcome=pl.Series(outcomes.success[rollout]),
            scored=pl.Series(outcomes.scored[rollout]),
        )
        rows += frame.height
        parts.append(frame.filter("scored", pl.col("step_credit").is_not_null()))
    steps = pl.concat(parts) if parts else _NOTHING
    credit = pl.col("step_credit")
    table = (
        steps.group_by("position", "outcome")
        .agg(
            steps=pl.len(),
            mean=credit.mean(),
            low=credit.quantile(0.25, "linear"),
            high=credit.quantile(0.75, "linear"),
            credited_share=(credit != 0).mean(),
            mean_advantage=pl.col("advantage").mean(),
        )
        .sort("position", pl.col("outcome").not_())
        .with_columns(
            outcome=pl.when("outcome").then(pl.lit(_OUTCOMES[0])).otherwise(pl.lit(_OUTCOMES[1]))
        )
    )
    return PositionReport(method.label, table, rows - steps.height)


_NOTHING = pl.DataFrame(
    schema={
        "step_credit": pl.Float64,
        "advantage": pl.Float64,
        "position": pl.Int64,
        "outcome": pl.Boolean,
        "scored": pl.Boolean,
    }
)
