"""Credit of logs, written beside them or where the user says."""

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crbc_cli.engine.budget import Budget
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.cluster import connected
from crbc_cli.engine.execute import Local
from crbc_cli.engine.output import OutputPlan, plan_outputs
from crbc_cli.engine.prepare import CHUNK_ROWS
from crbc_cli.engine.provenance import provenance
from crbc_cli.engine.reader import Reader
from crbc_cli.engine.resume import made_as
from crbc_cli.engine.sink import Shape, table_sinks
from crbc_cli.engine.stream import Stream, Told, Unit, units
from crbc_cli.engine.work import Job, Totals, tell_unused
from crbc_cli.errors import CrbcError, OptionError, OutputError
from crbc_cli.logs.open import open_logs
from crbc_cli.logs.scratch import sweep_scratch
from crbc_cli.notes import Notes, counted
from crbc_cli.options import Settings
from crbc_cli.trainers.emit import Emission, emitted_sinks

__all__ = ["Annotated", "annotate"]

_FEW = 8


@dataclass(frozen=True)
class Annotated:
    """What `annotate` did.

    Attributes:
      outputs: paths written, `-` for stdout; empty on a dry run.
      skipped: paths that were there already, made the same way.
      failed: path of an output that could not be made, or of an input that could not be opened
        -> why.
      plans: which inputs go where.
      rows, groups, rollouts: sizes, over all inputs that were read.
      notes: what was inferred or tolerated.
      clock: seconds per stage.
    """

    outputs: list[str]
    skipped: list[str]
    failed: dict[str, str]
    plans: list[OutputPlan]
    rows: int
    groups: int
    rollouts: int
    notes: Notes
    clock: Clock
    settings: Settings

    @property
    def told(self) -> str:
        """What became of the outputs, in a few words: the names of a few, the number of many."""
        few = len(self.outputs) <= _FEW
        parts = [", ".join(self.outputs) if few else counted(len(self.outputs), "output")]
        if not self.outputs:
            parts = ["nothing written"]
        parts += [f"{len(self.skipped)} there already"] if self.skipped else []
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        return "; ".join(parts)

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
    resume: bool = False,
    keep_going: bool = False,
    dry_run: bool = False,
    memory: str = "",
    threads: int = 0,
    engine: str = "local",
    ray_address: str = "",
    progress: Callable[[str], None] | None = None,
    chunk_rows: int = CHUNK_ROWS,
    method: str | Sequence[str] = "crbc",
    settings: Settings | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> Annotated:
    """Writes credit columns for logs, a piece of complete groups at a time.

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
      resume: leave outputs alone that were made from the same inputs in the same way.
      keep_going: go on with other outputs when one fails.
      dry_run: read and group, write nothing.
      memory: memory to aim at, for example `1GB`; by default a share of what is free.
      threads: pieces that are worked on at the same time; 0 for one per core.
      engine: `local`, or `ray` for a task per output (or per piece of a single output) on a Ray
        cluster, whose machines see inputs and outputs under the same names.
      ray_address: of the cluster, `auto` for that of this machine; by default RAY_ADDRESS, and
        without it a cluster of `threads` workers on this machine, for this run.
      progress: told in a few words how far the run is, now and then.
      chunk_rows: rows of a piece at most; no number depends on it.
      method: estimators, `[LABEL=]NAME[:KEY=VALUE]…` separated by commas; the numbers of several
        get their labels as prefix.
      settings: all options at once, or
      **options: single ones by name, for example `depth=0`.
    Raises:
      CrbcError: see `crbc_cli.errors`; nothing is left half-written. Outputs that were finished
        before stay.
    """
    settings = settings or Settings.from_flat(options)
    clock, budget = clock or Clock(), Budget.of(memory, threads)
    if columns not in ("credit", "all"):
        raise OptionError(f"--columns {columns!r} is not known", todo="use credit or all")
    if engine not in ("local", "ray"):
        raise OptionError(f"--engine {engine!r} is not known", todo="use local or ray")
    if ray_address and engine != "ray":
        raise OptionError("--ray-address is that of --engine ray", todo="add --engine ray")
    emission, settings = Emission.parse(emit, emit_column, settings)
    shape = {"columns": columns != "credit", "prefix": prefix, "anchor_id": anchor_id}
    if emission is not None:
        emission.refuse(to, shape)
    if force or resume:
        sweep_scratch()
    notes = Notes()
    refused: dict[str, CrbcError] = {}
    sources = open_logs(inputs, settings.log, notes, refused=refused if keep_going else None)
    piped, vectors = not sys.stdout.isatty(), emission.vectors if emission else None
    kind = emission.kind if emission else ".credit"
    over = force or resume
    plans = plan_outputs(sources, output, to, over, piped, kind=kind, vectors=vectors)
    one = output is not None and not (output.endswith("/") or Path(output).is_dir())
    if refused and (one or any(len(plan.sources) > 1 for plan in plans)):
        raise next(iter(refused.values()))  # what is made of all inputs needs all of them
    reader = Reader.open(sources, settings, clock, notes)
    settings = reader.settings
    job = Job(settings, reader.rules, method, anchor_id, chunk_rows, solve=not dry_run)
    tell_unused(settings, job.methods, notes)
    if emission is not None:
        emission = emission.resolved(sources, [chosen.label for chosen in job.methods], notes)
        job = replace(job, extra=tuple(emission.fields), shape=emission.table)

    def metadata(plan: OutputPlan, said: Notes) -> Mapping[str, Any]:
        made = provenance("annotate", settings, plan.sources, said)
        made["methods"] = {chosen.label: chosen.echo() for chosen in job.methods}
        made["rules"] = {"name": reader.rules.name, "digest": reader.rules.digest()}
        made["output"] = {"columns": columns, "prefix": prefix, "anchor_id": anchor_id}
        if emission is not None:
            made["emit"] = emission.echo()
        return made

    own = table_sinks(Shape(columns == "all", prefix, settings.log.skip_bad_lines))
    sinks = own if emission is None else emitted_sinks(emission)
    stream = Stream(
        job,
        Local(budget.threads),
        budget,
        None if dry_run else sinks,
        metadata,
        Notes([*notes.items]),
        clock,
        chunk_rows,
        progress=progress,
    )
    done = Annotated([], [], {}, plans, 0, 0, 0, notes, clock, settings)
    for name, error in refused.items():
        done.failed[name] = str(error).removeprefix(f"{name}: ")
    open_units = [*units(reader.parts, plans)]
    if resume and not dry_run:
        open_units = [unit for unit in open_units if not _skipped(unit, stream, force, done)]
    for target in (plan.target for plan in plans if over and not dry_run):
        target.clean()
    if engine == "ray" and open_units:
        with connected(ray_address, budget.threads) as cluster:
            told = cluster.run_all(open_units, stream)
            return _run(told, stream, done, len(open_units), keep_going=keep_going)
    told = stream.run_all(open_units)
    return _run(told, stream, done, len(open_units), keep_going=keep_going)


