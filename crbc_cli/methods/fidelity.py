"""How close estimates are to what an action was worth: credit fidelity.

The truth of a step is Q(s,a) − V(s) of the behaviour policy. With the visits of a group sorted
into cells (true state s, action a), n(s,a) visits each, and A(s,a) the mean over a cell,

    gradient   g(s,a) = n(s,a)·(A(s,a) − Σ_b n(s,b) A(s,b)/n(s))   tabular softmax policy gradient
    cosine     ⟨g_estimate, g_truth⟩ / (‖g_estimate‖·‖g_truth‖)     one per group

A zero estimated gradient (norm below 1e-9) has cosine 0; groups with a zero true gradient are left
out. Correlations are Pearson and Spearman over steps, and over cells (Pearson weighted by visits).
Values are rounded to ten decimals first, and a constant has correlation 0. Cosines and
correlations are means over groups with mixed outcomes; errors and signs run over all steps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crbc_cli.methods.agreement import average_ranks, means, pearson, rounded
from crbc_cli.methods.normalise import Classes

__all__ = ["METRICS", "Errors", "Fidelity", "Truth", "fidelity"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

METRICS: dict[str, str] = {
    "cosine": "cosine of the tabular policy gradient with the true one",
    "cell_pearson": "Pearson over (true state, action), weighted by visits",
    "cell_spearman": "Spearman over (true state, action)",
    "step_pearson": "Pearson over steps",
    "step_spearman": "Spearman over steps",
}
"""What is measured inside each group, by name."""

_NO_GRADIENT = 1e-9
_CLEAR = 0.01


@dataclass(frozen=True)
class Truth:
    """What estimates are measured against: n steps of some groups.

    Attributes:
      value: float64 (n,), true advantage, rounded.
      group: int64 (n,), in [0, groups).
      mixed: bool (groups,), some rollouts succeeded and some did not.
      cell: int64 (n,), distinct (group, true state, action) of each step.
      cell_visits: float64 (cells,), steps of each cell.
      cell_state: int64 (cells,), its (group, true state).
      cell_group: int64 (cells,).
    """

    value: Floats
    group: Ints
    mixed: Bools
    cell: Ints
    cell_visits: Floats
    cell_state: Ints
    cell_group: Ints

    @classmethod
    def build(cls, value: Floats, group: Ints, state: Ints, action: Ints, mixed: Bools) -> "Truth":
        """Sorts steps into cells.

        Args:
          value: float64 (n,), true advantage of each step, finite.
          group: int64 (n,), non-decreasing.
          state, action: int64 (n,), ids ≥ 0, equal for equal true states and actions.
          mixed: bool (groups,).
        """
        states = Classes.build(group * (int(state.max(initial=0)) + 1) + state)
        cells = Classes.build(states.of * (int(action.max(initial=0)) + 1) + action)
        return cls(
            rounded(value),
            group,
            mixed,
            cells.of,
            cells.count.astype(np.float64),
            states.of[cells.first],
            group[cells.first],
        )

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.mixed)

    @cached_property
    def cell_value(self) -> Floats:
        """Mean truth of each cell, float64 (cells,)."""
        return means(self.value, self.cell, len(self.cell_visits))

    @cached_property
    def gradient(self) -> Floats:
        """True g of each cell, float64 (cells,)."""
        return self.gradient_of(self.cell_value)

    @cached_property
    def ranks(self) -> tuple[Floats, Floats]:
        """Average ranks of the truth inside each group, of steps and of cells."""
        return average_ranks(self.value, self.group), average_ranks(
            self.cell_value, self.cell_group
        )

    def gradient_of(self, cell_value: Floats) -> Floats:
        """g(s,a) = n(s,a)·(A(s,a) − Σ_b n(s,b) A(s,b)/n(s)), float64 (cells,)."""
        visits, state = self.cell_visits, self.cell_state
        baseline = np.bincount(state, visits * cell_value) / np.bincount(state, visits)
        return visits * (cell_value - baseline[state])


@dataclass(frozen=True)
class Errors:
    """Sizes and signs over all steps; NaN without steps.

    Attributes:
      rmse: of the estimate as it is; means something if that is in value units.
      rmse_scaled: after the best single factor.
      rmse_zero: of predicting 0.
      signs: share of equal signs where |truth| > 0.01, exact zeros counting half.
    """

    rmse: float
    rmse_scaled: float
    rmse_zero: float
    signs: float


@dataclass(frozen=True)
class Fidelity:
    """One estimator against the truth.

    Attributes:
      metrics: name in METRICS -> float64 (groups,), NaN for groups that do not count.
      errors: over all steps.
    """

    metrics: Mapping[str, Floats]
    errors: Errors


def fidelity(estimate: Floats, truth: Truth) -> Fidelity:
    """Measures one estimator.

    Args:
      estimate: float64 (n,), its number of each step; a step without one (NaN) counts as 0, no
        signal, so that all methods are measured on the same steps.
      truth: what it is measured against.
    """
    x, y, group, groups = rounded(np.nan_to_num(estimate)), truth.value, truth.group, truth.groups
    cells, of = len(truth.cell_visits), truth.cell_group
    at_cell = means(x, truth.cell, cells)
    step_ranks, cell_ranks = truth.ranks
    by_group = {
        "cosine": _cosine(truth.gradient_of(at_cell), truth),
        "cell_pearson": pearson(at_cell, truth.cell_value, of, groups, weight=truth.cell_visits),
        "cell_spearman": pearson(average_ranks(at_cell, of), cell_ranks, of, groups),
        "step_pearson": pearson(x, y, group, groups),
        "step_spearman": pearson(average_ranks(x, group), step_ranks, group, groups),
    }
    counted = {name: np.where(truth.mixed, value, np.nan) for name, value in by_group.items()}
    return Fidelity(counted, _errors(x, y))


def _cosine(gradient: Floats, truth: Truth) -> Floats:
    """Cosine with the true gradient, float64 (groups,); NaN where that is zero."""
    of, groups = truth.cell_group, truth.groups
    size, true_size = (np.sqrt(np.bincount(of, g * g, groups)) for g in (gradient, truth.gradient))
    dot = np.bincount(of, gradient * truth.gradient, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.where(size < _NO_GRADIENT, 0.0, dot / (size * true_size))
    return np.where(true_size < _NO_GRADIENT, np.nan, cosine)


def _errors(x: Floats, y: Floats) -> Errors:
    if not len(x):
        return Errors(math.nan, math.nan, math.nan, math.nan)
    square = np.sum(x * x)
    factor = np.sum(x * y) / square if square else 0.0
    clear = np.abs(y) > _CLEAR
    hits = np.where(x == 0, 0.5, np.sign(x) == np.sign(y))[clear]
    return Errors(
        _root_mean_square(x - y),
        _root_mean_square(factor * x - y),
        _root_mean_square(y),
        float(hits.mean()) if len(hits) else math.nan,
    )


def _root_mean_square(values: Floats) -> float:
    return math.sqrt(float(np.mean(values * values)))
