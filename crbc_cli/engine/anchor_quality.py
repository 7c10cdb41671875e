"""How good the anchors of a log are: counts per group, and conflicts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.prepare import Chunk, Prepared
from crbc_cli.process.agreement import distinct_per
from crbc_cli.process.empirical import EmpiricalProcess
from crbc_cli.process.quality import Conflicts, pair_outcomes

__all__ = ["COUNTS", "Quality", "group_counts", "quality_of"]

Ints = NDArray[np.int64]

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
