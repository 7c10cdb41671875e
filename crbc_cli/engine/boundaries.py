"""Where groups begin in rows that come in order, and whether all rows of each stand together."""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.joining import hashable_rows
from crbc_cli.options import LogOptions

__all__ = ["Boundaries", "OutOfOrder"]


class OutOfOrder(Exception):  # noqa: N818 - not an error: the rows are gathered then
    """Rows cannot be taken in the order in which they come.

    Attributes:
      part: number of the part of the run whose rows they are.
    """

    part: int = -1


class Boundaries:
    """Beginnings of groups, told while rows come.

    Every `--group-stride` runs of one rollout begin a group; otherwise a change of what tells
    groups apart begins one, and a group that was seen before is out of order.
    """

    def __init__(self, options: LogOptions) -> None:
        self._stride = 0 if options.group_by else options.group_stride
        self._per_file = options.per_file
        self._names = [*(f"by:{n}" for n in options.group_by), *(f"key:{n}" for n in options.key)]
        self._last: pl.DataFrame | None = None
        self._seen: set[tuple[Any, ...]] = set()
        self.runs = 0

    def starts(self, frame: pl.DataFrame) -> NDArray[np.int64]:
        """Rows of the next `frame` at which a group begins, int64 (k,).

        Raises:
          OutOfOrder: a group begins that began before.
        """
        columns = self._columns(frame)
        if not frame.height:
            return np.empty(0, np.int64)
        if not columns:  # each row is a run
            changed = np.arange(frame.height)
        else:
            keys = frame.select(columns)
            if any(dtype.is_nested() for dtype in keys.dtypes):  # they count as JSON text
                raise OutOfOrder
            before = keys.head(0) if self._last is None else self._last
            if before.schema != keys.schema:
                raise OutOfOrder
            both = pl.concat([before, keys])
            differs = pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in columns)
            flags = both.select(differs).to_series().to_numpy().copy()
            flags[:1] = self._last is None
            changed = np.flatnonzero(flags[before.height :])
            self._last = keys.tail(1)
        if self._stride:
            first = -self.runs % self._stride
            self.runs += len(changed)
            return changed[first :: self._stride]
        found = hashable_rows(frame.select(columns)[changed])
        before_all = len(self._seen)
        self._seen.update(found)
        if len(self._seen) != before_all + len(found):
            raise OutOfOrder
        return changed

    def _columns(self, frame: pl.DataFrame) -> list[str]:
        if self._stride:
            return [c for c in ("source", "rollout_id") if "rollout_id" in frame.columns]
        names = self._names if any(n.startswith("by:") for n in self._names) else []
        wanted = [*(names or ["group_id", *self._names])]
        return [*(["source"] if self._per_file else []), *wanted]
