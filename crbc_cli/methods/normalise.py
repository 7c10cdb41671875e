"""Group-relative normalisation, as the verl-agent family of estimators does it.

Every mean and standard deviation is a sum over the members of one key in canonical order, so that
it does not depend on the other keys.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.empirical import EmpiricalProcess

__all__ = ["EPS", "NORMS", "Classes", "distinct_transitions", "standardised"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

EPS = 1e-6
"""Added to every standard deviation by the published code."""

NORMS = ("mean_std", "mean")
"""(x − mean)/(std + eps), or x − mean: `mean_std_norm` and `mean_norm` in the published code."""


@dataclass(frozen=True)
class Classes:
    """Visits with equal codes, c classes in order of their codes.

    Attributes:
      of: int64 (n,), class of each visit.
      count: int64 (c,), visits of each.
      first: int64 (c,), its first visit.
    """

    of: Ints
    count: Ints
    first: Ints

    @classmethod
    def build(cls, codes: Ints) -> "Classes":
        """Classes of whole numbers ≥ 0; codes that rise with the group are sorted fastest."""
        order = np.argsort(codes, kind="stable")
        new = np.diff(codes[order], prepend=-1) != 0
        of = np.empty(len(codes), np.int64)
        of[order] = np.cumsum(new) - 1
        starts = np.flatnonzero(new)
        return cls(of, np.diff(starts, append=len(codes)), order[starts])


def distinct_transitions(process: EmpiricalProcess, successor: Ints) -> Classes:
    """Visits merged on equal (state, action, successor).

    Args:
      process: merged groups.
      successor: int64 (n,), where each visit led to, boundaries negative.
    """
    width = int(successor.max(initial=0)) + 3
    return Classes.build(process.pair * width + successor + 2)


def standardised(
    values: Floats, key: Ints, keys: int, *, ddof: int = 1, by: Classes | None = None
) -> tuple[Floats, Floats]:
    """(x − mean, (x − mean)/(std + eps)) of each visit against those with the same key.

    Differences that are rounding (relative size below 1e-13) are exact zeros, so that equal values
    give 0 and not noise over eps. A key with one vote gives 0.

    Args:
      values: float64 (n,).
      key: int64 (n,), in [0, keys).
      ddof: divisor correction of the std.
      by: give each distinct transition one vote, the mean of its visits, instead of each visit.
    Returns:
      two float64 (n,).
    """
    votes, voting = values, key
    if by is not None:
        votes, voting = np.bincount(by.of, values) / by.count, key[by.first]
    number = np.bincount(voting, minlength=keys)
    mean = np.bincount(voting, votes, keys) / np.maximum(number, 1)

    def centred(x: Floats, k: Ints) -> Floats:
        difference = x - mean[k]
        return np.where(np.abs(difference) > 1e-13 * np.abs(x), difference, 0.0)

    difference = centred(values, key)
    if by is not None:
        difference[number[key] < 2] = 0.0
    spread = difference if by is None else centred(votes, voting)
    variance = np.bincount(voting, spread**2, keys) / np.maximum(number - ddof, 1)
    return difference, difference / (np.sqrt(variance) + EPS)[key]
