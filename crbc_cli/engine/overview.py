"""Every group, and every input of a run, in one line: what a report lists and what it draws over
training updates."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.anchor_quality import group_counts
from crbc_cli.engine.clock import CREDIT_STAGES, Clock
from crbc_cli.engine.estimate import Estimates, estimate
from crbc_cli.engine.prepare import Prepared
from crbc_cli.methods.crbc import gate
from crbc_cli.methods.registry import parse_methods
from crbc_cli.process.coverage import reachable_rollouts
from crbc_cli.tables import GROUP_STATUSES

__all__ = ["FLAT", "GroupLine", "Overview", "UpdateLine", "overview"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FLAT = ("all_success", "all_fail", "constant")
"""Statuses of groups whose group advantage is 0."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group; shares and means are None where there is nothing to divide by.

    Attributes:
      part: which of the run's parts (`Reader.parts`) holds it.
      group: its number inside that part.
      source_file, group_id, key: which group it is; `key` holds the values of --key columns.
      status: as in the credit table.
      rollouts, successes, unscored: rollouts by ending.
      rows, visits, anchors: sizes.
      shared: share of the visits on anchors that several rollouts visit.
      conflict: share of the visits of repeated pairs, on pairs with several next anchors.
      credited: share of the rows with a step credit other than 0.
      reach_0, reach: mean reachable rollouts of eligible visits at depth 0 and at full closure.
      interest: mean over its rows of |credit at full closure - credit at depth 0|.
    """

    part: int
    group: int
    source_file: str
    group_id: str | int
    key: dict[str, Any]
    status: str
    rollouts: int
    successes: int
    unscored: int
    rows: int
    visits: int
    anchors: int
    shared: float | None
    conflict: float | None
    credited: float | None
    reach_0: float | None
    reach: float | None
    interest: float


@dataclass(frozen=True, slots=True)
class UpdateLine:
    """One input of a run, which is one training update where a folder holds one file for each.

    Attributes:
      source_file: its name.
      groups, rollouts, rows: sizes.
      success_rate: successes among scored rollouts.
      reach_0, reach: mean share of its group's rollouts that an eligible visit reaches, at depth 0
        and at full closure.
      full_0, full: share of eligible visits that reach every rollout of their group, at both.
      credited: share of the rows with a step credit other than 0.
      zero_variance: share of the groups whose group advantage is 0: constant ones.
      conflict: conflict rate of the anchors.
      seconds: of credit construction.
    """

    source_file: str
    groups: int
    rollouts: int
    rows: int
    success_rate: float | None
    reach_0: float | None
    reach: float | None
    full_0: float | None
    full: float | None
    credited: float | None
    zero_variance: float | None
    conflict: float | None
    seconds: float


@dataclass(frozen=True)
class Overview:
    """All groups in the order of the log, and all inputs that hold rows, in order."""

    groups: list[GroupLine]
    updates: list[UpdateLine]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "groups": [asdict(line) for line in self.groups],
            "updates": [asdict(line) for line in self.updates],
        }


def overview(logs: Iterable[Prepared]) -> Overview:
    """Measures every group once.

    Args:
      logs: the parts of a run, in order.
    Raises:
      ClosureError: as `estimate`.
    """
    groups: list[GroupLine] = []
    updates: list[UpdateLine] = []
    for part, log in enumerate(logs):
        if len(log.rollouts.row):
            measured = _Measured(log)
            lines = measured.lines(part)
            groups += lines
            updates += measured.updates(lines)
    return Overview(groups, updates)


class _Measured:
    """One part: numbers per row in canonical order, and per group."""

    def __init__(self, log: Prepared) -> None:
        self.log, clock = log, Clock()
        settings = log.settings
        methods = parse_methods(
            "run=crbc,local=crbc:depth=0,closure=crbc:depth=inf",
            settings.credit,
            settings.group_advantage,
        )
        numbers = estimate(log, methods, clock)
        self.counts = group_counts(log, log.chunks(Clock()))
        self.group = log.rollouts.row_group()
        self.credited = np.nan_to_num(numbers.methods["run"].step_credit) != 0
        gap = numbers.methods["closure"].credit - numbers.methods["local"].credit
        self.moved = np.abs(np.nan_to_num(gap))
        self.eligible, self.local = self._reach(numbers)
        self.full = numbers.reachable.astype(np.int64)
        self.seconds = sum(clock.seconds.get(stage, 0.0) for stage in CREDIT_STAGES)
        source = log.frame["source"].to_numpy()[log.rollouts.row]
        self.source_of_row: Ints = source.astype(np.int64)

    def _reach(self, numbers: Estimates) -> tuple[NDArray[np.bool_], Ints]:
        """Rows that are eligible visits, and what they reach at depth 0."""
        rows = len(self.log.rollouts.row)
        eligible, local = np.zeros(rows, bool), np.zeros(rows, np.int64)
        for chunk in self.log.chunks(Clock()):
            process = chunk.process
            eligible[chunk.position] = gate(process, "actions")[process.state]
            local[chunk.position] = reachable_rollouts(process, 0)[process.state]
        return eligible, local

    def lines(self, part: int) -> list[GroupLine]:
        log, counts = self.log, self.counts
        r, outcomes = log.rollouts, log.outcomes
        rows = np.bincount(self.group, minlength=r.groups)

        def mean(of: Floats, weight: Ints | None = None) -> list[float | None]:
            below = rows if weight is None else weight
            return _ratios(np.bincount(self.group, of, r.groups), below)

        eligible = np.bincount(self.group, self.eligible, r.groups).astype(np.int64)
        columns = {
            "rollouts": np.bincount(r.group, minlength=r.groups).tolist(),
            "successes": np.bincount(r.group, outcomes.success, r.groups).astype(int).tolist(),
            "unscored": np.bincount(r.group, ~outcomes.scored, r.groups).astype(int).tolist(),
            "rows": rows.tolist(),
            "visits": counts["visits"].to_list(),
            "anchors": counts["anchors"].to_list(),
            "shared": _ratios(counts["shared"].to_numpy(), counts["visits"].to_numpy()),
            "conflict": _ratios(counts["conflicting"].to_numpy(), counts["repeated"].to_numpy()),
            "credited": mean(self.credited.astype(np.float64)),
            "reach_0": mean(np.where(self.eligible, self.local, 0.0), eligible),
            "reach": mean(np.where(self.eligible, self.full, 0.0), eligible),
            "interest": [value or 0.0 for value in mean(self.moved)],
        }
        first = log.frame[_first_rows(r.group, r.first, r.groups)]
        keys = [name for name in first.columns if name.startswith("key:")]
        names = list(GROUP_STATUSES)
        return [
            GroupLine(
                part=part,
                group=group,
                source_file=counts["source_file"][group],
                group_id=row["group_id"],
                key={name.removeprefix("key:"): row[name] for name in keys},
                status=names[int(outcomes.group_status[group])],
                **{name: values[group] for name, values in columns.items()},
            )
            for group, row in enumerate(first.iter_rows(named=True))
        ]

    def updates(self, lines: list[GroupLine]) -> list[UpdateLine]:
        """One line per input; where groups span inputs, a group counts where its first row is."""
        log, found = self.log, []
        rollout_source = self.source_of_row[log.rollouts.offsets[:-1]]
        size = np.bincount(log.rollouts.group[log.outcomes.takes_part], minlength=len(lines))
        share_0 = self.local / np.maximum(size[self.group], 1)
        share = self.full / np.maximum(size[self.group], 1)
        conflicting, repeated = (self.counts[n].to_numpy() for n in ("conflicting", "repeated"))
        home = self.counts["source_file"].to_list()
        for index, source in enumerate(log.loaded.sources):
            row, rollout = self.source_of_row == index, rollout_source == index
            if not row.any():
                continue
            mine = [line for line in lines if line.source_file == source.name]
            at_home = np.array([name == source.name for name in home])
            seen = row & self.eligible
            found.append(
                UpdateLine(
                    source.name,
                    len(mine),
                    int(rollout.sum()),
                    int(row.sum()),
                    _mean(log.outcomes.success[rollout & log.outcomes.scored]),
                    _mean(share_0[seen]),
                    _mean(share[seen]),
                    _mean(share_0[seen] == 1),
                    _mean(share[seen] == 1),
                    _mean(self.credited[row]),
                    _mean(np.array([line.status in FLAT for line in mine])),
                    _ratios(
                        conflicting[at_home].sum(keepdims=True),
                        repeated[at_home].sum(keepdims=True),
                    )[0],
                    self.seconds * float(row.mean()),
                )
            )
        return found


def _first_rows(group: Ints, first: Ints, groups: int) -> list[int]:
    """Row of the step table at which each group's first rollout begins."""
    rows = np.empty(groups, np.int64)
    rows[group[::-1]] = first[::-1]
    found: list[int] = rows.tolist()
    return found


def _ratios(above: NDArray[Any], below: NDArray[Any]) -> list[float | None]:
    return [float(a / b) if b else None for a, b in zip(above, below, strict=True)]


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None
