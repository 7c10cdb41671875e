"""Logs -> outputs, a piece of complete groups at a time.

    slabs of a part -> executor (work on each, anywhere) -> rows in input order -> sinks

Nothing is held but the pieces that are worked on, the block that is encoded, and what was counted.
An output appears when all of it is written; what is said about its inputs stands in its metadata.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.boundaries import OutOfOrder
from crbc_cli.engine.budget import Budget
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.exchange import Exchange
from crbc_cli.engine.execute import Executor
from crbc_cli.engine.output import OutputPlan
from crbc_cli.engine.sink import Sink, Sinks, Wider
from crbc_cli.engine.slabs import Slab, slabs
from crbc_cli.engine.work import Job, Totals
from crbc_cli.errors import CrbcError, InputError
from crbc_cli.logs.sources import Source, refuse_changed
from crbc_cli.notes import Notes, counted
from crbc_cli.rollouts.tally import Tally

__all__ = ["Stream", "Told", "Unit", "units"]

Part = Sequence[Source]
_ENDLESS = 1 << 62


@dataclass(frozen=True)
class Unit:
    """Parts and outputs that are done together: each output is whole when its unit is."""

    parts: Sequence[Part]
    plans: Sequence[OutputPlan]

    @property
    def sources(self) -> list[Source]:
        """The inputs, in order."""
        return [source for part in self.parts for source in part]


Told = tuple[Unit, Totals | CrbcError, Notes]
"""A unit, its sizes or why its outputs could not be made, and what was said about it."""


def units(parts: Sequence[Part], plans: Sequence[OutputPlan]) -> list[Unit]:
    """One unit per output where inputs are read one by one, otherwise one for everything."""
    if any(len(part) > 1 for part in parts):
        return [Unit(parts, plans)]
    return [Unit([[source] for source in plan.sources], [plan]) for plan in plans]


@dataclass
class Stream:
    """Everything about doing units that is the same for each.

    Attributes:
      job: what is done with each piece.
      executor: where.
      budget: bounds memory.
      sinks: opens outputs; None writes none.
      metadata: how an output was made, given what is said about its inputs.
      notes: what is said about the whole run.
      clock: seconds per stage, summed over threads.
      most_rows: rows of a piece at most, if its groups are not larger.
      stopped: set to end everything after the piece in hand.
      progress: told how many rows are done, now and then.
    """

    job: Job
    executor: Executor
    budget: Budget
    sinks: Sinks | None
    metadata: Callable[[OutputPlan, Notes], Mapping[str, Any]]
    notes: Notes = field(default_factory=Notes)
    clock: Clock = field(default_factory=Clock)
    most_rows: int = _ENDLESS
    stopped: Event = field(default_factory=Event)
    progress: Callable[[str], None] | None = None

    def run_all(self, units: Sequence[Unit]) -> Generator[Told]:
        """Does units, several at a time if there are several, and tells of each in order.

        A unit is done by one thread then: files are the larger pieces. After a failure others go
        on until the caller leaves.
        """
        if len(units) < 2 or self.executor.together < 2:
            for unit in units:
                yield self.tried(unit)
            return
        one = replace(self, executor=self.executor.alone(), progress=None)
        alone = [replace(one, clock=Clock()) for _ in units]
        with ThreadPoolExecutor(self.executor.together, "crbc") as pool:
            tasks = [pool.submit(stream.tried, u) for stream, u in zip(alone, units, strict=True)]
            try:
                for stream, task in zip(alone, tasks, strict=True):
                    told = task.result()
                    self.clock.add(stream.clock)
                    yield told
            finally:
                self.stopped.set()
                for task in tasks:
                    task.cancel()

    def tried(self, unit: Unit) -> Told:
        """Does one unit."""
        notes = Notes([*self.notes.items])
        try:
            return unit, self.run(unit, notes), notes
        except CrbcError as error:
            return unit, error, notes

    def __getstate__(self) -> dict[str, object]:
        """Elsewhere, nobody can stop it from here."""
        return {name: value for name, value in self.__dict__.items() if name != "stopped"}

    def run(self, unit: Unit, notes: Notes) -> Totals:
        """Does one unit and says what is to be said.

        Raises:
          CrbcError: as reading, solving and writing do; nothing is left half-written.
        """
        gather: set[int] = set()
        schemas: dict[int, pl.Schema] = {}
        while True:
            said, rows = Notes([*notes.items]), self.clock.rows
            try:
                totals = self._attempt(unit, said, gather, schemas)
            except OutOfOrder as found:
                gather.add(found.part)
            except Wider as found:
                schemas[id(found.plan)] = found.schema
            else:
                notes.items[:] = said.items
                return totals
            self.clock.rows = rows

    def _attempt(
        self, unit: Unit, notes: Notes, gather: set[int], schemas: Mapping[int, pl.Schema]
    ) -> Totals:
        totals = Totals()
        stamps = {source: source.stamp for source in unit.sources}
        with ExitStack() as stack:
            if self.sinks is not None:
                beside = stack.enter_context(ThreadPoolExecutor(1))
                stack.callback(beside.shutdown, wait=False, cancel_futures=True)
                for source in unit.sources:
                    beside.submit(getattr, source, "digest")  # at the end it is there
            opened: dict[Source, tuple[int, Sink]] = {}
            for number, plan in enumerate(unit.plans if self.sinks is not None else ()):
                assert self.sinks is not None
                sink = stack.enter_context(self.sinks(plan, schemas.get(id(plan))))
                opened |= dict.fromkeys(plan.sources, (number, sink))
            written: set[int] = set()
            table: pl.DataFrame | None = None
            for source, table in self._tables(unit, notes, gather, totals):
                if opened:
                    with self.clock("write"):
                        number, sink = opened[source]
                        sink.write(source, table)
                        written.add(number)
            refuse_changed(stamps)
            if totals.conflicts.rate is not None:
                notes.say("conflict_rate", totals.conflicts.told)
            for plan in unit.plans if opened else ():
                number, sink = opened[plan.sources[0]]
                with self.clock("write"):
                    if number not in written and table is not None:
                        sink.write(plan.sources[0], table.clear())
                    sink.finish(self.metadata(plan, notes))
            with self.clock("write"):
                stack.close()
        return totals

    def _tables(
        self, unit: Unit, notes: Notes, gather: set[int], totals: Totals
    ) -> Iterator[tuple[Source, pl.DataFrame]]:
        for number, part in enumerate(unit.parts):
            try:
                yield from self._part(part, notes, number in gather, totals)
            except OutOfOrder as found:
                found.part = number
                raise

    def _fitting(self, slab: Slab) -> Slab:
        self.budget.refuse(slab.height, slab.sources[0].name)
        return slab

    def _part(
        self, part: Part, notes: Notes, gather: bool, totals: Totals
    ) -> Iterator[tuple[Source, pl.DataFrame]]:
        job, mine, inferred = self.job, Totals(), Tally()
        pieces = slabs(
            part,
            job.reading,
            job.settings.log,
            self.budget,
            self._limit,
            self.clock,
            notes,
            inferred,
            gather=gather,
        )
        exchange = Exchange(self.budget.gathered)
        for done in self.executor.run(map(self._fitting, pieces), job):
            if self.stopped.is_set():
                raise InputError("is left, as the run ended", part[0].name)
            mine.add(done.totals)
            self.clock.add(done.clock)
            if self.progress is not None:
                self.progress(counted(self.clock.rows, "row"))
            if done.table is None:
                continue
            if done.number is None or not len(done.number):
                yield from _by_source(part, done.table, done.source)
            else:
                with self.clock("combine"):
                    exchange.add(done.table, done.source, done.number)
            del done
        for table, source in exchange.rows():
            yield from _by_source(part, table, source)
        mine.counted.tally.add(inferred)
        mine.tell(job.settings, notes)
        totals.add_sizes(mine)

    def _limit(self, row_bytes: int) -> int:
        if self.job.whole_log:
            return _ENDLESS
        return min(self.budget.rows(row_bytes), self.most_rows)


def _by_source(
    part: Part, table: pl.DataFrame, source: NDArray[np.uint32] | None
) -> Iterator[tuple[Source, pl.DataFrame]]:
    """Rows of each input; rows come in the order of inputs."""
    if source is None or not len(source):
        yield part[0], table
        return
    begins = np.flatnonzero(np.diff(source.astype(np.int64), prepend=-1))
    for begin, end in zip(begins, np.append(begins[1:], len(source)), strict=True):
        yield part[int(source[begin])], table.slice(int(begin), int(end - begin))
