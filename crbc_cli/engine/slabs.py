"""A log in pieces of complete groups, in canonical order: how each command that streams reads.

A Parquet log whose groups stand together is cut by row numbers, which a scan of the group ids
alone tells, and each piece is read where it is worked on. JSONL rows are cut as they come. Where a
group's rows are spread, or types only show in the end, rows are gathered first (`gather.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.engine.boundaries import Boundaries, OutOfOrder
from crbc_cli.engine.budget import Budget
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.gather import gathered
from crbc_cli.engine.load import (
    Loaded,
    Reading,
    empty_rows,
    keyed_batches,
    load_batch,
    refuse_missing,
)
from crbc_cli.logs.columns import Field
from crbc_cli.logs.formats.parquet import polars_errors
from crbc_cli.logs.sources import Source
from crbc_cli.logs.spans import Spans
from crbc_cli.notes import Notes
from crbc_cli.options import LogOptions
from crbc_cli.rollouts.inference import START, Before
from crbc_cli.rollouts.tally import Tally

__all__ = ["Slab", "slabs"]

_SCANNED_ROWS = 1 << 20


@dataclass(frozen=True)
class Slab:
    """Complete groups on their way through.

    Attributes:
      sources: the inputs of the part they belong to.
      frame: their rows, or
      spans, start, rows: where they stand in the only input.
      before: what of the only input stands before them.
      number: int64 (rows,), places of the rows in the part, if they do not follow on those of the
        slab before.
    """

    sources: Sequence[Source]
    frame: pl.DataFrame | None = None
    spans: Spans | None = None
    start: int = 0
    rows: int = 0
    before: Before = START
    number: NDArray[np.int64] | None = None

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.rows if self.frame is None else self.frame.height

    def load(self, reading: Reading, rules: RuleFile, clock: Clock) -> Loaded:
        """The rows.

        Raises:
          InputError and its kin: see `crbc_cli.logs`.
        """
        frame = self.frame
        if frame is None:
            assert self.spans is not None
            with clock("read"):
                batch = self.spans.read(reading.fields, self.start, self.rows)
                frame = load_batch(self.sources[0], 0, batch, reading)
            if frame.height != self.rows:
                raise self.sources[0].changed()
        clock.rows += frame.height
        apart = [name for name in reading.extra if name in frame.columns]
        return Loaded(
            frame.drop(apart), self.sources, rules, Notes(), frame.select(apart), self.before
        )


def slabs(
    part: Sequence[Source],
    reading: Reading,
    options: LogOptions,
    budget: Budget,
    limit: Callable[[int], int],
    clock: Clock,
    notes: Notes,
    tally: Tally,
    *,
    gather: bool,
) -> Iterator[Slab]:
    """Pieces of one part of a log; at least one, which may have no rows.

    Args:
      part: inputs that are read together.
      reading: what of each row.
      options: what makes a group.
      budget: bounds what is gathered in memory.
      limit: bytes of a row's values -> rows after which a piece ends with its group.
      clock: the stage "read" is added to.
      notes: told about torn and skipped lines and inputs without rows.
      tally: told about rollouts that were not logged, where rows are gathered.
      gather: the rows are known to be out of order.
    Raises:
      OutOfOrder: they turned out to be.
      InputError and its kin: see `crbc_cli.logs`
    """
    spans = Spans.of(part[0]) if len(part) == 1 else None
    if gather:
        found = gathered(part, reading, options, budget, limit(0), clock, notes, tally)
        for frame, number in found:
            yield Slab(part, frame, number=number)
    elif spans is None:
        yield from _as_they_come(part, reading, options, limit(0), clock, notes)
    else:
        with clock("read"):
            pieces = _by_number(spans, reading, options, limit, notes)
        yield from pieces


def _by_number(
    spans: Spans,
    reading: Reading,
    options: LogOptions,
    limit: Callable[[int], int],
    notes: Notes,
) -> list[Slab]:
    source = spans.source
    part = [source]
    if not spans.rows:
        notes.say("empty", f"{source.name} holds no rows", warning=True)
        batch = spans.read(reading.fields, 0, 0)
        refuse_missing(source, reading, batch.frame.collect_schema())
        frame = load_batch(source, 0, batch, reading)
        return [Slab(part, empty_rows(reading, frame))]
    if not spans.steady(reading.fields):
        raise OutOfOrder
    refuse_missing(source, reading, spans.read(reading.fields, 0, 0).frame.collect_schema())
    least = limit(spans.row_bytes(reading.fields))
    starts = _group_starts(spans, reading.fields, options)
    stride = options.group_stride if not options.group_by else 0
    found = []
    begin, before = 0, START
    for groups, end in enumerate([*starts[1:].tolist(), spans.rows], 1):
        if end - begin >= least or end == spans.rows:
            found.append(Slab(part, None, spans, begin, end - begin, before))
            begin, before = end, Before(end, groups * stride)
    return found


def _group_starts(spans: Spans, fields: Sequence[Field], options: LogOptions) -> NDArray[np.int64]:
    """First row of each group, from a scan of nothing but what tells groups apart."""
    names = {"rollout_id"} if options.infers_groups else {"group_id"}
    wanted = [f for f in fields if f.name in names or f.name.startswith(("by:", "key:"))]
    boundaries = Boundaries(options)
    starts = []
    for begin in range(0, spans.rows, _SCANNED_ROWS):
        batch = spans.read(wanted, begin, min(_SCANNED_ROWS, spans.rows - begin))
        with polars_errors(spans.source.name):
            frame = batch.frame.with_columns(pl.lit(0, pl.UInt32).alias("source")).collect()
        try:
            starts.append(begin + boundaries.starts(frame))
        except pl.exceptions.PolarsError as error:  # types that cannot be compared
            raise OutOfOrder from error
    return np.concatenate(starts)


def _as_they_come(
    part: Sequence[Source],
    reading: Reading,
    options: LogOptions,
    limit: int,
    clock: Clock,
    notes: Notes,
) -> Iterator[Slab]:
    stride = options.group_stride if not options.group_by else 0
    boundaries = Boundaries(options)
    waiting: list[pl.DataFrame] = []
    rows = cut = done = groups = 0
    before = START
    batches = _batches(part, reading, notes)
    while True:
        with clock("read"):
            frame = next(batches, None)
        if frame is None:
            break
        starts = boundaries.starts(frame)
        groups += len(starts)
        if len(starts):
            cut = rows + int(starts[-1])
        waiting.append(frame)
        rows += frame.height
        if cut >= limit:
            whole = pl.concat(waiting, rechunk=True)
            yield Slab(part, whole.slice(0, cut), before=before)
            done += cut
            before = Before(done, (groups - 1) * stride)
            waiting, rows, cut = [whole.slice(cut)], rows - cut, 0
    if not waiting:
        raise OutOfOrder  # what an input without rows means is said where rows are gathered
    yield Slab(part, pl.concat(waiting, rechunk=True), before=before)


def _batches(part: Sequence[Source], reading: Reading, notes: Notes) -> Iterator[pl.DataFrame]:
    """Batches with the columns and types of the first one that has rows.

    Raises:
      OutOfOrder: one has others.
    """
    schema: pl.Schema | None = None
    for index, source in enumerate(part):
        present: set[str] = set()
        rows = 0
        for frame in keyed_batches(source, index, reading, notes, present):
            if any(f.required and f.name not in present for f in reading.fields):
                raise OutOfOrder
            if frame.height:
                rows += frame.height
                schema = schema or frame.schema
                yield frame if frame.schema == schema else _alike(frame, schema)
        if not rows:
            notes.say("empty", f"{source.name} holds no rows", warning=True)


def _alike(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """The frame with a schema that differs from its own by columns without a value at most."""
    for name, dtype in frame.schema.items():
        if dtype != pl.Null and schema.get(name) != dtype:
            raise OutOfOrder
    return frame.select(
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )
