"""How good the anchors of a log are: counts per group, conflicts, and the true state if known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.prepare import Chunk, Prepared
from crbc_cli.errors import ColumnError, OptionError
from crbc_cli.logs.columns import Field
from crbc_cli.process.agreement import TruthScores, codes, distinct_per, truth_scores
from crbc_cli.process.empirical import EmpiricalProcess
from crbc_cli.process.quality import Conflicts, pair_outcomes

__all__ = [
    "COUNTS",
    "Quality",
    "Truth",
    "TruthRows",
    "group_counts",
    "quality_of",
]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

COUNTS = (
    "rollouts",
    "rows",
    "visits",
    "anchors",
    "once",
    "shared",
    "pairs",
    "repeated",
    "conflicting",
    "no_op",
    "missing",
    "thought",
)
"""Columns of `group_counts` that can be added over groups."""


@dataclass(frozen=True)
class Quality:
    """Anchors of some groups in numbers.

    Attributes:
      groups, rollouts, rows: sizes.
      visits: rows that are environment steps with an anchor and take part.
      anchors, once: anchors, and those visited once.
      shared: visits on anchors that several rollouts visit.
      pairs: distinct (anchor, action).
      conflicts: behind the conflict rate; see `crbc_cli.process.quality`.
      no_op, missing, thought: rows whose reply says that nothing happened, rows without a reply
        otherwise, rows that are no environment steps.
    """

    groups: int
    rollouts: int
    rows: int
    visits: int
    anchors: int
    once: int
    shared: int
    pairs: int
    conflicts: Conflicts
    no_op: int
    missing: int
    thought: int

    @property
    def visits_per_anchor(self) -> float | None:
        return _share(self.visits, self.anchors)

    @property
    def once_share(self) -> float | None:
        """Share of the anchors that are visited once."""
        return _share(self.once, self.anchors)

    @property
    def shared_share(self) -> float | None:
        """Share of the visits on anchors that several rollouts visit."""
        return _share(self.shared, self.visits)

    @property
    def actions_per_anchor(self) -> float | None:
        return _share(self.pairs, self.anchors)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`; shares are null where there is nothing to divide by."""
        return {
            "groups": self.groups,
            "rollouts": self.rollouts,
            "rows": self.rows,
            "visits": self.visits,
            "anchors": self.anchors,
            "visits_per_anchor": self.visits_per_anchor,
            "anchors_visited_once_share": self.once_share,
            "shared_visits_share": self.shared_share,
            "actions_per_anchor": self.actions_per_anchor,
            "conflict_rate": self.conflicts.rate,
            "repeated_pair_visits": self.conflicts.repeated,
            "conflicting_visits": self.conflicts.visits,
            "no_op_rows": self.no_op,
            "missing_rows": self.missing,
            "thought_rows": self.thought,
        }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def quality_of(counts: pl.DataFrame) -> Quality:
    """The numbers of some groups, rows of `group_counts`, together."""
    total = {name: int(counts[name].sum()) for name in COUNTS}
    conflicts = Conflicts(total.pop("conflicting"), total.pop("repeated"))
    return Quality(groups=counts.height, conflicts=conflicts, **total)


def group_counts(log: Prepared, chunks: Iterable[Chunk]) -> pl.DataFrame:
    """One row per group: `source_file`, `group_id` (text) and the columns of COUNTS.

    Args:
      log: the log.
      chunks: all of its chunks.
    """
    r = log.rollouts
    counts = {name: np.zeros(r.groups, np.int64) for name in COUNTS}
    row_group = r.row_group()
    reply = log.loaded.frame
    said = reply["reply_key"].is_not_null().to_numpy()[r.row]
    no_op = np.zeros(len(r.row), bool)
    if "no_op" in reply.columns:
        no_op = reply["no_op"].cast(pl.Boolean).fill_null(False).to_numpy()[r.row]
    for name, mask in (
        ("rows", np.ones(len(r.row), bool)),
        ("no_op", no_op),
        ("missing", ~said & ~no_op),
        ("thought", log.thought),
    ):
        counts[name] = np.bincount(row_group, mask, r.groups).astype(np.int64)
    counts["rollouts"] = np.bincount(r.group, minlength=r.groups)
    for chunk in chunks:
        own = slice(chunk.first_group, chunk.first_group + chunk.process.groups)
        for name, values in _process_counts(chunk.process).items():
            counts[name][own] += values
    first = np.full(r.groups, -1, np.int64)
    first[r.group[::-1]] = r.first[::-1]
    files = pl.Series([source.name for source in log.loaded.sources], dtype=pl.String)
    return pl.DataFrame(
        {
            "source_file": files.gather(log.frame["source"].gather(first)),
            "group_id": log.frame["group_id"].gather(first).cast(pl.String),
            **counts,
        }
    )


