"""One piece of a log -> its rows of the credit table: a pure function that can run anywhere."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.engine.annotate import table_of
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.estimate import estimate
from crbc_cli.engine.growth import Growth
from crbc_cli.engine.load import Reading
from crbc_cli.engine.prepare import CHUNK_ROWS, Counted
from crbc_cli.engine.slabs import Slab
from crbc_cli.logs.columns import Field
from crbc_cli.methods.registry import Chosen, parse_methods
from crbc_cli.notes import Notes
from crbc_cli.options import CreditOptions, Settings, flag_of
from crbc_cli.process.quality import Conflicts
from crbc_cli.tables import GROUP_STATUSES

__all__ = ["Done", "Job", "Totals", "tell_unused", "work"]


Shaping = Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]

_CRBC_ALONE = ("discount", "w_g", "w_s", "floor", "sigma")
"""Options of the run that no other method starts from, and no other number depends on."""


@dataclass(frozen=True)
class Job:
    """What is done with each piece; the same for all of them. It can be pickled.

    Attributes:
      settings: all options, with conventions applied.
      rules: what makes up an anchor.
      method: estimators, as asked for.
      anchor_id: add content digests.
      chunk_rows: rows solved at a time.
      solve: false to find groups and outcomes only.
      extra: columns that are read beside the step table.
      shape: makes what is written of a credit table and the extra columns, row-aligned with it.
    """

    settings: Settings
    rules: RuleFile
    method: str | Sequence[str] = "crbc"
    anchor_id: bool = False
    chunk_rows: int = CHUNK_ROWS
    solve: bool = True
    extra: tuple[Field, ...] = ()
    shape: Shaping | None = None

    @cached_property
    def methods(self) -> tuple[Chosen, ...]:
        """The estimators."""
        settings = self.settings
        return tuple(parse_methods(self.method, settings.credit, settings.group_advantage))

    @cached_property
    def reading(self) -> Reading:
        """What is read of each row."""
        following = any("terminal" in chosen.needs for chosen in self.methods)
        return Reading.of(
            self.settings,
            self.rules,
            following=following,
            anchors=any(chosen.method.kind == "step" for chosen in self.methods),
            anchor_id=self.anchor_id,
            lengths=True,
            extra=self.extra,
        )

    @property
    def whole_log(self) -> bool:
        """A method needs all groups at once."""
        return any("log" in chosen.needs for chosen in self.methods)

    def __getstate__(self) -> dict[str, object]:
        made = {"methods", "reading"}
        return {name: value for name, value in self.__dict__.items() if name not in made}


@dataclass
class Totals:
    """What was counted; add pieces of a log in order, then tell once.

    Attributes:
      counted: while groups were arranged.
      growth: of the anchors' lengths.
      conflicts: behind the conflict rate.
      statuses: groups by status.
      credited, advantaged: rows with a step credit and with an advantage other than 0, by any
        method.
      rows, groups, rollouts: sizes.
    """

    counted: Counted = field(default_factory=Counted)
    growth: Growth = field(default_factory=Growth)
    conflicts: Conflicts = field(default_factory=Conflicts)
    statuses: Counter[str] = field(default_factory=Counter)
    credited: int = 0
    advantaged: int = 0
    rows: int = 0
    groups: int = 0
    rollouts: int = 0

    def add(self, later: "Totals") -> None:
        """Adds a later piece."""
        self.counted.add(later.counted)
        self.growth.add(later.growth)
        self.add_sizes(later)

    def add_sizes(self, other: "Totals") -> None:
        """Adds sizes and the conflict rate of another part or output."""
        self.conflicts += other.conflicts
        self.statuses += other.statuses
        self.credited += other.credited
        self.advantaged += other.advantaged
        self.rows += other.rows
        self.groups += other.groups
        self.rollouts += other.rollouts

    def tell_worthless(self, methods: Sequence[Chosen], notes: Notes) -> None:
        """Says so where the credit of a whole run is 0."""
        if not self.statuses.keys() - {"singleton"}:  # said while groups were found
            return
        if self.rows and not self.advantaged:
            each = ", ".join(f"{n} {status}" for status, n in self.statuses.most_common())
            notes.say(
                "no_contrast", f"all advantages are 0 or null (groups: {each}); see crbc check"
            )
        elif self.rows and not self.credited and any(m.method.kind == "step" for m in methods):
            notes.say(
                "no_step_credit",
                "no step has credit: at no anchor do actions differ in value; see crbc check",
            )

    def tell(self, settings: Settings, notes: Notes) -> None:
        """Says what was inferred and tolerated in one part of the run.

        Raises:
          CrbcError: what was counted is an error.
        """
        self.counted.tell(settings, notes)
        self.growth.tell(notes)


@dataclass
class Done:
    """A piece that was worked on.

    Attributes:
      table: its credit table, rows in input order; None if nothing was solved.
      source: uint32 (rows,), input of each row; None if there is one.
      number: int64 (rows,), places of the rows in the part; None if they follow on.
      totals, clock: of this piece.
    """

    table: pl.DataFrame | None
    source: NDArray[np.uint32] | None
    number: NDArray[np.int64] | None
    totals: Totals
    clock: Clock


def work(slab: Slab, job: Job) -> Done:
    """Credit of a piece.

    Errors that concern single groups are counted, so that a log is told about all of them.

    Raises:
      InputError and its kin: the rows cannot be read.
      ClosureError: the exact solve failed its residual check.
    """
    clock, totals = Clock(), Totals()
    loaded = slab.load(job.reading, job.rules, clock)
    totals.rows = loaded.frame.height
    log = totals.counted.arranging(loaded, job.settings, clock)
    table = None
    if log is not None and not totals.counted.failed:
        totals.groups, totals.rollouts = log.rollouts.groups, len(log.rollouts.group)
        with clock("arrange"):
            totals.growth = Growth.of(log)
        if job.solve:
            numbers = estimate(log, job.methods, clock, chunk_rows=job.chunk_rows)
            totals.conflicts = numbers.conflicts
            counts = np.bincount(log.outcomes.group_status, minlength=len(GROUP_STATUSES))
            found = zip(GROUP_STATUSES, counts.tolist(), strict=True)
            totals.statuses = Counter({status: n for status, n in found if n})
            each = numbers.methods.values()
            totals.credited = sum(_other_than_0(one.step_credit) for one in each)
            totals.advantaged = sum(_other_than_0(one.advantage) for one in each)
            with clock("combine"):
                table = table_of(log, numbers)
                if job.shape is not None:
                    table = job.shape(table, log.loaded.extra)
    source = None if len(slab.sources) == 1 else loaded.frame["source"].to_numpy()
    return Done(table, source, slab.number, totals, clock)


def tell_unused(settings: Settings, chosen: Sequence[Chosen], notes: Notes) -> None:
    """Says which options of the run no chosen method takes."""
    given = [name for name in _CRBC_ALONE if name in settings.explicit]
    if given and not any(one.method.options is CreditOptions for one in chosen):
        flags = ", ".join(map(flag_of, given))
        names = ", ".join(one.label for one in chosen)
        notes.say(
            "unused_options",
            f"{flags} is of crbc and changes nothing for {names}, whose own settings stand behind "
            "the name; see crbc methods",
            warning=True,
        )


def _other_than_0(numbers: NDArray[np.float64]) -> int:
    return int(np.count_nonzero(np.abs(numbers) > 0))
