"""What a comparison found, as data for tables, `--json` and `--csv`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from crbc_cli.engine.disagree import Disagreement
from crbc_cli.engine.sweep import Entry
from crbc_cli.errors import OptionError
from crbc_cli.methods.agreement import Agreement
from crbc_cli.methods.fidelity import METRICS, Errors
from crbc_cli.methods.intervals import Interval
from crbc_cli.methods.registry import Chosen
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["Comparison", "Difference", "PairAgreement", "Result", "Size"]

Metrics = Mapping[str, Interval]


@dataclass(frozen=True)
class Size:
    """Groups of one size, on average over cuts.

    Attributes:
      rollouts: per group, None where groups are as they were logged.
      groups, mixed: groups, and those with a success and a failure.
      tasks: distinct tasks of the groups.
    """

    rollouts: int | None
    groups: float
    mixed: float
    tasks: float


@dataclass(frozen=True)
class Result:
    """One entry on groups of one size.

    Attributes:
      entry: index of the entry.
      size: rollouts per group, None where groups are as they were logged.
      credited: share of steps with a number other than 0.
      metrics: fidelity inside groups, by name in METRICS; None without a truth.
      errors: sizes and signs; `rmse` is NaN where the numbers are not in value units.
    """

    entry: int
    size: int | None
    credited: float
    metrics: Metrics | None
    errors: Errors | None


@dataclass(frozen=True)
class Difference:
    """Fidelity of entry `a` less that of `b`, paired inside groups."""

    a: int
    b: int
    size: int | None
    metrics: Metrics


@dataclass(frozen=True)
class PairAgreement:
    """How far entries `a` and `b` agree, and where they do so least."""

    a: int
    b: int
    size: int | None
    agreement: Agreement
    disagreements: Sequence[Disagreement]


@dataclass(frozen=True)
class Comparison:
    """Estimators side by side.

    Attributes:
      entries: methods under settings.
      results: per size and entry.
      differences: per size and pair of entries, a before b; empty without a truth.
      pairs: the same, on the first cut.
      sizes: group sizes.
      rows: rows of the log.
      truth, state, task: columns; state is None for anchors, task None for groups.
      cuts, seed: as asked for.
      options: resolved options of the run, swept ones as they were first.
    """

    entries: Sequence[Entry]
    results: Sequence[Result]
    differences: Sequence[Difference]
    pairs: Sequence[PairAgreement]
    sizes: Sequence[Size]
    rows: int
    truth: str | None
    state: str | None
    task: str | None
    cuts: int
    seed: int
    options: Mapping[str, Any]

    def reference(self, against: str | None = None) -> int:
        """The entry that others are set against: by name, else the one with the greatest mean
        cosine, else the last.

        Raises:
          OptionError: no entry has this name, or several do.
        """
        names = [entry.name for entry in self.entries]
        if against is not None:
            found = [i for i, n in enumerate(names) if against in (n, self.entries[i].label)]
            if len(found) != 1:
                raise OptionError(
                    f"--against {against!r} names {len(found) or 'no'} rows",
                    todo=f"use one of {', '.join(names)}",
                )
            return found[0]
        if self.truth is None:
            return len(names) - 1
        cosine = [0.0] * len(names)
        for result in self.results:
            mean = result.metrics["cosine"].mean if result.metrics else math.nan
            cosine[result.entry] += -math.inf if math.isnan(mean) else mean
        return cosine.index(max(cosine))

    def difference(self, a: int, b: int, size: int | None) -> Metrics:
        """Fidelity of entry a less that of b; {} without a truth."""
        for found in self.differences:
            if found.size == size and {found.a, found.b} == {a, b}:
                swap = found.a != a
                return {k: v.negated() if swap else v for k, v in found.metrics.items()}
        return {}

    def rows_of_results(self) -> list[dict[str, Any]]:
        """For `--csv`: one row per size and entry."""
        keys = dict.fromkeys(key for entry in self.entries for key in entry.setting)
        rows = []
        for result in self.results:
            entry = self.entries[result.entry]
            row: dict[str, Any] = {"group_size": result.size, "method": entry.label}
            row |= {key: entry.setting.get(key) for key in keys}
            row |= {"score": entry.score, "credited_share": _finite(result.credited)}
            for name, interval in (result.metrics or {}).items():
                for part, value in interval.numbers().items():
                    row[name if part == "mean" else f"{name}_{part}"] = value
            row |= (
                {k: _finite(v) for k, v in asdict(result.errors).items()} if result.errors else {}
            )
            rows.append(row)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        names = [entry.name for entry in self.entries]

        def pair(a: int, b: int, size: int | None) -> dict[str, Any]:
            return {"group_size": size, "a": names[a], "b": names[b]}

        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "compare",
            "rows": self.rows,
            "truth": self.truth,
            "state": self.state,
            "task": self.task,
            "cuts": self.cuts,
            "seed": self.seed,
            "sizes": [asdict(size) for size in self.sizes],
            "entries": [
                {
                    "name": entry.name,
                    "label": entry.label,
                    "setting": dict(entry.setting),
                    "score": entry.score,
                    "method": entry.chosen.method.name,
                    "method_options": _options(entry.chosen),
                }
                for entry in self.entries
            ],
            "results": [
                {
                    "group_size": result.size,
                    "name": names[result.entry],
                    "credited_share": _finite(result.credited),
                    "metrics": _metrics(result.metrics),
                    "errors": None
                    if result.errors is None
                    else {k: _finite(v) for k, v in asdict(result.errors).items()},
                }
                for result in self.results
            ],
            "differences": [
                pair(d.a, d.b, d.size) | {"metrics": _metrics(d.metrics)} for d in self.differences
            ],
            "agreement": [
                pair(p.a, p.b, p.size)
                | {k: _finite(v) for k, v in asdict(p.agreement).items()}
                | {"disagreements": [d.to_dict() for d in p.disagreements]}
                for p in self.pairs
            ],
            "options": dict(self.options),
        }


def _options(chosen: Chosen) -> dict[str, Any]:
    return {name: value for name, value in chosen.echo().items() if name != "method"}


def _metrics(metrics: Metrics | None) -> dict[str, Any] | None:
    return None if metrics is None else {n: metrics[n].numbers() for n in METRICS}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
