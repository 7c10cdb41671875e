"""Which positions of an array hold a value: edges by the state they lead to."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Buckets"]

Ints = NDArray[np.int64]


class Buckets:
    """Positions by value, for walks that go on from a few states at a time.

    Args:
      values: int64 (n,); negative ones are in no bucket.
      size: values are below it.
    """

    def __init__(self, values: Ints, size: int) -> None:
        self._order = np.argsort(values, kind="stable")
        self._first = np.searchsorted(values[self._order], np.arange(size + 1))

    def of(self, wanted: Ints) -> Ints:
        """Positions that hold one of `wanted`, which are distinct, int64 (k,)."""
        first = self._first[wanted]
        number = self._first[wanted + 1] - first
        skipped = first - (np.cumsum(number) - number)
        positions: Ints = self._order[np.repeat(skipped, number) + np.arange(number.sum())]
        return positions
