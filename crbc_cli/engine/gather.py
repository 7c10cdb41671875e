"""Rows whose groups are spread, gathered: in memory while they are few, on disk otherwise.

Rows are compact (keys instead of text). Two passes over what was put aside give each group's rows
to one piece: the first finds the groups, the second deals the rows out.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.budget import Budget
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.joining import concatenated, hashable_rows, refuse_mixed
from crbc_cli.engine.load import (
    Reading,
    empty_rows,
    keyed_batches,
    load_batch,
    refuse_missing,
)
from crbc_cli.errors import InputError
from crbc_cli.logs.columns import refuse_null
from crbc_cli.logs.scratch import scratch_folder
from crbc_cli.logs.sources import Source
from crbc_cli.logs.spans import Spans
from crbc_cli.notes import Notes
from crbc_cli.options import LogOptions
from crbc_cli.rollouts.identity import group_columns
from crbc_cli.rollouts.inference import Before, infer_groups
from crbc_cli.rollouts.tally import Tally

__all__ = ["gathered"]

_NUMBER = ":number"
Ints = NDArray[np.int64]


def gathered(
    part: Sequence[Source],
    reading: Reading,
    options: LogOptions,
    budget: Budget,
    limit: int,
    clock: Clock,
    notes: Notes,
    tally: Tally,
) -> Iterator[tuple[pl.DataFrame, Ints | None]]:
    """Complete groups of a part, in canonical order, with the places of their rows in it (None if
    all rows come in order); see `crbc_cli.engine.slabs.slabs`."""
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        with clock("read"):
            # A stride counts rollouts along the file, and checks the first row of each.
            store = _Store(Path(folder), 0 if options.group_stride else budget.gathered)
            for index, source in enumerate(part):
                _read_source(source, index, reading, limit, store, notes)
            pieces = _Pieces(store, [s.name for s in part], options, tally)
            groups = _Groups()
            codes = [groups.codes(frame, options) for frame in pieces.frames()]
        if not groups.rows:
            yield pieces.whole(), None
            return
        bounds = _bounds(np.array(groups.rows), limit)
        if store.spilled:
            yield from _dealt(pieces, codes, bounds, clock)
        else:
            yield from _taken(pieces.whole(), codes[0], bounds)


def _taken(
    whole: pl.DataFrame, code: NDArray[np.int32], bounds: Ints
) -> Iterator[tuple[pl.DataFrame, Ints | None]]:
    """Rows taken out of a frame, groups up to each bound at a time."""
    in_order = bool(np.all(np.diff(code) >= 0))
    order = np.argsort(code, kind="stable")
    ends = np.searchsorted(code[order], bounds)
    for begin, end in zip(np.append(0, ends[:-1]), ends, strict=True):
        if in_order:
            yield whole.slice(int(begin), int(end - begin)), None
        else:
            rows = np.sort(order[begin:end])
            yield whole[rows], rows


def _bounds(rows: Ints, limit: int) -> Ints:
    """Codes at which pieces end: each ends with the first group that reaches `limit` rows."""
    ends, begin, total = [], 0, np.cumsum(rows)
    while begin < len(rows):
        before = total[begin - 1] if begin else 0
        begin = min(int(np.searchsorted(total, before + limit)) + 1, len(rows))
        ends.append(begin)
    return np.array(ends)


@dataclass
class _Stored:
    """Consecutive rows of one input, in memory or in a file."""

    schema: pl.Schema
    rows: int
    first_row: int
    frame: pl.DataFrame | None
    path: Path | None = None

    def read(self) -> pl.DataFrame:
        if self.frame is not None:
            return self.frame
        assert self.path is not None
        return pl.read_ipc(self.path)


@dataclass
class _Store:
    """Rows put aside; those that exceed `most` bytes (0: never) go to files.

    Attributes:
      stored: of each input, in order.
    """

    folder: Path
    most: int
    stored: list[list[_Stored]] = field(default_factory=list)
    spilled: bool = False
    _bytes: int = 0

    def add(self, frame: pl.DataFrame) -> None:
        first = int(frame["source_row"][0]) if frame.height else 0
        self.stored[-1].append(_Stored(frame.schema, frame.height, first, frame))
        self._bytes += int(frame.estimated_size())
        if self.most and self._bytes > self.most:
            self.flush()

    def flush(self) -> None:
        """Writes what is in memory, runs of one schema together."""
        for pieces in self.stored:
            kept: list[_Stored] = []
            for piece in pieces:
                last = kept[-1] if kept else None
                mine = None if last is None or last.schema != piece.schema else last.frame
                if last is None or mine is None or piece.frame is None:
                    kept.append(piece)
                    continue
                last.frame = pl.concat([mine, piece.frame], rechunk=False)
                last.rows = last.frame.height
            pieces[:] = kept
            for piece in pieces:
                if piece.frame is not None:
                    piece.path = self.folder / f"{id(piece)}.arrow"
                    piece.frame.write_ipc(piece.path)
                    piece.frame = None
        self._bytes, self.spilled = 0, True


def _read_source(
    source: Source, index: int, reading: Reading, limit: int, store: _Store, notes: Notes
) -> None:
    present: set[str] = set()
    store.stored.append([])
    first: pl.DataFrame | None = None
    for frame in _batches(source, index, reading, limit, notes, present):
        first = frame if first is None else first
        if frame.height:
            store.add(frame)
    pieces = store.stored[-1]
    refuse_mixed([p.schema for p in pieces], [source.name])
    if first is not None:
        refuse_missing(source, reading, present)
    if not pieces:
        notes.say("empty", f"{source.name} holds no rows", warning=True)
        store.add(empty_rows(reading, pl.DataFrame() if first is None else first))
    for f in reading.fields:
        absent = next((p for p in pieces if f.name not in p.schema and p.rows), None)
        if f.required and f.role in ("id", "integer", "label") and absent is not None:
            place = source.where(absent.first_row)
            refuse_null(pl.Series(f.name, [None]), f, lambda _, place=place: place)  # type: ignore[misc]


def _batches(
    source: Source, index: int, reading: Reading, limit: int, notes: Notes, present: set[str]
) -> Iterator[pl.DataFrame]:
    spans = Spans.of(source)
    if spans is None or not spans.steady(reading.fields):
        yield from keyed_batches(source, index, reading, notes, present)
        return
    for begin in range(0, spans.rows, limit) or (0,):
        batch = spans.read(reading.fields, begin, min(limit, spans.rows - begin))
        present.update(batch.frame.collect_schema())
        yield load_batch(source, index, batch, reading)


@dataclass
class _Pieces:
    """What was put aside, with the types that hold all of it, and groups inferred."""

    store: _Store
    names: Sequence[str]
    options: LogOptions
    tally: Tally

    def __post_init__(self) -> None:
        stored = [p for pieces in self.store.stored for p in pieces]
        self._stored = [p for p in stored if p.rows] or stored[:1]
        refuse_mixed([p.schema for p in self._stored], self.names)
        if not self.store.spilled:
            whole = concatenated([p.read() for p in self._stored], self.names)
            whole = infer_groups(whole, self.options, self._place, self.tally)
            self._whole = whole
            return
        empty = [pl.DataFrame(schema=p.schema) for p in self._stored]
        self._schema = pl.concat(empty, how="diagonal_relaxed").schema
        for name, dtype in self._schema.items():
            if dtype == pl.Int128:
                self._schema[name] = self._narrow(name)

    def whole(self) -> pl.DataFrame:
        """All rows, where they are in memory."""
        return self._whole

    def frames(self) -> Iterator[pl.DataFrame]:
        """The rows in order, a piece at a time."""
        if not self.store.spilled:
            yield self._whole
            return
        done: dict[int, int] = {}
        for piece in self._stored:
            frame = piece.read()
            frame = frame.select(
                pl.col(n).cast(t) if n in frame.columns else pl.lit(None, t).alias(n)
                for n, t in self._schema.items()
            )
            source = int(frame["source"][0])
            before = Before(done.get(source, 0))
            done[source] = before.rows + frame.height
            yield infer_groups(frame, self.options, self._place, self.tally, before)

    def _place(self, row: int) -> str:
        raise AssertionError(row)  # strides, which name rows, are inferred from whole logs

    def _narrow(self, name: str) -> Any:
        """The type of 64 bits that holds signed and unsigned integers of a column."""
        has = [p.read()[name] for p in self._stored if name in p.schema]
        low = min(int(s.min() or 0) for s in has)  # type: ignore[arg-type]
        high = max(int(s.max() or 0) for s in has)  # type: ignore[arg-type]
        if low < 0 and high >= 2**63:
            raise InputError(
                f"column {name.rpartition(':')[2]} needs more than 64 bits",
                ", ".join(self.names[:3]),
                "write it as strings",
            )
        return pl.UInt64 if high >= 2**63 else pl.Int64


class _Groups:
    """Numbers of groups by first appearance, and their rows."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], int] = {}
        self.rows: list[int] = []

    def codes(self, frame: pl.DataFrame, options: LogOptions) -> NDArray[np.int32]:
        """Group of each row, int32 (n,)."""
        if not frame.height:
            return np.empty(0, np.int32)
        columns = group_columns(frame.columns, options)
        distinct = frame.select(columns).unique(maintain_order=True)
        known = self._known
        numbers = [known.setdefault(key, len(known)) for key in hashable_rows(distinct)]
        table = distinct.with_columns(pl.Series(":code", numbers, dtype=pl.Int32))
        found = frame.select(columns).join(
            table, on=columns, how="left", nulls_equal=True, maintain_order="left"
        )
        codes: NDArray[np.int32] = found[":code"].to_numpy()
        self.rows += [0] * (len(known) - len(self.rows))
        for code, number in zip(*np.unique(codes, return_counts=True), strict=True):
            self.rows[code] += int(number)
        return codes


def _dealt(
    pieces: _Pieces, codes: list[NDArray[np.int32]], bounds: Ints, clock: Clock
) -> Iterator[tuple[pl.DataFrame, Ints | None]]:
    """Rows dealt out to files, one folder for the groups up to each bound, and read again."""
    folder = pieces.store.folder / "groups"
    with clock("read"):
        first = 0
        for number, (frame, code) in enumerate(zip(pieces.frames(), codes, strict=True)):
            numbered = frame.with_columns(pl.Series(_NUMBER, np.arange(first, first + len(code))))
            first += len(code)
            at = np.searchsorted(bounds, code, side="right")
            for one in np.unique(at).tolist():
                place = folder / str(one)
                place.mkdir(parents=True, exist_ok=True)
                numbered.filter(pl.Series(at == one)).write_ipc(place / f"{number:08}.arrow")
    for one in range(len(bounds)):
        place = folder / str(one)
        with clock("read"):
            files = sorted(place.iterdir())
            frame = pl.concat([pl.read_ipc(f) for f in files], rechunk=True)
            shutil.rmtree(place)
        yield frame.drop(_NUMBER), frame[_NUMBER].to_numpy()