def _skipped(unit: Unit, stream: Stream, force: bool, done: Annotated) -> bool:
    """Whether all outputs of a unit are there.

    Raises:
      OutputError: something else is there, and is not to be replaced.
    """
    left = False
    for plan in unit.plans:
        if not plan.target.exists or plan.target.interrupted:
            left = True
        elif not made_as(plan.target, _without_notes(stream, plan)):
            if not force:
                raise OutputError(
                    "exists already, made from other inputs or in another way",
                    plan.target.name,
                    "use --force to replace it",
                )
            left = True
    if not left:
        done.skipped.extend(plan.target.name for plan in unit.plans)
    return not left


def _without_notes(stream: Stream, plan: OutputPlan) -> dict[str, Any]:
    return {k: v for k, v in stream.metadata(plan, Notes()).items() if k != "notes"}


def _run(
    told: Generator[Told], stream: Stream, done: Annotated, outputs: int, *, keep_going: bool
) -> Annotated:
    totals = Totals()
    with closing(told):
        for number, (unit, found, said) in enumerate(told, 1):
            if isinstance(found, CrbcError):
                if not keep_going:
                    raise found
                for name in (plan.target.name for plan in unit.plans):
                    done.failed[name] = str(found).removeprefix(f"{name}: ")
                continue
            totals.add_sizes(found)
            if stream.sinks is not None:
                done.outputs.extend(plan.target.name for plan in unit.plans)
            for note in said.items:
                if note.code != "conflict_rate":  # of one output; said for all of them at the end
                    done.notes.say(note.code, note.message, warning=note.warning)
            if stream.progress is not None:
                stream.progress(f"{number} of {counted(outputs, 'output')}")
    if totals.conflicts.rate is not None:
        done.notes.say("conflict_rate", totals.conflicts.told)
    totals.tell_worthless(stream.job.methods, done.notes)
    return replace(done, rows=totals.rows, groups=totals.groups, rollouts=totals.rollouts)
