"""How good anchors are, from the log alone: arrays of visits in, counts and tests out.

* **Conflict rate.** A pair (anchor, action) visited at least twice conflicts if its visits were
  followed by several distinct next anchors or boundaries. The conflict rate is the share of the
  visits of such repeated pairs whose pair conflicts. A failure differs from a success only: limits
  end rollouts anywhere, and most logs do not say where. So a deterministic environment seen
  through perfect anchors has conflict rate 0; a stochastic one does not.
* **Markov test.** If an anchor is a state, what follows (anchor, action) does not depend on how the
  anchor was entered, that is on the pair before it. Per pair, entries times successors make a
  contingency table; an anchor's statistic is the sum of Pearson's χ² over its pairs. Its mean and
  variance over all permutations of the entries, given the margins, are known in closed form, and
  a gamma distribution with these moments gives the p-value. Holm's step-down correction makes
  the p-values hold for all tested anchors together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.agreement import codes
from crbc_cli.process.empirical import FAILURE, SUCCESS, EmpiricalProcess

__all__ = [
    "START",
    "Conflicts",
    "ContingencyTables",
    "MarkovTest",
    "PairOutcomes",
    "entries",
    "holm",
    "markov_test",
    "pair_outcomes",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

START = -1
"""Entry of a rollout's first visit."""
_LEAST_VISITS = 4


@dataclass(frozen=True)
class Conflicts:
    """Counts behind the conflict rate; add them over chunks and logs.

    Attributes:
      visits: visits of repeated pairs that conflict.
      repeated: visits of pairs visited at least twice.
    """

    visits: int = 0
    repeated: int = 0

    def __add__(self, other: "Conflicts") -> "Conflicts":
        return Conflicts(self.visits + other.visits, self.repeated + other.repeated)

    @property
    def rate(self) -> float | None:
        """Conflict rate; None where no pair is visited twice."""
        return self.visits / self.repeated if self.repeated else None

    @property
    def told(self) -> str:
        """One line for people."""
        rate = "-" if self.rate is None else f"{100 * self.rate:.1f} %"
        return f"conflict rate {rate}: visits whose anchor and action had several next anchors"


@dataclass(frozen=True)
class PairOutcomes:
    """What followed each (anchor, action).

    Attributes:
      visits: int64 (pairs,).
      telling: bool (n,), visits whose successor can differ from others: all but failures of pairs
        that never succeed.
      conflict: bool (pairs,), these had several distinct successors.
    """

    visits: Ints
    telling: Bools
    conflict: Bools

    @property
    def conflicts(self) -> Conflicts:
        """Visits of repeated pairs, and of those that conflict."""
        repeated = int(self.visits[self.visits > 1].sum())
        return Conflicts(int(self.visits[self.conflict].sum()), repeated)


def pair_outcomes(process: EmpiricalProcess) -> PairOutcomes:
    """Which pairs conflict; see the module docstring."""
    pair, successor = process.pair, process.successor
    succeeds = np.zeros(process.pairs, bool)
    succeeds[pair[successor == SUCCESS]] = True
    telling = (successor != FAILURE) | succeeds[pair]
    first = np.zeros(process.pairs, np.int64)
    first[pair[telling][::-1]] = successor[telling][::-1]
    other = np.bincount(pair, telling & (successor != first[pair]), process.pairs)
    return PairOutcomes(process.pair_visits, telling, other > 0)


def entries(process: EmpiricalProcess) -> Ints:
    """Pair of each visit's predecessor in its rollout, START at the first one, int64 (n,)."""
    before = np.roll(process.pair, 1)
    before[np.diff(process.rollout, prepend=-1) != 0] = START
    return before


@dataclass(frozen=True)
class MarkovTest:
    """Anchors at which an action has several successors and was reached in several ways.

    Attributes:
      state: int64 (m,), ids of the tested anchors.
      statistic: float64 (m,), sum of χ² over the anchor's pairs.
      p_value: float64 (m,), chance of so large a statistic if entries do not matter.
    """

    state: Ints
    statistic: Floats
    p_value: Floats


