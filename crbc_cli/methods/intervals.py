"""Means over groups with standard errors that are clustered by task.

Groups of one task are no independent evidence about methods, so deviations are summed inside a task
before they are squared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "clustered_mean"]

_Z = 1.96


@dataclass(frozen=True)
class Interval:
    """A mean over groups with its standard error; NaN where nothing defines them.

    Attributes:
      mean: over groups.
      se: clustered by task; NaN with fewer than two tasks.
      groups: groups that count.
      tasks: their tasks.
    """

    mean: float
    se: float
    groups: float
    tasks: float

    @property
    def margin(self) -> float:
        """Half width of the 95 % interval."""
        return _Z * self.se

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.mean - self.margin

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.mean + self.margin

    def numbers(self) -> dict[str, float | None]:
        """For JSON: mean, se, low, high and groups, None for NaN."""
        found = {name: getattr(self, name) for name in ("mean", "se", "low", "high", "groups")}
        return {name: value if math.isfinite(value) else None for name, value in found.items()}

    def negated(self) -> "Interval":
        """The interval of the difference taken the other way round."""
        return replace(self, mean=0.0 - self.mean)

    @classmethod
    def averaged(cls, parts: "Sequence[Interval]") -> "Interval":
        """Mean over several cuts of one log into groups.

        The standard error is the mean of theirs, that of one cut: the cuts share their rollouts,
        so more cuts are no more evidence about other tasks.
        """
        known = [part for part in parts if not math.isnan(part.mean)] or list(parts)
        return cls(*(float(np.mean([getattr(p, f.name) for p in known])) for f in fields(cls)))


def clustered_mean(values: NDArray[np.float64], task: NDArray[np.int64]) -> Interval:
    """Mean over groups; se² = C/(C − 1) · Σ_tasks (Σ_groups (x − mean))² / G², C tasks, G groups.

    Args:
      values: float64 (g,), x of each group; NaN is left out. For a comparison x is the difference
        of two methods inside the group.
      task: int64 (g,), ≥ 0.
    """
    known = ~np.isnan(values)
    x, task = values[known], task[known]
    if not len(x):
        return Interval(math.nan, math.nan, 0, 0)
    mean = float(x.mean())
    sums = np.bincount(task, x - mean)
    tasks = int(np.count_nonzero(np.bincount(task)))
    se = math.nan
    if tasks > 1:
        se = math.sqrt(tasks / (tasks - 1) * float(np.sum(sums**2))) / len(x)
    return Interval(mean, se, len(x), tasks)
