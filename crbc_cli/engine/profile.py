"""Where the time goes: stages of one run, and beside them the updates of the training run.

Trainers of the verl family log seconds per phase of each update as `timing_s/gen`,
`timing_s/update_actor`, `timing_s/adv`, `timing_s/step`. Where such columns stand in the log, or in
a metrics file, credit construction can be set against them (the paper's figure 4).
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from crbc_cli.engine.budget import Budget
from crbc_cli.engine.clock import CREDIT_STAGES, STAGES, Clock, peak_memory
from crbc_cli.engine.execute import Local
from crbc_cli.engine.output import OutputPlan
from crbc_cli.engine.provenance import provenance
from crbc_cli.engine.reader import Reader
from crbc_cli.engine.sink import Shape, table_sinks
from crbc_cli.engine.stream import Stream, Unit
from crbc_cli.engine.work import Job
from crbc_cli.errors import ColumnError
from crbc_cli.logs.columns import Field, conform
from crbc_cli.logs.formats.jsonl import LineReport
from crbc_cli.logs.formats.parquet import polars_errors
from crbc_cli.logs.read import available_columns, read
from crbc_cli.logs.sources import Source
from crbc_cli.logs.write import Target
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["PHASES", "ProfileReport", "profile_logs", "read_timings"]

PHASES: dict[str, str] = {
    "rollout": "timing_s/gen",
    "policy_update": "timing_s/update_actor",
    "advantage": "timing_s/adv",
    "total": "timing_s/step",
}
"""Phase of an update -> the column that holds its seconds."""

_UPDATE_COLUMNS = ("global_step", "training/global_step", "step")


@dataclass(frozen=True)
class ProfileReport:
    """Stage clock of one annotate run, and phases of training updates.

    Attributes:
      clock: seconds per stage, rows.
      groups: number of groups.
      peak: bytes of memory at most.
      updates: one row per update: `update` and seconds of each phase that is logged; or None.
    """

    clock: Clock
    groups: int
    peak: int
    updates: pl.DataFrame | None

    @property
    def credit_seconds(self) -> float:
        """Everything between reading and writing."""
        return sum(self.clock.seconds.get(stage, 0.0) for stage in CREDIT_STAGES)

    def update_means(self) -> dict[str, float] | None:
        """Mean seconds per update of each phase, what is left of the total, and our credit."""
        if self.updates is None or not self.updates.height:
            return None
        means: dict[str, float] = {}
        for phase in PHASES:
            if phase in self.updates.columns:
                values = self.updates[phase].drop_nulls()
                if len(values):
                    means[phase] = float(values.sum()) / len(values)
        if "total" in means:
            means["rest"] = means["total"] - sum(v for k, v in means.items() if k != "total")
        means["credit"] = self.credit_seconds / self.updates.height
        return means

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        seconds, rows = self.clock.seconds, self.clock.rows
        total = sum(seconds.values())
        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "profile",
            "rows": rows,
            "groups": self.groups,
            "seconds": total,
            "credit_seconds": self.credit_seconds,
            "peak_memory_bytes": self.peak,
            "stages": [
                {
                    "stage": stage,
                    "seconds": seconds[stage],
                    "share": seconds[stage] / total if total else None,
                    "rows_per_second": rows / seconds[stage] if seconds[stage] else None,
                }
                for stage in STAGES
                if stage in seconds
            ],
            "updates": None if self.updates is None else self.updates.to_dicts(),
            "update_means": self.update_means(),
        }


def profile_logs(
    sources: Sequence[Source],
    settings: Settings,
    clock: Clock,
    notes: Notes,
    timings: Source | None = None,
) -> ProfileReport:
    """Annotates `sources` into a file that is thrown away, and reads logged update timings.

    Args:
      sources: the log.
      settings: all options.
      clock: gets the stages.
      notes: told about tolerated defects.
      timings: metrics file; by default timing columns are looked for in the log itself.
    Raises:
      CrbcError: as `annotate`; ColumnError if `timings` holds no timing column.
    """
    updates = read_timings([timings] if timings else sources)
    if timings is not None and updates is None:
        raise ColumnError(
            "holds no timing_s/… column", timings.name, f"known: {', '.join(PHASES.values())}"
        )
    reader = Reader.open(sources, settings, clock, notes)
    budget = Budget.of(threads=1)
    job = Job(reader.settings, reader.rules)

    def metadata(plan: OutputPlan, said: Notes) -> dict[str, Any]:
        return provenance("profile", reader.settings, plan.sources, said)

    stream = Stream(job, Local(budget.threads), budget, table_sinks(Shape()), metadata, clock=clock)
    groups = 0
    with tempfile.TemporaryDirectory(prefix="crbc-") as folder:
        for number, part in enumerate(reader.parts):
            target = Target(str(Path(folder) / f"{number}.parquet"), "parquet")
            groups += stream.run(Unit([part], [OutputPlan(target, part)]), notes).groups
    return ProfileReport(clock, groups, peak_memory(), updates)


def read_timings(sources: Sequence[Source]) -> pl.DataFrame | None:
    """Seconds of each phase per update, or None where no source logs any.

    Columns may stand at the top level or below `data` (one metrics record per update). Rows of
    one update repeat its timings; the first counts.
    """
    frames = []
    for source in sources:
        names = available_columns(source)
        below = "" if any(n.startswith("timing_s/") for n in names) else "data."
        if below and "data" not in names:
            continue
        fields = [Field(phase, below + column, "number") for phase, column in PHASES.items()]
        update = next((n for n in _UPDATE_COLUMNS if n in names), None)
        if update:
            fields.append(Field("update", update, "scalar"))
        for batch in read(source, fields, skip_bad_lines=True, report=LineReport()):
            with polars_errors(source.name):
                frame = batch.frame.collect()
            by_name = {f.name: f for f in fields}
            frame = pl.DataFrame(
                [conform(s, by_name[s.name], batch.where) for s in frame if s.name in by_name]
            )
            if set(frame.columns) & set(PHASES):
                label = pl.lit(source.name) if update is None else pl.col("update").cast(pl.String)
                frames.append(frame.with_columns(label.alias("update")))
    if not frames:
        return None
    table = pl.concat(frames, how="diagonal").unique("update", keep="first", maintain_order=True)
    return table.select("update", *(p for p in PHASES if p in table.columns))
