"""Functions that report on logs and write nothing."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from crbc_cli.api.reading import one_group, prepared_logs
from crbc_cli.engine.anchor_report import AnchorReport
from crbc_cli.engine.anchor_truth import Truth
from crbc_cli.engine.anchors import compare_rule_sets, measure_anchors, with_rules
from crbc_cli.engine.check import CheckReport, check_logs, tolerant
from crbc_cli.engine.checks.facts import extra_fields
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.coverage import CoverageReport, measure_coverage
from crbc_cli.engine.explain import explain_group, explain_step
from crbc_cli.engine.explanation import GroupExplanation, StepExplanation
from crbc_cli.engine.gate import GateReport, measure_gate
from crbc_cli.engine.gate_features import groups_of_features
from crbc_cli.engine.gate_groups import groups_of_logs
from crbc_cli.engine.gate_options import GateRule
from crbc_cli.engine.locate import find_step
from crbc_cli.engine.positions import PositionReport, measure_positions
from crbc_cli.engine.profile import ProfileReport, profile_logs
from crbc_cli.engine.reader import Reader
from crbc_cli.errors import OptionError
from crbc_cli.logs.open import open_logs
from crbc_cli.logs.sources import resolve
from crbc_cli.methods.registry import parse_method
from crbc_cli.methods.selective_rollout import SIGNALS
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

__all__ = ["anchor_report", "check", "coverage", "explain", "gate", "profile", "steps"]


def coverage(
    inputs: str | Sequence[str],
    *,
    depths: tuple[float, float] = (0, math.inf),
    eligible: str = "actions",
    unit: str = "visits",
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> CoverageReport:
    """Reachable rollouts per closure depth; see `crbc_cli.engine.coverage.measure_coverage`.

    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    settings = settings or Settings.from_flat(options)
    clock = clock or Clock()
    logs = prepared_logs(inputs, settings, clock, notes or Notes(), lengths=True)
    return measure_coverage(logs, clock, depths=depths, eligible=eligible, unit=unit)


