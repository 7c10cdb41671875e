"""Coverage of a log: how many rollouts' evidence reaches a visit at each closure depth."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.growth import say_growing_anchors
from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import OptionError
from crbc_cli.methods.crbc import gate
from crbc_cli.process.coverage import coverage_by_depth
from crbc_cli.process.empirical import EmpiricalProcess
from crbc_cli.process.quality import Conflicts, pair_outcomes
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["ELIGIBLE", "UNITS", "CoverageReport", "measure_coverage"]

Ints = NDArray[np.int64]

ELIGIBLE = ("actions", "successors", "all")
UNITS = ("visits", "anchors")


@dataclass(frozen=True)
class CoverageReport:
    """Figure 5 of the paper, as counts.

    Attributes:
      depths: depths asked for and reached; math.inf is full closure.
      counts: int64 (depths, most + 1), units with exactly j reachable rollouts in column j.
      full: int64 (depths,), units that reach every rollout of their group.
      paired: (reachable at depth 0, at full closure) -> units, in that order, none left at 0.
      settled: smallest depth at which every unit equals full closure.
      total: eligible units.
      seen: units before the eligibility rule.
      conflicts: behind the conflict rate of the anchors.
      eligible, unit: the rules.
    """

    depths: list[float]
    counts: Ints
    full: Ints
    paired: dict[tuple[int, int], int]
    settled: int
    total: int
    seen: int
    conflicts: Conflicts
    eligible: str
    unit: str

    @property
    def expanded(self) -> int:
        """Units that reach more rollouts at full closure than at depth 0."""
        return sum(units for (local, full), units in self.paired.items() if full > local)

    def means(self) -> NDArray[np.float64]:
        """Mean reachable rollouts per depth, float64 (depths,); NaN without units."""
        with np.errstate(invalid="ignore"):
            return (self.counts @ np.arange(self.counts.shape[1])) / np.float64(self.total)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`; shares are null when no unit is eligible."""

        def share(count: int) -> float | None:
            return int(count) / self.total if self.total else None

        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "coverage",
            "eligible": self.eligible,
            "unit": self.unit,
            "units": self.seen,
            "eligible_units": self.total,
            "conflict_rate": self.conflicts.rate,
            "settled_at_depth": self.settled,
            "expanded": self.expanded,
            "expanded_share": share(self.expanded),
            "depths": [
                {
                    "depth": "inf" if depth == math.inf else int(depth),
                    "mean_rollouts": float(mean) if self.total else None,
                    "full_coverage": int(full),
                    "full_coverage_share": share(full),
                    "distribution": [
                        {"rollouts": j, "count": int(n), "share": share(n)}
                        for j, n in enumerate(row)
                        if j
                    ],
                }
                for depth, row, full, mean in zip(
                    self.depths, self.counts, self.full, self.means(), strict=True
                )
            ],
            "paired": [
                {"depth_0": local, "closure": full, "count": units, "share": share(units)}
                for (local, full), units in self.paired.items()
            ],
        }

    def rows(self) -> list[dict[str, Any]]:
        """For `--csv`: one row per (depth, rollouts)."""
        return [
            {"depth": d["depth"], **cell}
            for d in self.to_dict()["depths"]
            for cell in d["distribution"]
        ]


def measure_coverage(
    logs: Iterable[Prepared],
    clock: Clock,
    *,
    depths: tuple[float, float] = (0, math.inf),
    eligible: str = "actions",
    unit: str = "visits",
) -> CoverageReport:
    """Counts reachable rollouts of eligible units at each depth, pooled over all groups.

    Args:
      logs: prepared logs.
      clock: stages "build" and "coverage" are added to.
      depths: first and last depth; with a last depth of inf every depth until nothing changes,
        then inf.
      eligible: which anchors take part: two distinct actions (paper), two distinct successors, all.
      unit: count visits (paper) or anchors.
    Raises:
      OptionError: an unknown rule.
    Source: CRBC (arXiv 2609.35082), appendix D.2 and figure 5.
    """
    for value, known, flag in ((eligible, ELIGIBLE, "--eligible"), (unit, UNITS, "--unit")):
        if value not in known:
            raise OptionError(
                f"{flag} {value!r} is not known", todo=f"use one of {', '.join(known)}"
            )
    tallies = []
    for log in logs:
        say_growing_anchors(log)
        for chunk in log.chunks(clock):
            with clock("coverage"):
                tallies.append(_tally(chunk.process, eligible, unit))
    settled = max((len(t.counts) - 1 for t in tallies), default=0)
    first, last = depths
    lowest = int(min(first, settled + 1))  # first may be inf: then only full closure is listed
    listed = [float(k) for k in range(lowest, int(min(last, settled)) + 1)]
    if last == math.inf:
        listed.append(math.inf)
    elif last > settled:
        listed += [float(k) for k in range(max(settled + 1, int(first)), int(last) + 1)]
    most = max((t.counts.shape[1] for t in tallies), default=1)
    counts, full = np.zeros((len(listed), most), np.int64), np.zeros(len(listed), np.int64)
    paired: Counter[tuple[int, int]] = Counter()
    for t in tallies:
        at = [int(min(depth, len(t.counts) - 1)) for depth in listed]
        counts[:, : t.counts.shape[1]] += t.counts[at]
        full += t.full[at]
        paired.update(t.paired)
    return CoverageReport(
        listed,
        counts,
        full,
        dict(sorted(paired.items())),
        settled,
        paired.total(),
        sum(t.seen for t in tallies),
        sum((t.conflicts for t in tallies), Conflicts()),
        eligible,
        unit,
    )


@dataclass(frozen=True)
class _Tally:
    """One chunk's counts; row k is depth k, the last row is full closure."""

    counts: Ints
    full: Ints
    paired: dict[tuple[int, int], int]
    seen: int
    conflicts: Conflicts


def _tally(process: EmpiricalProcess, eligible: str, unit: str) -> _Tally:
    weight = process.state_visits if unit == "visits" else np.ones(process.states, np.int64)
    taken = gate(process, "none" if eligible == "all" else eligible)
    size = _rollouts_of_group(process)[process.state_group]
    mine = np.where(taken, weight, 0)
    width = int(size[taken].max(initial=0)) + 1
    steps = coverage_by_depth(process)
    _, reach = next(steps)
    local = reach.copy()
    counts, full = [_units(reach[taken], mine[taken], width)], [int(mine[reach == size].sum())]
    for states, wider in steps:  # only what changes, so that a long way takes no longer
        states, wider = states[taken[states]], wider[taken[states]]
        units, before = mine[states], reach[states]
        moved = _units(wider, units, width) - _units(before, units, width)
        counts.append(counts[-1] + moved)
        full.append(full[-1] + int(units[wider == size[states]].sum()))
        reach[states] = wider
    code, at = np.unique(local[taken] * width + reach[taken], return_inverse=True)
    units = _units(at, mine[taken], len(code))
    paired = {divmod(int(c), width): int(n) for c, n in zip(code, units, strict=True)}
    conflicts = pair_outcomes(process).conflicts
    return _Tally(np.stack(counts), np.array(full), paired, int(weight.sum()), conflicts)


def _units(value: Ints, weight: Ints, width: int) -> Ints:
    """Units per value; counts stay below 2^53, so float accumulation is exact."""
    return np.bincount(value, weight, width).astype(np.int64)


def _rollouts_of_group(process: EmpiricalProcess) -> Ints:
    """Rollouts with at least one visit, int64 (groups,)."""
    starts = np.flatnonzero(np.diff(process.rollout, prepend=-1))
    return np.bincount(process.visit_group[starts], minlength=process.groups)
