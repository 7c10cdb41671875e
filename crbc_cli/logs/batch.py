"""What a reader hands on: a piece of one input with the asked-for fields as columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from crbc_cli.logs.columns import ValueKind

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one input.

    Attributes:
      frame: lazy frame with one column per field found, value columns still as logged. Row order
        is file order.
      kinds: how each value column is held.
      rows: source row of each row, or None where they count on from `first_row`.
      first_row: source row of the first row.
      where: row index inside the batch -> place for a message.
    """

    frame: pl.LazyFrame
    kinds: Mapping[str, ValueKind]
    rows: pl.Series | None
    first_row: int
    where: Callable[[int], str]
