"""Functions that write or return tables: credit of logs and of tables, logs without some rows."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from crbc_cli.engine.annotate import credit_table, table_of
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.estimate import estimate
from crbc_cli.engine.filter import Filtered, Selection, plan_filtered
from crbc_cli.engine.growth import say_growing_anchors
from crbc_cli.engine.in_memory import credit_in_memory
from crbc_cli.engine.output import OutputPlan, plan_outputs, write_output
from crbc_cli.engine.prepare import CHUNK_ROWS, Prepared
from crbc_cli.engine.provenance import provenance
from crbc_cli.engine.reader import Reader
from crbc_cli.errors import OptionError
from crbc_cli.logs.open import open_logs
from crbc_cli.logs.sources import Source
from crbc_cli.logs.subset import write_subset
from crbc_cli.methods.registry import parse_methods
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.process.quality import Conflicts
from crbc_cli.trainers.emit import Emission, write_emitted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Annotated", "annotate", "credit", "filter_log"]


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
    emit: str = "",
    emit_column: str = "",
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
      emit: a trainer whose row identity the output is keyed by, or plain vectors; see
        `crbc_cli.trainers.targets`.
      emit_column: which number it holds; by default the `advantage` of the only method.
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
    emission, settings = Emission.parse(emit, emit_column, settings)
    if emission is not None:
        emission.refuse(
            to, {"columns": columns != "credit", "prefix": prefix, "anchor_id": anchor_id}
        )
    notes = Notes()
    sources = open_logs(inputs, settings.log, notes)
    piped, vectors = not sys.stdout.isatty(), emission.vectors if emission else None
    kind = emission.kind if emission else ".credit"
    plans = plan_outputs(sources, output, to, force, piped, kind=kind, vectors=vectors)
    reader = Reader.open(sources, settings, clock, notes)
    settings = reader.settings
    methods = parse_methods(method, settings.credit, settings.group_advantage)
    following = any("terminal" in chosen.needs for chosen in methods)
    if emission is not None:
        emission = emission.resolved(sources, [chosen.label for chosen in methods], notes)
    groups, rollouts, conflicts = 0, 0, Conflicts()
    tables: dict[Source, pl.DataFrame] = {}
    for part in reader.parts:
        log = reader.read(
            part,
            following=following,
            anchors=any(chosen.method.kind == "step" for chosen in methods),
            anchor_id=anchor_id,
            lengths=True,
            extra=emission.fields if emission else (),
        )
        say_growing_anchors(log)
        groups += log.rollouts.groups
        rollouts += len(log.rollouts.group)
        if not dry_run:
            numbers = estimate(log, methods, clock, chunk_rows=chunk_rows)
            conflicts += numbers.conflicts
            with clock("combine"):
                table = table_of(log, numbers)
                if emission is not None:
                    table = emission.table(table, log.loaded.extra)
                tables |= _split(table, log, part)
    if conflicts.rate is not None:
        notes.say("conflict_rate", conflicts.told)
    for plan in plans if not dry_run else ():
        with clock("write"):
            metadata = provenance("annotate", settings, plan.sources, notes)
            metadata["methods"] = {chosen.label: chosen.echo() for chosen in methods}
            metadata["rules"] = {"name": reader.rules.name, "digest": reader.rules.digest()}
            if emission is not None:
                write_emitted(emission, plan, [tables[s] for s in plan.sources], metadata)
                continue
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
    return credit_in_memory(table, method, options)


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
    sources = open_logs(inputs, settings.log, notes)
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


def _split(
    table: pl.DataFrame, log: Prepared, sources: Sequence[Source]
) -> dict[Source, pl.DataFrame]:
    """Rows of each source; a source without rows gets an empty table."""
    if len(sources) == 1:
        return {sources[0]: table}
    number = log.frame["source"]
    return {source: table.filter(number == i) for i, source in enumerate(sources)}
