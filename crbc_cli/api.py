"""What the commands do, as functions. Inputs are paths, globs, folders, `@lists` or `-`."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from crbc_cli.engine.anchor_report import AnchorReport
from crbc_cli.engine.anchor_truth import Truth
from crbc_cli.engine.anchors import compare_rule_sets, measure_anchors, with_rules
from crbc_cli.engine.annotate import credit_table, table_of
from crbc_cli.engine.audit import TOLERANCE, Audit, audit_logs, audited_method, other_conventions
from crbc_cli.engine.check import CheckReport, check_logs, tolerant
from crbc_cli.engine.checks.facts import extra_fields
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.compare import CompareOptions, compare_logs
from crbc_cli.engine.comparison import Comparison
from crbc_cli.engine.coverage import CoverageReport, measure_coverage
from crbc_cli.engine.estimate import estimate
from crbc_cli.engine.explain import explain_group, explain_step
from crbc_cli.engine.explanation import GroupExplanation, StepExplanation
from crbc_cli.engine.filter import Filtered, Selection, plan_filtered
from crbc_cli.engine.gate import GateReport, measure_gate
from crbc_cli.engine.gate_features import groups_of_features
from crbc_cli.engine.gate_groups import groups_of_logs
from crbc_cli.engine.gate_options import GateRule
from crbc_cli.engine.growth import say_growing_anchors
from crbc_cli.engine.locate import GroupSearch, find_step, sources_named
from crbc_cli.engine.output import OutputPlan, plan_outputs, write_output
from crbc_cli.engine.prepare import CHUNK_ROWS, Prepared
from crbc_cli.engine.profile import ProfileReport, profile_logs
from crbc_cli.engine.provenance import provenance
from crbc_cli.engine.reader import Reader
from crbc_cli.engine.sweep import plan_entries, score_of
from crbc_cli.errors import OptionError
from crbc_cli.logs.columns import Field
from crbc_cli.logs.sources import Source, resolve
from crbc_cli.logs.subset import write_subset
from crbc_cli.methods.registry import parse_methods
from crbc_cli.methods.selective_rollout import SIGNALS
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.process.quality import Conflicts

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "COMPARED",
    "Annotated",
    "annotate",
    "audit",
    "check",
    "compare",
    "coverage",
    "credit",
    "explain",
    "filter_log",
    "gate",
    "prepared_logs",
    "profile",
]


COMPARED = "grpo,gigpo,graphgpo,g2po,gated-bepo,crbc"
"""What `compare` sets side by side unless told otherwise."""


@dataclass(frozen=True)
class Annotated:
    """What `annotate` did.

    Attributes:
      outputs: paths written, `-` for stdout; empty on a dry run.
      plans: which inputs go where.
      rows, groups, rollouts: sizes, over all inputs.
      notes: what was inferred or tolerated.
      clock: seconds per stage.
    """

    outputs: list[str]
    plans: list[OutputPlan]
    rows: int
    groups: int
    rollouts: int
    notes: Notes
    clock: Clock
    settings: Settings

    def describe(self) -> list[str]:
        """Lines for a dry run: inputs, outputs and the rule behind each key."""
        log, anchor, outcome = self.settings.log, self.settings.anchor, self.settings.outcome
        group = (
            f"columns {', '.join(log.group_by)}"
            if log.group_by
            else f"every {log.group_stride} rollouts"
            if log.group_stride
            else "column group_id"
        )
        return [
            *(
                f"{', '.join(s.name for s in plan.sources)} -> {plan.target.name}"
                for plan in self.plans
            ),
            f"group: {group}{' per file' if log.per_file else ''}"
            + (f" and {', '.join(log.key)}" if log.key else ""),
            f"rollout: column {log.column_map.get('rollout_id', 'rollout_id')}, ordered by "
            f"{log.order_by}",
            f"anchor: {', '.join(anchor.anchor)}; action: {anchor.action}",
            f"outcome: {outcome.success_when or 'column success'} on the last row",
        ]


def annotate(
    inputs: str | Sequence[str],
    output: str | None = None,
    *,
    to: str | None = None,
    columns: str = "credit",
    prefix: str = "",
    anchor_id: bool = False,
    force: bool = False,
    dry_run: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    method: str | Sequence[str] = "crbc",
    settings: Settings | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> Annotated:
    """Writes credit columns for logs.

    Args:
      inputs: logs.
      output: a file, `-`, a folder, or None for `NAME.credit.parquet` beside each input.
      to: parquet, jsonl, arrow or csv; by default what the suffix says.
      columns: credit columns alone, or after the input's own columns.
      prefix: put before the names of credit columns.
      anchor_id: add the anchors' 128-bit content digests.
      force: replace existing outputs.
      dry_run: read and group, write nothing.
      chunk_rows: rows solved at a time; no number depends on it.
      method: estimators, `[LABEL=]NAME[:KEY=VALUE]…` separated by commas; the numbers of several
        get their labels as prefix.
      settings: all options at once, or
      **options: single ones by name, for example `depth=0`.
    Raises:
      CrbcError: see `crbc_cli.errors`; nothing is left half-written.
    """
    settings = settings or Settings.from_flat(options)
    clock = clock or Clock()
    if columns not in ("credit", "all"):
        raise OptionError(f"--columns {columns!r} is not known", todo="use credit or all")
    sources = resolve(inputs)
    plans = plan_outputs(sources, output, to, force, not sys.stdout.isatty())
    notes = Notes()
    reader = Reader.open(sources, settings, clock, notes)
    settings = reader.settings
    methods = parse_methods(method, settings.credit, settings.group_advantage)
    following = any("terminal" in chosen.needs for chosen in methods)
    groups, rollouts, conflicts = 0, 0, Conflicts()
    tables: dict[Source, pl.DataFrame] = {}
    for part in reader.parts:
        log = reader.read(part, following=following, anchor_id=anchor_id, lengths=True)
        say_growing_anchors(log)
        groups += log.rollouts.groups
        rollouts += len(log.rollouts.group)
        if not dry_run:
            numbers = estimate(log, methods, clock, chunk_rows=chunk_rows)
            conflicts += numbers.conflicts
            with clock("combine"):
                tables |= _split(table_of(log, numbers), log, part)
    if conflicts.rate is not None:
        notes.say("conflict_rate", conflicts.told)
    for plan in plans if not dry_run else ():
        with clock("write"):
            metadata = provenance("annotate", settings, plan.sources, notes)
            metadata["methods"] = {chosen.label: chosen.echo() for chosen in methods}
            metadata["rules"] = {"name": reader.rules.name, "digest": reader.rules.digest()}
            write_output(
                plan,
                [tables[s] for s in plan.sources],
                metadata,
                all_columns=columns == "all",
                prefix=prefix,
                skip_bad_lines=settings.log.skip_bad_lines,
            )
    outputs = [] if dry_run else [plan.target.name for plan in plans]
    return Annotated(outputs, plans, clock.rows, groups, rollouts, notes, clock, settings)


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
    sources = resolve(inputs)
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
    reader = Reader.open(resolve(inputs), settings, clock, notes)
    chosen = audited_method(method, reader.settings)
    done = audit_logs(reader, column, chosen, score_of(chosen, score), tolerance, clock)
    if done.passed or method:
        return done
    return replace(done, others=other_conventions(reader, column, score, tolerance, clock))


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
    return profile_logs(resolve(inputs), settings, clock or Clock(), notes or Notes(), metrics)


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
        inputs, tolerant(settings), clock, notes, lengths=True, extra=extra_fields(settings)
    )
    return check_logs(logs, settings, clock, notes)


def credit(
    table: "pa.Table", *, method: str | Sequence[str] = "crbc", **options: Any
) -> "pa.Table":
    """Credit table of an in-memory step table: Arrow in, Arrow out, no I/O.

    Safe to call inside a training loop or a Spark, Daft or Ray worker.

    Args:
      table: step table; columns as in `crbc_cli.tables.STEP_COLUMNS`.
      method: as in `annotate`.
      **options: option names of `crbc_cli.options`, for example `depth=0, discount=0.95`; and
        `anchor_id=True` for content digests.
    Returns:
      Credit table, row-aligned with `table`; `source_file` is "<table>".
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    anchor_id = bool(options.pop("anchor_id", False))
    settings = Settings.from_flat(options)
    frame = pl.from_arrow(table)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError("credit() takes a pyarrow.Table")
    source = Source("<table>", Path(), "memory", frame=frame)
    reader = Reader.open([source], settings, Clock(), Notes())
    settings = reader.settings
    methods = parse_methods(method, settings.credit, settings.group_advantage)
    following = any("terminal" in chosen.needs for chosen in methods)
    log = reader.read([source], following=following, anchor_id=anchor_id)
    return credit_table(log, reader.clock, methods).to_arrow()


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
    sources = resolve(inputs)
    named = sources_named(sources, file)
    search = GroupSearch(group, key_values)
    read = named if settings.log.per_file else sources
    for log in Reader.open(read, settings, clock, notes).logs():
        search.look(log)
    log = search.found()
    if step is None:
        return explain_group(log, clock)
    return explain_step(log, find_step(log, step, file), clock)