def _process_counts(process: EmpiricalProcess) -> dict[str, Ints]:
    """Counts per group of one chunk, (groups,) each."""
    group, visits = process.state_group, process.state_visits
    pair_group = group[process.pair_state]
    outcomes = pair_outcomes(process)
    several = distinct_per(process.state, process.rollout) > 1

    def per_group(of: Ints, weight: Any = None) -> Ints:
        return np.bincount(of, weight, process.groups).astype(np.int64)

    return {
        "visits": per_group(group, visits),
        "anchors": per_group(group),
        "once": per_group(group, visits == 1),
        "shared": per_group(group, visits * several),
        "pairs": per_group(pair_group),
        "repeated": per_group(pair_group, outcomes.visits * (outcomes.visits > 1)),
        "conflicting": per_group(pair_group, outcomes.visits * outcomes.conflict),
    }


@dataclass(frozen=True)
class Truth:
    """Which rows are scored against which true state.

    Attributes:
      state: column that holds it.
      where: SQL condition on columns of the log that rows must meet, "" for none.
      min_rollouts: fewest rollouts of a group that is scored.
    """

    state: str
    where: str = ""
    min_rollouts: int = 1

    def fields(self) -> list[Field]:
        """What must be read.

        Raises:
          OptionError: the condition cannot be parsed.
        """
        state = Field("extra:state", self.state, "label")
        return [state, *(Field(f"where:{name}", name, "scalar") for name in self._columns())]

    def _columns(self) -> list[str]:
        if not self.where:
            return []
        try:
            names = pl.sql_expr(self.where).meta.root_names()
        except (pl.exceptions.PolarsError, pl.exceptions.SQLInterfaceError) as error:
            raise self._refused(error) from error
        return sorted(set(names))

    def _refused(self, error: Exception) -> OptionError:
        reason = str(error).strip().splitlines()[0]
        return OptionError(
            f"--where {self.where!r} cannot be evaluated ({reason})",
            todo="for example --where \"kind = 'action'\"",
        )

    def rows(self, log: Prepared) -> "TruthRows":
        """The visits that are scored.

        Raises:
          ColumnError: the log has no such column; OptionError: the condition does not work.
        """
        extra, r = log.loaded.extra, log.rollouts
        for field in self.fields():
            if field.name not in extra.columns:
                flag = "--state" if field.name == "extra:state" else "--where"
                raise ColumnError(
                    f"has no column {field.column}",
                    log.loaded.sources[0].name,
                    f"name another with {flag}",
                )
        truth = extra["extra:state"]
        taken = log.is_visit & truth.is_not_null().to_numpy()[r.row]
        taken &= (np.bincount(r.group, minlength=r.groups) >= self.min_rollouts)[r.row_group()]
        if self.where:
            taken &= self._meets(extra)[r.row]
        at = np.flatnonzero(taken)
        return TruthRows(
            r.row_group()[at],
            log.anchor_key[at],
            r.rollout[at],
            truth.gather(r.row[at]).cast(pl.String).hash().to_numpy(),
        )

    def _meets(self, extra: pl.DataFrame) -> Bools:
        columns = extra.select(pl.col(f"where:{name}").alias(name) for name in self._columns())
        try:
            met = columns.with_columns(pl.sql_expr(self.where).alias(":met"))[":met"]
        except (pl.exceptions.PolarsError, pl.exceptions.SQLInterfaceError) as error:
            raise self._refused(error) from error
        if met.dtype != pl.Boolean:
            raise self._refused(ValueError(f"it gives {met.dtype}, not true or false"))
        flags: Bools = met.fill_null(False).to_numpy()
        return flags


@dataclass(frozen=True)
class TruthRows:
    """Visits with their true state, (n,) each; groups and rollouts count from 0 in each log."""

    group: Ints
    anchor: NDArray[np.uint64]
    rollout: Ints
    truth: NDArray[np.uint64]

    @staticmethod
    def scores(parts: "Sequence[TruthRows]") -> TruthScores:
        """Scores of all logs together."""
        log = np.repeat(np.arange(len(parts)), [len(part.group) for part in parts])
        group, rollout, anchor, truth = (
            np.concatenate([getattr(part, name).view(np.int64) for part in parts])
            for name in ("group", "rollout", "anchor", "truth")
        )
        group = codes(log, group)
        return truth_scores(group, codes(group, anchor), codes(log, rollout), codes(truth))
