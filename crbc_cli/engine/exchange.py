"""Rows worked on group by group, back in the order of the input."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.logs.scratch import scratch_folder

__all__ = ["Exchange"]

_BLOCK_ROWS = 1 << 17
_NUMBER = ":number"
_SOURCE = ":source"


class Exchange:
    """Takes tables of rows from anywhere in a log and gives the rows back in order.

    Rows are kept by blocks of the log, in memory up to `most` bytes and in files beyond.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._files = 0
        self._blocks: dict[int, list[pl.DataFrame | Path]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def add(
        self, table: pl.DataFrame, source: NDArray[np.uint32] | None, number: NDArray[np.int64]
    ) -> None:
        """Takes rows that stand at places `number` of the log, in ascending order."""
        rows = table.with_columns(pl.Series(_NUMBER, number))
        if source is not None:
            rows = rows.with_columns(pl.Series(_SOURCE, source))
        ends = np.arange(number[0] // _BLOCK_ROWS + 1, number[-1] // _BLOCK_ROWS + 2)
        cuts = np.searchsorted(number, ends * _BLOCK_ROWS)
        for end, begin, stop in zip(ends, np.append(0, cuts[:-1]), cuts, strict=True):
            if stop > begin:
                piece = rows.slice(int(begin), int(stop - begin))
                self._blocks.setdefault(int(end), []).append(piece)
        self._bytes += int(rows.estimated_size())
        if self._bytes > self._most:
            self._flush()

    def rows(self) -> Iterator[tuple[pl.DataFrame, NDArray[np.uint32] | None]]:
        """All rows in order: (table, input of each row)."""
        for block in sorted(self._blocks):
            pieces = self._blocks.pop(block)
            frames = [p if isinstance(p, pl.DataFrame) else pl.read_ipc(p) for p in pieces]
            whole = pl.concat(frames).sort(_NUMBER)
            source = whole[_SOURCE].to_numpy() if _SOURCE in whole.columns else None
            yield whole.drop(_NUMBER, _SOURCE, strict=False), source
        if self._folder is not None:
            self._folder.cleanup()

    def _flush(self) -> None:
        self._folder = self._folder or tempfile.TemporaryDirectory(dir=scratch_folder())
        for pieces in self._blocks.values():
            held = [p for p in pieces if isinstance(p, pl.DataFrame)]
            if held:
                path = Path(self._folder.name) / f"{self._files}.arrow"
                self._files += 1
                pl.concat(held).write_ipc(path)
                pieces[:] = [*(p for p in pieces if isinstance(p, Path)), path]
        self._bytes = 0