def markov_test(process: EmpiricalProcess) -> MarkovTest:
    """Whether what follows depends on how an anchor was entered; see the module docstring.

    Pairs enter with four telling visits or more, two entries and two successors.

    Source: moments of χ² under permutation: Dawson, Biometrika 41 (1954); combination and gamma
      approximation as in Mielke and Berry, Permutation Methods, 2007, chapter 7.
    """
    from scipy.special import gammaincc

    entry, outcomes = entries(process), pair_outcomes(process)
    size = np.bincount(process.pair, outcomes.telling, process.pairs)
    taken = (outcomes.conflict & (size >= _LEAST_VISITS))[process.pair] & outcomes.telling
    pair, came, went = process.pair[taken], entry[taken], process.successor[taken]
    table = ContingencyTables.of(pair, came, went)
    tested = (table.rows > 1) & (table.columns > 1)
    state = process.pair_state[table.stratum[tested]]
    anchors, at = np.unique(state, return_inverse=True)
    statistic, mean, variance = (
        np.bincount(at, values[tested], len(anchors)).astype(np.float64)
        for values in (table.chi_square, table.mean, table.variance)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        p = gammaincc(mean**2 / variance, statistic * mean / variance)
    return MarkovTest(anchors, statistic, np.where(variance > 0, p, 1.0))


@dataclass(frozen=True)
class ContingencyTables:
    """Contingency tables of several strata at once, (k,) each.

    `rows` and `columns` are the sizes, `mean` and `variance` those of `chi_square` over
    permutations; they mean nothing for tables with one row or column or fewer than four visits.
    """

    stratum: Ints
    rows: Ints
    columns: Ints
    chi_square: Floats
    mean: Floats
    variance: Floats

    @classmethod
    def of(cls, stratum: Ints, row: Ints, column: Ints) -> "ContingencyTables":
        names, at = np.unique(stratum, return_inverse=True)
        row_of, column_of = codes(at, row), codes(at, column)
        cell = codes(row_of, column_of)
        in_row, in_column, in_cell = (np.bincount(code) for code in (row_of, column_of, cell))
        size = np.bincount(at, minlength=len(names)).astype(np.float64)
        # Each visit adds n_cell / (n_row · n_column): over a cell that is n_cell² / (…).
        whole = np.bincount(at, in_cell[cell] / (in_row[row_of] * in_column[column_of]), len(names))
        rows, inverse_rows = _margins(at, row_of, in_row, len(names))
        columns, inverse_columns = _margins(at, column_of, in_column, len(names))
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = [
                (
                    (k - 1) * (size - k) / (size - 1),
                    (size * inverse - k * k) / (size - 2),
                )
                for k, inverse in ((rows, inverse_rows), (columns, inverse_columns))
            ]
            (v1, w1), (v2, w2) = spread
            mean = size * (rows - 1) * (columns - 1) / (size - 1)
            variance = 2 * size / (size - 3) * (v1 - w1) * (v2 - w2) + size**2 / (size - 1) * (
                w1 * w2
            )
        return cls(names, rows, columns, size * (whole - 1), mean, np.maximum(variance, 0.0))


def _margins(stratum: Ints, code: Ints, count: Ints, strata: int) -> tuple[Ints, Floats]:
    """(distinct codes, Σ 1/count over them) per stratum."""
    of = np.empty(len(count), np.int64)
    of[code] = stratum
    sizes = np.bincount(of, minlength=strata).astype(np.int64)
    return sizes, np.bincount(of, 1 / count, strata).astype(np.float64)


def holm(p_values: Floats) -> Floats:
    """Holm's step-down adjusted p-values: the family-wise error stays below the level.

    float64 (m,) -> (m,). Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1))
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
