"""Entries of a comparison measured on cuts of a log into groups, and averaged over the cuts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.comparison import Difference, Result, Size
from crbc_cli.engine.disagree import Numbers
from crbc_cli.engine.ground import Ground
from crbc_cli.engine.prepare import Prepared
from crbc_cli.methods.agreement import credited
from crbc_cli.methods.fidelity import METRICS, Errors, Fidelity, fidelity
from crbc_cli.methods.intervals import Interval, clustered_mean

__all__ = ["Measured", "differences_of", "measure", "results_of", "size_of"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """All entries on one cut of the log into groups.

    Attributes:
      size: rollouts per group, None where groups are as they were logged.
      task: int64 (groups,).
      mixed: groups with a success and a failure.
      credited: share of steps with credit, per entry.
      fidelity: per entry; empty without a truth.
    """

    size: int | None
    task: Ints
    mixed: int
    credited: list[float]
    fidelity: list[Fidelity]


def measure(
    size: int | None, task: Ints, log: Prepared, ground: Ground, numbers: Sequence[Numbers]
) -> Measured:
    """How often each entry gives credit, and how close it is to the truth."""
    steps = ground.steps(log)
    return Measured(
        size,
        task,
        int(np.count_nonzero(ground.mixed(log))),
        [credited(n.score[log.is_visit]) for n in numbers],
        [] if steps is None else [fidelity(n.score[steps.row], steps.truth) for n in numbers],
    )


def size_of(part: Sequence[Measured]) -> Size:
    return Size(
        part[0].size,
        float(np.mean([len(done.task) for done in part])),
        float(np.mean([done.mixed for done in part])),
        float(np.mean([len(np.unique(done.task)) for done in part])),
    )


def results_of(part: Sequence[Measured], in_value_units: Sequence[bool]) -> Iterator[Result]:
    """Each entry on the cuts of one size; `in_value_units` says whose numbers are."""
    for entry, value_units in enumerate(in_value_units):
        found = [done.fidelity[entry] for done in part if done.fidelity]
        yield Result(
            entry,
            part[0].size,
            float(np.mean([done.credited[entry] for done in part])),
            _averaged(part, [one.metrics for one in found]) if found else None,
            _mean_errors([one.errors for one in found], value_units) if found else None,
        )


def differences_of(part: Sequence[Measured]) -> Iterator[Difference]:
    """Every pair of entries on the cuts of one size, paired inside groups."""
    for a, b in combinations(range(len(part[0].fidelity)), 2):
        pairs = [(done.fidelity[a].metrics, done.fidelity[b].metrics) for done in part]
        less = [{name: x[name] - y[name] for name in METRICS} for x, y in pairs]
        yield Difference(a, b, part[0].size, _averaged(part, less))


def _averaged(
    part: Sequence[Measured], values: Sequence[Mapping[str, Floats]]
) -> dict[str, Interval]:
    """Mean over groups of each metric, on average over cuts."""
    return {
        name: Interval.averaged(
            [clustered_mean(v[name], done.task) for v, done in zip(values, part, strict=True)]
        )
        for name in METRICS
    }


def _mean_errors(errors: Sequence[Errors], in_value_units: bool) -> Errors:
    mean = Errors(*(float(x) for x in np.mean([astuple(e) for e in errors], axis=0)))
    return mean if in_value_units else replace(mean, rmse=math.nan)
