"""How far two estimators agree on one log, and the correlations that are measured by.

Correlations run inside each of several keys at once (groups of a log, or one key for all of it);
no loop over keys. A constant has correlation 0, ties share their average rank.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DECIMALS",
    "Agreement",
    "agreement",
    "average_ranks",
    "credited",
    "disagreement",
    "means",
    "pearson",
    "rounded",
    "spearman",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DECIMALS = 10
"""Numbers are rounded to this before they are compared, so that rounding breaks no tie."""


def rounded(values: Floats) -> Floats:
    """Values to ten decimals, float64 (n,); a negative zero becomes 0."""
    return np.round(values, DECIMALS) + 0.0


def means(values: Floats, key: Ints, keys: int) -> Floats:
    """Mean of each key's values, rounded; float64 (keys,), NaN for a key without values."""
    with np.errstate(invalid="ignore"):
        return rounded(np.bincount(key, values, keys) / np.bincount(key, minlength=keys))


def pearson(
    x: Floats, y: Floats, key: Ints, keys: int = 1, *, weight: Floats | None = None
) -> Floats:
    """Pearson correlation of x and y inside each key.

    Args:
      x, y: float64 (n,), rounded.
      key: int64 (n,), in [0, keys).
      keys: number of keys.
      weight: float64 (n,), weight of each entry; 1 by default.
    Returns:
      float64 (keys,), in [-1, 1]; 0 where x or y is constant, NaN for a key without entries.
    """
    w = np.ones_like(x) if weight is None else weight
    total = np.bincount(key, w, keys)
    with np.errstate(invalid="ignore", divide="ignore"):
        dx = x - (np.bincount(key, w * x, keys) / total)[key]
        dy = y - (np.bincount(key, w * y, keys) / total)[key]
        spread = np.sqrt(np.bincount(key, w * dx * dx, keys))
        spread *= np.sqrt(np.bincount(key, w * dy * dy, keys))
        r = np.clip(np.bincount(key, w * dx * dy, keys) / spread, -1.0, 1.0)
    vary = _varies(x, key, keys) & _varies(y, key, keys)
    return np.where(total > 0, np.where(vary, r, 0.0), np.nan)


def spearman(x: Floats, y: Floats, key: Ints, keys: int = 1) -> Floats:
    """Pearson correlation of average ranks inside each key, as `pearson`."""
    return pearson(average_ranks(x, key), average_ranks(y, key), key, keys)


def average_ranks(values: Floats, key: Ints) -> Floats:
    """Rank of each value inside its key, from 1; equal values share the mean of their ranks.

    float64 (n,).
    """
    n = len(values)
    order = np.lexsort((values, key))
    value, own = values[order], key[order]
    new_key = np.ones(n, bool)
    new_key[1:] = own[1:] != own[:-1]
    new = new_key.copy()
    new[1:] |= value[1:] != value[:-1]
    start = np.flatnonzero(new)
    middle = start + (np.diff(start, append=n) - 1) / 2
    before = np.flatnonzero(new_key)[np.cumsum(new_key) - 1]
    ranks = np.empty(n)
    ranks[order] = middle[np.cumsum(new) - 1] - before + 1
    return ranks


def credited(values: Floats) -> float:
    """Share of steps with a number other than 0; NaN without steps."""
    if not len(values):
        return float("nan")
    return float(np.count_nonzero(rounded(np.nan_to_num(values)))) / len(values)


@dataclass(frozen=True)
class Agreement:
    """Two methods on the steps to which both give a number; NaN where there is none.

    Attributes:
      steps: how many.
      pearson, spearman: over steps.
      pairs: distinct (anchor, action) among them.
      pair_pearson, pair_spearman: over these, of the mean over their steps.
      both: steps to which both give a number other than 0.
      signs: share of `both` on which the signs are equal.
    """

    steps: int
    pearson: float
    spearman: float
    pairs: int
    pair_pearson: float
    pair_spearman: float
    both: int
    signs: float


def agreement(a: Floats, b: Floats, pair: Ints) -> Agreement:
    """Agreement of two methods, pooled over all groups.

    Args:
      a, b: float64 (n,), NaN where a step has no number.
      pair: int64 (n,), distinct (anchor, action) of each step; negative where there is none.
    """
    known = ~(np.isnan(a) | np.isnan(b))
    x, y = rounded(a[known]), rounded(b[known])
    one = np.zeros(len(x), np.int64)
    at_pair = pair[known] >= 0
    kept, index = np.unique(pair[known][at_pair], return_inverse=True)
    p, q = (means(v[at_pair], index, len(kept)) for v in (x, y))
    whole = np.zeros(len(kept), np.int64)
    both = (x != 0) & (y != 0)
    number = int(both.sum())
    same = np.count_nonzero(np.sign(x[both]) == np.sign(y[both]))
    return Agreement(
        len(x),
        float(pearson(x, y, one)[0]),
        float(spearman(x, y, one)[0]),
        len(kept),
        float(pearson(p, q, whole)[0]),
        float(spearman(p, q, whole)[0]),
        number,
        same / number if number else float("nan"),
    )


def disagreement(a: Floats, b: Floats) -> Floats:
    """|a/rms(a) − b/rms(b)| of each step: how far apart two methods are once each is scaled to
    mean square 1. float64 (n,), NaN where either has no number."""
    known = ~(np.isnan(a) | np.isnan(b))

    def scaled(values: Floats) -> Floats:
        size = float(np.sqrt(np.mean(values[known] ** 2))) if known.any() else 0.0
        return rounded(values) / size if size else values

    return np.abs(scaled(a) - scaled(b))


def _varies(values: Floats, key: Ints, keys: int) -> Bools:
    """Keys whose values are not all equal, bool (keys,)."""
    first = np.zeros(keys)
    first[key[::-1]] = values[::-1]
    return np.bincount(key, values != first[key], keys) > 0
