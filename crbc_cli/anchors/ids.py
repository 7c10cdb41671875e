"""Dense ids from keys: states contiguous by group, pairs under their state, first visit first."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["dense_ids"]

_ODD = np.uint64(0x9E3779B97F4A7C15)


def dense_ids(scope: NDArray[np.int64], key: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Id of each distinct (scope, key), numbered by first occurrence.

    Rows are sorted by a word mixed from scope and key, which numpy does with vector instructions;
    should two scopes share a word, which that order shows, the exact way is taken.

    Args:
      scope: shape (n,), group or state of each row.
      key: shape (n,), 64-bit content key.
    Returns:
      int64, shape (n,). With `scope` non-decreasing each scope's ids are contiguous.
    """
    if not len(key):
        return np.empty(0, np.int64)
    with np.errstate(over="ignore"):
        mixed = key ^ ((scope.astype(np.uint64) + np.uint64(1)) * _ODD)
    order = np.argsort(mixed)
    ordered, scopes = mixed[order], scope[order]
    new = np.ones(len(key), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    if (new[1:] | (scopes[1:] == scopes[:-1])).all():  # a word and a scope tell the key
        first = np.minimum.reduceat(order, np.flatnonzero(new))
        original = np.empty(len(key), np.int64)  # first row with the row's scope and key
        original[order] = first[np.cumsum(new) - 1]
        number = np.cumsum(original == np.arange(len(key))) - 1
        return number[original]
    pairs = pl.DataFrame({"scope": scope, "key": key})
    distinct = pairs.unique(maintain_order=True).with_row_index("id")
    exact = pairs.join(distinct, on=["scope", "key"], how="left", maintain_order="left")
    return exact.get_column("id").to_numpy().astype(np.int64)
