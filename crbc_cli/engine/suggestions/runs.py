"""How the values of a span of text run along rollouts."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.suggestions.sample import Sample

__all__ = ["LEAST_ROWS", "Run"]

LEAST_ROWS = 10
"""Fewest rows, or steps from row to row, that tell anything."""
_NAMED = 0.2

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """How the values of a span run along rollouts.

    Attributes:
      new: distinct values of a group per row.
      up, down: shares of steps from row to row that rise and fall.
      steps: number of such steps.
      named: commands name the value that the reply then shows.
    """

    new: float
    up: float
    down: float
    steps: int
    named: bool

    @classmethod
    def of(cls, sample: Sample, row: Ints, value: pl.Series) -> "Run":
        """The run of a span.

        Args:
          sample: rows.
          row: int64 (k,), rows that have the span.
          value: String (n,), its value where a row has it.
        """
        told = value.gather(row)
        number = told.str.extract(r"^(-?\d+(?:\.\d+)?)$", 1).cast(pl.Float64)
        order = number.fill_null(told.rank("dense").cast(pl.Float64)).to_numpy()
        follows = (np.diff(row) == 1) & (np.diff(sample.rollout[row]) == 0)
        change = np.diff(order)[follows]
        after = 1 + np.flatnonzero(follows)
        words = pl.DataFrame(
            {"command": sample.action.gather(row[after] - 1), "value": told.gather(after)}
        )
        named = words.select(
            pl.col("command").str.extract_all(r"[\w.:-]+").list.contains(pl.col("value")).mean()
        ).item()
        steps = len(change)
        distinct = pl.DataFrame({"group": sample.group[row], "value": told}).n_unique()
        return cls(
            distinct / len(row),
            float((change > 0).mean()) if steps else 0.0,
            float((change < 0).mean()) if steps else 0.0,
            steps,
            named is not None and named > _NAMED,
        )

    @property
    def rises(self) -> bool:
        """Like a counter of steps."""
        return self.steps >= LEAST_ROWS and self.up >= 0.5 and self.down <= 0.02

    @property
    def advances(self) -> bool:
        """Like a clock, which may stand still from step to step and may pass midnight."""
        return self.steps >= LEAST_ROWS and self.up >= 0.1 and self.down <= 0.05

    @property
    def told(self) -> str:
        """In words."""
        if self.rises or self.advances:
            up, down = 100 * self.up, 100 * self.down
            return f"rises with {up:.0f} % of the steps and falls with {down:.0f} %"
        return f"{100 * self.new:.0f} % of its values are new"
