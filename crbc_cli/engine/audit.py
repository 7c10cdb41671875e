"""A trainer's logged advantage recomputed: is this log explained by these conventions?"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.estimate import estimate
from crbc_cli.engine.reader import Part, Reader
from crbc_cli.errors import ColumnError, OptionError
from crbc_cli.logs.columns import Field
from crbc_cli.methods.presets import PRESETS
from crbc_cli.methods.registry import Chosen, parse_methods
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["TOLERANCE", "Audit", "audit_logs", "audited_method", "other_conventions"]

Floats = NDArray[np.float64]

TOLERANCE = 5e-5
"""Half of the last place of a number written with four decimals."""

_LOGGED = ":logged"


@dataclass(frozen=True)
class Audit:
    """Logged against recomputed numbers.

    Attributes:
      column: what was logged.
      chosen: the method that recomputes it.
      score: which of its numbers.
      like: conventions, "" for the run's own options.
      tolerance: largest difference that counts as equal.
      rows: rows with both numbers.
      beyond: of these, rows beyond the tolerance.
      only_logged, only_recomputed: rows with one number.
      difference: largest absolute difference.
      place: `file:line` or `file row n` where it is.
      logged, recomputed: the numbers there.
      options: resolved options of the run.
      others: largest difference under the conventions of other trainers, where the audit fails.
    """

    column: str
    chosen: Chosen
    score: str
    like: str
    tolerance: float
    rows: int
    beyond: int
    only_logged: int
    only_recomputed: int
    difference: float
    place: str
    logged: float
    recomputed: float
    options: Mapping[str, Any]
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """No row is beyond the tolerance."""
        return not self.beyond

    def row(self) -> dict[str, Any]:
        """For `--csv`."""
        return {
            "column": self.column,
            "method": self.chosen.method.name,
            "score": self.score,
            "like": self.like or None,
            "tolerance": self.tolerance,
            "passed": self.passed,
            "rows": self.rows,
            "rows_beyond": self.beyond,
            "rows_only_logged": self.only_logged,
            "rows_only_recomputed": self.only_recomputed,
            "largest_difference": self.difference,
            "place": self.place,
            "logged": self.logged,
            "recomputed": self.recomputed,
        }

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "compare",
            "audit": self.row()
            | {"method_options": self.chosen.echo(), "other_conventions": dict(self.others)},
            "options": dict(self.options),
        }


def audited_method(methods: str, settings: Settings) -> Chosen:
    """The method whose numbers a trainer logged: the one named, or that of its conventions.

    Args:
      methods: one method, or "" for that of `--like` (GRPO without).
      settings: with the conventions applied.
    Raises:
      OptionError: several methods.
    """
    like = settings.conventions.like
    named = methods or (PRESETS[like].audit if like else "grpo")
    chosen = parse_methods(named, settings.credit, settings.group_advantage)
    if len(chosen) > 1:
        raise OptionError("--audit recomputes one method", todo="name one with --methods")
    return chosen[0]


def audit_logs(
    reader: Reader, column: str, chosen: Chosen, score: str, tolerance: float, clock: Clock
) -> Audit:
    """Recomputes `column` on all inputs.

    A trajectory method needs no observations and no actions: the log may lack these columns.

    Args:
      reader: the log.
      column: logged numbers.
      chosen: the method.
      score: which of its numbers was logged.
      tolerance: largest difference that counts as equal, at least 0.
      clock: filled.
    Raises:
      ColumnError: the column is not there or holds no number that can be compared.
      OptionError: a negative tolerance.
    """
    if not tolerance >= 0:
        raise OptionError(f"--tolerance {tolerance} is not at least 0")
    parts = [_compared(reader, part, column, chosen, score, clock) for part in reader.parts]
    if not any(part.rows for part in parts):
        raise ColumnError(
            f"column {column} has no number that can be compared",
            parts[0].place,
            "name another column",
        )
    worst = max((part for part in parts if part.rows), key=lambda part: part.difference)
    return Audit(
        column,
        chosen,
        score,
        reader.settings.conventions.like,
        tolerance,
        sum(part.rows for part in parts),
        sum(int(np.count_nonzero(part.differences > tolerance)) for part in parts),
        sum(part.only_logged for part in parts),
        sum(part.only_recomputed for part in parts),
        worst.difference,
        worst.place,
        worst.logged,
        worst.recomputed,
        reader.settings.echo(),
    )


def other_conventions(
    reader: Reader, column: str, score: str, tolerance: float, clock: Clock
) -> dict[str, float]:
    """Largest difference under the conventions of each trainer that logs a trajectory term.

    Arguments as in `audit_logs`.
    """
    found = {}
    for like in PRESETS:
        conventions = replace(reader.settings.conventions, like=like)
        settings = replace(reader.settings, conventions=conventions, explicit=frozenset())
        other = Reader.open(reader.sources, settings, clock, Notes())
        chosen = audited_method("", other.settings)
        if chosen.method.kind == "trajectory":
            audit = audit_logs(other, column, chosen, score, tolerance, clock)
            found[like] = audit.difference
    return found


@dataclass(frozen=True)
class _Compared:
    """One part of the log: |logged − recomputed| of rows with both, and where it is largest."""

    differences: Floats
    only_logged: int
    only_recomputed: int
    place: str
    logged: float
    recomputed: float

    @property
    def rows(self) -> int:
        return len(self.differences)

    @property
    def difference(self) -> float:
        return float(self.differences.max(initial=0.0))


def _compared(
    reader: Reader, part: Part, column: str, chosen: Chosen, score: str, clock: Clock
) -> _Compared:
    source = reader.settings.log.column_map.get(column, column)
    log = reader.read(
        part,
        following="terminal" in chosen.needs,
        anchors=chosen.method.kind == "step",
        extra=[Field(_LOGGED, source, "number")],
    )
    names = ", ".join(one.name for one in part[:3])
    if _LOGGED not in log.loaded.extra.columns:
        raise ColumnError(f"has no column {column}", names, "name another with --audit COLUMN")
    row = log.rollouts.row
    logged = log.loaded.extra[_LOGGED].fill_null(np.nan).to_numpy()[row]
    recomputed = getattr(estimate(log, [chosen], clock).methods[chosen.label], score)
    known, made = ~np.isnan(logged), ~np.isnan(recomputed)
    both = np.flatnonzero(known & made)
    differences = np.abs(logged - recomputed)[both]
    only = int(np.count_nonzero(known & ~made)), int(np.count_nonzero(made & ~known))
    if not len(both):
        return _Compared(differences, *only, names, math.nan, math.nan)
    worst = int(both[differences.argmax()])
    return _Compared(
        differences,
        *only,
        log.loaded.place(int(row[worst])),
        float(logged[worst]),
        float(recomputed[worst]),
    )