def profile(
    inputs: str | Sequence[str],
    *,
    timings: str | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> ProfileReport:
    """Stage times of annotating logs; see `crbc_cli.engine.profile.profile_logs`.

    Args:
      inputs: logs.
      timings: metrics file with `timing_s/…` per training update.
      settings, options: as in `annotate`.
      clock, notes: filled if given.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    settings = settings or Settings.from_flat(options)
    metrics = resolve([timings])[0] if timings else None
    notes = notes or Notes()
    sources = open_logs(inputs, settings.log, notes)
    return profile_logs(sources, settings, clock or Clock(), notes, metrics)


def steps(
    inputs: str | Sequence[str],
    *,
    method: str = "crbc",
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> PositionReport:
    """Step credit by position in the rollout and by outcome.

    Args:
      inputs: logs.
      method: one estimator, `NAME[:KEY=VALUE]…`.
      settings, options: as in `annotate`.
      clock, notes: filled if given.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    settings = settings or Settings.from_flat(options)
    clock, notes = clock or Clock(), notes or Notes()
    reader = Reader.open(open_logs(inputs, settings.log, notes), settings, clock, notes)
    chosen = parse_method(method, reader.settings.credit, reader.settings.group_advantage)
    following = "terminal" in chosen.needs
    return measure_positions(reader.logs(following=following), chosen, clock)


def check(
    inputs: str | Sequence[str],
    *,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> CheckReport:
    """Everything suspicious about logs, counted and located; see `crbc_cli.engine.check`.

    Raises:
      CrbcError: see `crbc_cli.errors`; a log that can be read but is odd raises nothing.
    """
    settings = settings or Settings.from_flat(options)
    clock, notes = clock or Clock(), notes or Notes()
    logs = prepared_logs(
        inputs,
        tolerant(settings),
        clock,
        notes,
        lengths=True,
        extra=extra_fields(settings),
        tolerant=True,
    )
    return check_logs(logs, settings, clock, notes)


def explain(
    inputs: str | Sequence[str],
    group: str | None = None,
    *,
    step: str | None = None,
    file: str | None = None,
    key_values: Sequence[str] = (),
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> GroupExplanation | StepExplanation:
    """One group, or one step of it, with everything its numbers were made from.

    Args:
      inputs: logs.
      group: group id; may be left out for a log of one group.
      step: ROLLOUT:STEP.
      file: the input to look in, where several hold that group (with groups that span files: the
        input that holds the rollout).
      key_values: COLUMN=VALUE of `key` columns, where several groups have that id.
      settings, **options: as for `annotate`.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    log = one_group(
        open_logs(inputs, settings.log, notes), group, file, key_values, settings, clock, notes
    )
    if step is None:
        return explain_group(log, clock)
    return explain_step(log, find_step(log, step, file), clock)


def gate(
    inputs: str | Sequence[str] = (),
    *,
    features: str | None = None,
    at: Sequence[int] = (),
    t_max: int = 0,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> GateReport:
    """Which groups could have stopped after K steps; see `crbc_cli.engine.gate`.

    Args:
      inputs: logs, or
      features: a CSV of measured groups; see `crbc_cli.engine.gate_features`.
      at: the K; by default 10, or all that `features` has.
      t_max: step limit of rollouts; 0 takes the longest rollout of the logs.
      settings: all log options at once.
      clock, notes: filled if given.
      **options: fields of `crbc_cli.engine.gate_options.GateRule`, for example
        `signal="entropy"`, and single log options by name.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    if t_max < 0:
        raise OptionError(f"--t-max {t_max} is negative")
    own = [f.name for f in fields(GateRule)]
    rule = GateRule(**{name: options.pop(name) for name in own if name in options})
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    if features is None:
        logs = prepared_logs(inputs, settings, clock, notes)
        groups = groups_of_logs(
            logs,
            clock,
            notes,
            at=at or (10,),
            signals=list(SIGNALS) if rule.per_group else rule.needs,
            pad=rule.pad,
            t_max=t_max,
        )
        return measure_gate(groups, rule)
    if inputs:
        raise OptionError("--features takes the place of logs", todo="leave the logs out")
    if not rule.pad:
        raise OptionError("--no-pad needs logs; --features holds distances already measured")
    groups = groups_of_features(features, notes, at=at, signals=rule.needs, t_max=t_max)
    return measure_gate(groups, rule)


def anchor_report(
    inputs: str | Sequence[str],
    *,
    group: str | None = None,
    state: str = "",
    where: str = "",
    min_rollouts: int = 1,
    compare_rules: Sequence[str] = (),
    suggestions: bool = True,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> AnchorReport:
    """How good a log's anchors are, what speaks against them, and rules that would help.

    Args:
      inputs: logs.
      group: look at this group alone.
      state: column with the true state, to score against.
      where: SQL condition that scored rows must meet.
      min_rollouts: fewest rollouts of a scored group.
      compare_rules: rule sets for `AnchorReport.comparison`: presets, files, "auto" or "exact".
      suggestions: also look for better rules.
      settings, options: as in `annotate`.
      clock, notes: filled if given.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    if (where or min_rollouts > 1) and not state:
        raise OptionError("--where and --min-rollouts choose rows to score", todo="add --state")
    truth = Truth(state, where, min_rollouts) if state else None
    sources = open_logs(inputs, settings.log, notes)
    readers = [
        (name, Reader.open(sources, with_rules(settings, name), clock, notes))
        for name in compare_rules
    ]
    comparison = compare_rule_sets(readers, group=group, truth=truth) if readers else []
    reader = Reader.open(sources, settings, clock, notes)
    report = measure_anchors(
        reader, group=group, truth=truth, suggestions=suggestions and not comparison
    )
    return replace(report, comparison=comparison)