def filter_log(
    inputs: str | Sequence[str],
    output: str | None = None,
    *,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    force: bool = False,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> Filtered:
    """Copies logs without the rows of some groups; rows and columns that stay are unchanged.

    Args:
      inputs: logs.
      output: a file, `-`, a folder, or None for `NAME.filtered.SUFFIX` beside each input.
      drop: group statuses and reasons whose rows go, or
      keep: those whose rows alone stay.
      force: replace existing outputs.
      settings, **options: as for `annotate`.
    Raises:
      CrbcError: see `crbc_cli.errors`; nothing is left half-written.
    """
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes, selection = notes or Notes(), Selection.of(drop, keep)
    sources = resolve(inputs)
    plans = plan_filtered(sources, output, force, not sys.stdout.isatty())
    done = Filtered([plan.target.name for plan in plans])
    kept: dict[Source, pl.Series] = {}
    reader = Reader.open(sources, settings, clock, notes)
    for part in reader.parts:
        log = reader.read(part)
        table = credit_table(log, clock)
        done.count(log, table, selection.kept(table))
        kept |= {s: selection.kept(rows) for s, rows in _split(table, log, part).items()}
    for plan in plans:
        with clock("write"):
            metadata = provenance("filter", settings, plan.sources, notes)
            metadata |= {"keep" if selection.keep else "drop": list(selection.names)}
            write_subset(
                plan.sources,
                [kept[source] for source in plan.sources],
                plan.target,
                metadata,
                skip_bad_lines=settings.log.skip_bad_lines,
            )
    return done


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
    sources = resolve(inputs)
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


def prepared_logs(
    inputs: str | Sequence[str],
    settings: Settings,
    clock: Clock,
    notes: Notes,
    *,
    lengths: bool = False,
    extra: Sequence[Field] = (),
) -> Iterator[Prepared]:
    """Inputs read and ordered, one at a time unless groups span files.

    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    reader = Reader.open(resolve(inputs), settings, clock, notes)
    return reader.logs(lengths=lengths, extra=extra)


def _split(
    table: pl.DataFrame, log: Prepared, sources: Sequence[Source]
) -> dict[Source, pl.DataFrame]:
    """Rows of each source; a source without rows gets an empty table."""
    if len(sources) == 1:
        return {sources[0]: table}
    number = log.frame["source"]
    return {source: table.filter(number == i) for i, source in enumerate(sources)}
