"""Training runs side by side: what their groups are like, on average."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crbc_cli.engine.overview import FLAT, GroupLine, Overview
from crbc_cli.methods.intervals import Interval, clustered_mean
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["RUN_MEASURES", "RunComparison", "RunLine", "run_line"]

RUN_MEASURES = {
    "success": "share of scored rollouts that succeed",
    "zero_variance": "share of groups whose group advantage is 0",
    "credited": "share of rows with a step credit other than 0",
    "shared": "share of visits on anchors that several rollouts visit",
    "conflict": "conflict rate of the anchors",
    "reach_0": "share of its group's rollouts that an eligible visit reaches at depth 0",
    "reach": "the same at full closure",
}
"""What is measured in each group, and then averaged over groups."""


@dataclass(frozen=True)
class RunLine:
    """One run.

    Attributes:
      name: as it was given.
      inputs, groups, rollouts, rows: sizes.
      measures: by name (`RUN_MEASURES`), mean over groups; a group without a value is left out.
    """

    name: str
    inputs: int
    groups: int
    rollouts: int
    rows: int
    measures: dict[str, Interval]

    def less(self, other: "RunLine") -> dict[str, Interval]:
        """Differences of means; groups of two runs are independent, so variances add."""
        found = {}
        for name, mine in self.measures.items():
            its = other.measures[name]
            found[name] = Interval(
                mine.mean - its.mean,
                math.hypot(mine.se, its.se),
                min(mine.groups, its.groups),
                min(mine.tasks, its.tasks),
            )
        return found


@dataclass(frozen=True)
class RunComparison:
    """Runs in the order given; the others are set against the first."""

    runs: Sequence[RunLine]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        first = self.runs[0]
        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "compare",
            "runs": [asdict(run) | {"measures": _numbers(run.measures)} for run in self.runs],
            "differences": [
                {"run": run.name, "less": first.name, "measures": _numbers(run.less(first))}
                for run in self.runs[1:]
            ],
        }

    def rows_of_results(self) -> list[dict[str, Any]]:
        """For `--csv`: one row per run and measure."""
        return [
            {"run": run.name, "measure": name, **interval.numbers()}
            for run in self.runs
            for name, interval in run.measures.items()
        ]


def run_line(name: str, found: Overview) -> RunLine:
    """Averages the groups of one run."""
    groups = found.groups
    per_group = {
        "success": (_ratio(g.successes, g.rollouts - g.unscored) for g in groups),
        "zero_variance": (float(g.status in FLAT) for g in groups),
        "credited": (_known(g.credited) for g in groups),
        "shared": (_known(g.shared) for g in groups),
        "conflict": (_known(g.conflict) for g in groups),
        "reach_0": (_reach(g, g.reach_0) for g in groups),
        "reach": (_reach(g, g.reach) for g in groups),
    }
    return RunLine(
        name,
        len(found.updates),
        len(groups),
        sum(g.rollouts for g in groups),
        sum(g.rows for g in groups),
        {measure: _mean(values) for measure, values in per_group.items()},
    )


def _mean(values: Iterable[float]) -> Interval:
    x = np.array(list(values), np.float64)
    return clustered_mean(x, np.arange(len(x)))


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def _ratio(above: float, below: int) -> float:
    return above / below if below else math.nan


def _reach(group: GroupLine, reach: float | None) -> float:
    return _ratio(_known(reach), group.rollouts - group.unscored)


def _numbers(measures: dict[str, Interval]) -> dict[str, dict[str, float | None]]:
    return {name: interval.numbers() for name, interval in measures.items()}
