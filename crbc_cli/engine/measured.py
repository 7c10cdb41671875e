"""Entries of a comparison measured on cuts of a log into groups, and averaged over the cuts."""

from collections.abc import Iterator, Sequence
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
    for entry, value_units in enumerate(in_value_units):
        found = [(done.fidelity[entry], done.task) for done in part if done.fidelity]
        metrics = {
            name: Interval.averaged([clustered_mean(f.metrics[name], task) for f, task in found])
            for name in METRICS
        }
        errors = [f.errors for f, _ in found]
        yield Result(
            entry,
            part[0].size,
            float(np.mean([done.credited[entry] for done in part])),
            metrics if found else None,
            _mean_errors(errors, value_units) if found else None,
        )


def _mean_errors(errors: Sequence[Errors], in_value_units: bool) -> Errors:
    mean = Errors(*(float(x) for x in np.mean([astuple(e) for e in errors], axis=0)))
    return mean if in_value_units else replace(mean, rmse=float("nan"))


def differences_of(part: Sequence[Measured]) -> Iterator[Difference]:
    """Every pair of entries, paired inside groups."""
    for a, b in combinations(range(len(part[0].fidelity)), 2):
        yield Difference(
            a,
            b,
            part[0].size,
            {
                name: Interval.averaged(
                    [
                        clustered_mean(
                            done.fidelity[a].metrics[name] - done.fidelity[b].metrics[name],
                            done.task,
                        )
                        for done in part
                    ]
                )
                for name in METRICS
            },
        )
