"""Everything suspicious about a log: numbers that sum it up, and findings that name the place."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
import numpy as np
import polars as pl

from crbc_cli.engine.checks.anchors import ANCHOR_CHECKS
from crbc_cli.engine.checks.codes import Finding
from crbc_cli.engine.checks.endings import ENDING_CHECKS
from crbc_cli.engine.checks.facts import ENDINGS, Facts, InputFile, joined, place_codes
from crbc_cli.engine.checks.files import FILE_CHECKS, READ_NOTES, batches
from crbc_cli.engine.checks.groups import group_facts
from crbc_cli.engine.checks.identity import IDENTITY_CHECKS
from crbc_cli.engine.checks.rollouts import rollout_facts
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import CrbcError, InputError
from crbc_cli.logs.formats.jsonl import LineReport, decode_lines
from crbc_cli.logs.read import available_columns
from crbc_cli.logs.sources import Source
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["CHECKS", "CheckReport", "Summary", "check_logs", "tolerant"]

CHECKS: tuple[Callable[[Facts], Finding | None], ...] = (
    *FILE_CHECKS,
    *IDENTITY_CHECKS,
    *ENDING_CHECKS,
    *ANCHOR_CHECKS,
)
"""In the order findings are listed inside their severity."""

_TOLD_AS_FINDINGS = {*READ_NOTES, "duplicates", "discarded", "repeated_reward", "inferred_groups"}


@dataclass(frozen=True)
class Summary:
    """A log in numbers; shares are null where there is nothing to divide by.

    Attributes:
      files, rows (copies left out), rollouts, groups: sizes.
      group_sizes: rollouts per group -> groups.
      rollout_rows: fewest, median and most rows of a rollout.
      endings: how rollouts ended -> rollouts.
      success_rate: successes among scored rollouts.
      outcome_mean_rollouts, outcome_mean_rows: mean outcome of the rollouts that enter the group
        advantage, with one vote per rollout and per row.
      invalid_share: rows whose action the environment refused.
      visits, anchors: sizes of the merged groups; visits_per_anchor: their ratio.
      shared_share: visits at anchors that several rollouts visit.
      choice_share: visits at anchors with two actions or more.
      top_anchor_share: visits at the most visited anchor of each group.
      anchors_in_several_groups: contents that occur in several groups, which are kept apart.
      anchor_bytes: least, median, 90 % and most bytes of an anchor's content.
    """

    files: int
    rows: int
    rollouts: int
    groups: int
    group_sizes: dict[int, int]
    rollout_rows: tuple[int, float, int]
    endings: dict[str, int]
    success_rate: float | None
    outcome_mean_rollouts: float | None
    outcome_mean_rows: float | None
    invalid_share: float | None
    visits: int
    anchors: int
    visits_per_anchor: float | None
    shared_share: float | None
    choice_share: float | None
    top_anchor_share: float | None
    anchors_in_several_groups: int
    anchor_bytes: tuple[int, int, int, int] | None


@dataclass(frozen=True)
class CheckReport:
    """What `crbc check` found.

    Attributes:
      summary: the log in numbers.
      batches: rows, rollouts and groups per file and training step, in order.
      findings: problems, then notes.
      settings: all options, as asked for.
      told: codes of remarks that the findings repeat.
    """

    summary: Summary
    batches: list[dict[str, Any]]
    findings: list[Finding]
    settings: Settings
    told: frozenset[str]

    @property
    def problems(self) -> int:
        """Findings that are problems."""
        return sum(finding.severity == "problem" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        summary = asdict(self.summary)
        summary["group_sizes"] = [
            {"size": size, "groups": groups} for size, groups in self.summary.group_sizes.items()
        ]
        for name, labels in (
            ("rollout_rows", ("min", "median", "max")),
            ("anchor_bytes", ("min", "median", "p90", "max")),
        ):
            values = summary[name]
            summary[name] = values and dict(zip(labels, values, strict=True))
        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "check",
            "problems": self.problems,
            "notes": len(self.findings) - self.problems,
            "findings": [finding.to_dict() for finding in self.findings],
            "summary": summary,
            "batches": self.batches,
            "options": self.settings.echo(),
        }


def tolerant(settings: Settings) -> Settings:
    """Settings under which conflicting rows are found instead of refused."""
    if settings.log.on_duplicate != "error":
        return settings
    return replace(settings, log=replace(settings.log, on_duplicate="first"))


def check_logs(
    logs: Iterable[Prepared], settings: Settings, clock: Clock, notes: Notes
) -> CheckReport:
    """Measures logs and runs every check.

    Args:
      logs: logs loaded with `lengths` and `extra_fields`, under `tolerant` settings.
      settings: the options as asked for.
      clock: stages "build" and "combine" are added to.
      notes: remarks of reading and grouping these logs.
    Raises:
      InputError: no log has a row.
    """
    parts: list[Facts] = []
    files: list[InputFile] = []
    for log in logs:
        files += [_input_file(source, log) for source in log.loaded.sources]
        if len(log.rollouts.row):
            parts.append(_measure(log, len(files) - len(log.loaded.sources), clock))
    if not parts:
        raise InputError("no rows", ", ".join(f.source.name for f in files[:3]))
    with clock("combine"):
        facts = replace(joined(parts), files=files, settings=settings, notes=notes)
        findings = [finding for check in CHECKS if (finding := check(facts)) is not None]
        findings.sort(key=lambda f: f.severity != "problem")
        told = _TOLD_AS_FINDINGS | {f.code for f in findings}
        return CheckReport(_summary(facts), _batch_rows(facts), findings, settings, frozenset(told))


def _input_file(source: Source, log: Prepared) -> InputFile:
    says_end = not {"done", "truncated"}.isdisjoint(log.frame.columns)
    always: Sequence[str] = available_columns(source)
    ever = set(always)
    if source.container == "jsonl":
        try:
            _, rows = next(
                decode_lines(source, dict[str, msgspec.Raw], True, LineReport()), (None, [])
            )
        except CrbcError:
            rows = []
        ever = set().union(*rows)
        always = [c for c in always if all(c in row for row in rows)]
    return InputFile(source, always, ever, says_end)


def _measure(log: Prepared, first_source: int, clock: Clock) -> Facts:
    row_code = place_codes(log.frame, first_source)
    groups, keys = group_facts(log, row_code, clock)
    with clock("combine"):
        rollouts = rollout_facts(log, row_code).with_columns(pl.col("source") + first_source)
        visited = log.rollouts.row[log.has_anchor]
        size = log.frame["anchor_bytes"].to_numpy()[visited].astype(np.uint32)
        conflicts = _conflicts(log, row_code)
    return Facts(log.settings, log.notes, [], rollouts, groups, conflicts, keys, size)


def _conflicts(log: Prepared, row_code: np.ndarray[Any, Any]) -> pl.DataFrame:
    """Place codes of each discarded row and of the row kept in its stead."""
    r, frame = log.rollouts, log.frame
    names = ["rollout_id", "step"]
    if not log.settings.log.spanning_rollouts:
        names.append("source")
    if not len(r.discarded):
        return pl.DataFrame(schema={"kept": pl.Int64, "lost": pl.Int64})
    rows = frame.select(names).with_columns(
        pl.Series("group", r.group_of_row), pl.Series("code", row_code)
    )
    kept = rows[r.row].rename({"code": "kept"})
    lost = rows[r.discarded].rename({"code": "lost"})
    return lost.join(kept, on=[*names, "group"], maintain_order="left").select("kept", "lost")


def _summary(facts: Facts) -> Summary:
    rollouts, groups = facts.rollouts, facts.groups
    counted = rollouts.filter("counts")
    won_rows = int((counted["success"] * counted["rows"]).sum())
    visits, anchors = int(groups["visits"].sum()), int(groups["anchors"].sum())
    endings = dict(rollouts["ending"].value_counts().iter_rows())
    _, repeats = np.unique(facts.anchor_keys, return_counts=True)
    rows = rollouts["rows"]
    return Summary(
        files=len(facts.files),
        rows=facts.rows,
        rollouts=rollouts.height,
        groups=groups.height,
        group_sizes=dict(groups["size"].value_counts().sort("size").iter_rows()),
        rollout_rows=(rows.min(), rows.median(), rows.max()),  # type: ignore[arg-type]
        endings={name: endings.get(name, 0) for name in ENDINGS},
        success_rate=_share(rollouts["success"].sum(), int(rollouts["scored"].sum())),
        outcome_mean_rollouts=_share(counted["success"].sum(), counted.height),
        outcome_mean_rows=_share(won_rows, int(counted["rows"].sum())),
        invalid_share=_share(rollouts["n:invalid"].sum(), facts.rows),
        visits=visits,
        anchors=anchors,
        visits_per_anchor=_share(visits, anchors),
        shared_share=_share(groups["shared"].sum(), visits),
        choice_share=_share(groups["choice"].sum(), visits),
        top_anchor_share=_share(groups["top"].sum(), visits),
        anchors_in_several_groups=int((repeats > 1).sum()),
        anchor_bytes=_quantiles(facts.anchor_bytes),
    )


def _share(part: float, whole: float) -> float | None:
    return float(part) / whole if whole else None


def _quantiles(values: np.ndarray[Any, Any]) -> tuple[int, int, int, int] | None:
    if not len(values):
        return None
    ordered = np.sort(values)
    picks = [ordered[math.ceil(q * (len(ordered) - 1))] for q in (0, 0.5, 0.9, 1)]
    return int(picks[0]), int(picks[1]), int(picks[2]), int(picks[3])


def _batch_rows(facts: Facts) -> list[dict[str, Any]]:
    table = batches(facts).to_dicts()
    return [
        {
            "source_file": facts.files[row["source"]].source.name,
            "training_step": row["batch"],
            **{name: row[name] for name in ("rows", "rollouts", "groups", "smaller")},
        }
        for row in table
    ]
