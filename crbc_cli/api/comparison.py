"""Functions that set estimators against each other, a truth, or a trainer's own numbers."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from crbc_cli.engine.audit import TOLERANCE, Audit, audit_logs, audited_method, other_conventions
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.compare import CompareOptions, compare_logs
from crbc_cli.engine.comparison import Comparison
from crbc_cli.engine.overview import overview
from crbc_cli.engine.reader import Reader
from crbc_cli.engine.runs import RunComparison, run_line
from crbc_cli.engine.sweep import plan_entries, score_of
from crbc_cli.errors import OptionError
from crbc_cli.logs.open import open_logs
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

__all__ = ["COMPARED", "audit", "compare", "compare_runs"]

COMPARED = "grpo,gigpo,graphgpo,g2po,gated-bepo,crbc"
"""Methods that are compared when none is named."""


def compare(
    inputs: str | Sequence[str],
    methods: str = COMPARED,
    *,
    sweep: Sequence[str] = (),
    score: str | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> Comparison:
    """Estimators side by side: agreement, and fidelity to a known truth.

    Args:
      inputs: logs.
      methods: as in `annotate`.
      sweep: `KEY=VALUE,VALUE` each; see `crbc_cli.engine.sweep`.
      score: the number methods are compared by; by default `step_credit` of step methods and
        `advantage` of trajectory methods.
      settings: all log options at once.
      clock, notes: filled if given.
      **options: fields of `crbc_cli.engine.compare.CompareOptions`, for example
        `truth="true_advantage"`, and single log options by name.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    own = [f.name for f in fields(CompareOptions)]
    asked = CompareOptions(**{name: options.pop(name) for name in own if name in options})
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    sources = open_logs(inputs, settings.log, notes)
    readers, entries = plan_entries(sources, settings, methods, sweep, score, clock, notes)
    return compare_logs(readers, entries, asked, clock, notes)


def audit(
    inputs: str | Sequence[str],
    column: str,
    *,
    method: str = "",
    score: str = "advantage",
    tolerance: float = TOLERANCE,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> Audit:
    """A trainer's logged advantage recomputed, with the largest difference and its place.

    Args:
      inputs: logs.
      column: the logged number.
      method: what it is recomputed by; by default what the conventions of `like` log, or GRPO.
      score: which number of the method.
      tolerance: largest difference that counts as equal.
      settings, options: as in `annotate`, for example `like="trl"`.
      clock, notes: filled if given.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    reader = Reader.open(open_logs(inputs, settings.log, notes), settings, clock, notes)
    chosen = audited_method(method, reader.settings)
    done = audit_logs(reader, column, chosen, score_of(chosen, score), tolerance, clock)
    if done.passed or method:
        return done
    return replace(done, others=other_conventions(reader, column, score, tolerance, clock))


def compare_runs(
    runs: Sequence[str],
    *,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> RunComparison:
    """Training runs side by side: success, coverage, credit and conflicts of their groups.

    Args:
      runs: a file, a folder of one file per training update, or a glob each.
      settings, options: as in `annotate`.
      clock, notes: filled if given.
    Raises:
      OptionError: fewer than two runs.
      CrbcError: see `crbc_cli.errors`.
    """
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    if len(runs) < 2:
        raise OptionError("--runs compares two runs or more", todo="name a file or folder for each")
    lines = []
    for run in runs:
        reader = Reader.open(open_logs(run, settings.log, notes), settings, clock, notes)
        lines.append(run_line(run, overview(reader.logs())))
    return RunComparison(lines)
