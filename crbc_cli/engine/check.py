"""Everything suspicious about a log: numbers that sum it up, and findings that name the place."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import polars as pl

from crbc_cli.engine.checks.anchors import ANCHOR_CHECKS
from crbc_cli.engine.checks.codes import Finding
from crbc_cli.engine.checks.endings import ENDING_CHECKS
from crbc_cli.engine.checks.facts import Facts, InputFile, joined, place_codes
from crbc_cli.engine.checks.files import FILE_CHECKS, READ_NOTES, batches
from crbc_cli.engine.checks.groups import group_facts
from crbc_cli.engine.checks.identity import IDENTITY_CHECKS
from crbc_cli.engine.checks.rollouts import rollout_facts
from crbc_cli.engine.checks.summary import Summary, summarise
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import InputError
from crbc_cli.logs.formats.jsonl import LineReport, decode_lines
from crbc_cli.logs.read import available_columns
from crbc_cli.logs.sources import Source
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["CHECKS", "CheckReport", "check_logs", "tolerant"]

CHECKS: tuple[Callable[[Facts], Finding | None], ...] = (
    *FILE_CHECKS,
    *IDENTITY_CHECKS,
    *ENDING_CHECKS,
    *ANCHOR_CHECKS,
)
"""In the order findings are listed inside their severity."""

_TOLD_AS_FINDINGS = {
    *READ_NOTES,
    "duplicates",
    "discarded",
    "repeated_reward",
    "lone_rollouts",
}


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
        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "check",
            "problems": self.problems,
            "notes": len(self.findings) - self.problems,
            "findings": [finding.to_dict() for finding in self.findings],
            "summary": self.summary.to_dict(),
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
        return CheckReport(
            summarise(facts), _batch_rows(facts), findings, settings, frozenset(told)
        )


def _input_file(source: Source, log: Prepared) -> InputFile:
    says_end = not {"done", "truncated"}.isdisjoint(log.frame.columns)
    if source.container != "jsonl":
        names = available_columns(source)
        return InputFile(source, names, names, says_end)
    blocks = decode_lines(source, dict[str, msgspec.Raw], True, LineReport())
    _, rows = next(blocks, ((), []))
    always = [c for c in rows[0] if all(c in row for row in rows)] if rows else []
    return InputFile(source, always, set[str]().union(*rows), says_end)


def _measure(log: Prepared, first_source: int, clock: Clock) -> Facts:
    row_code = place_codes(log.frame, first_source)
    groups, keys = group_facts(log, row_code, clock)
    with clock("combine"):
        rollouts = rollout_facts(log, row_code).with_columns(pl.col("source") + first_source)
        visited = log.rollouts.row[log.is_visit]
        size = log.frame["anchor_bytes"].to_numpy()[visited].astype(np.uint32)
        conflicts = _conflicts(log, row_code)
    rules = log.loaded.rules
    return Facts(log.settings, log.notes, [], rules, rollouts, groups, conflicts, keys, size)


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
