"""Checks on files: what reading tolerated, and how a file compares with the one before it."""

from itertools import pairwise
from pathlib import PurePath

import polars as pl

from crbc_cli.engine.checks.codes import Finding, found
from crbc_cli.engine.checks.facts import Facts

__all__ = ["FILE_CHECKS", "READ_NOTES", "batches"]

READ_NOTES = {
    "empty": "empty_file",
    "torn_line": "torn_line",
    "skipped_lines": "skipped_lines",
    "surrogates": "surrogates",
}
"""Remarks of the readers, each about one file, and the finding that each becomes."""


def _read_note(facts: Facts, note: str) -> Finding | None:
    told = [n.message for n in facts.notes.items if n.code == note]
    return found(READ_NOTES[note], len(told), len(facts.files), "files", told)


def empty_file(facts: Facts) -> Finding | None:
    """Files without rows."""
    return _read_note(facts, "empty")


def torn_line(facts: Facts) -> Finding | None:
    """Files whose writer died in the middle of a line."""
    return _read_note(facts, "torn_line")


def skipped_lines(facts: Facts) -> Finding | None:
    """Files with lines that were left out."""
    return _read_note(facts, "skipped_lines")


def surrogates(facts: Facts) -> Finding | None:
    """Files with text that is not Unicode."""
    return _read_note(facts, "surrogates")


def missing_columns(facts: Facts) -> Finding | None:
    """Files that lack columns of the file before."""
    where = []
    for before, file in pairwise(file for file in facts.files if file.ever):
        lost = [c for c in before.always if c not in file.ever]
        if lost:
            where.append(f"{file.source.name} lacks {', '.join(lost)}")
    return found("missing_columns", len(where), len(facts.files), "files", where)


def batches(facts: Facts) -> pl.DataFrame:
    """Rows, rollouts and groups of each file and training step, in order.

    Returns:
      Frame with `source` (position), `batch` (training step as text, or null), `rows, rollouts,
      groups`, and `smaller`: at most half the rollouts or groups of the row before.
    """
    counted = (
        facts.rollouts.group_by("source", "batch", maintain_order=True)
        .agg(
            pl.col("rows").sum(),
            pl.len().alias("rollouts"),
            pl.col("group").n_unique().alias("groups"),
        )
        .sort("source", pl.col("batch").cast(pl.Float64, strict=False), maintain_order=True)
    )
    half = [pl.col(c) * 2 <= pl.col(c).shift() for c in ("rollouts", "groups")]
    return counted.with_columns(smaller=pl.any_horizontal(half).fill_null(False))


def smaller_batch(facts: Facts) -> Finding | None:
    """Batches that shrank by half or more."""
    table = batches(facts)
    before = table.select(pl.col("rows", "rollouts", "groups").shift().name.prefix("old_"))
    hit = pl.concat([table, before], how="horizontal").filter("smaller")
    where = []
    for row in hit.head(5).iter_rows(named=True):
        step = "" if row["batch"] is None else f" training step {row['batch']}"
        changes = ", ".join(f"{row[c]} {c} after {row[f'old_{c}']}" for c in ("rollouts", "groups"))
        where.append(f"{facts.files[row['source']].source.name}{step}: {changes}")
    return found("smaller_batch", hit.height, table.height, "batches", where)


def file_number(facts: Facts) -> Finding | None:
    """Numeric file names that contradict the training step inside."""
    steps: dict[int, list[str]] = {}
    for source, batch in facts.rollouts.select("source", "batch").unique().sort("source").rows():
        if batch is not None:
            steps.setdefault(source, []).append(batch)
    numbered = {
        source: stem
        for source in steps
        if (stem := PurePath(facts.files[source].source.name).name.split(".")[0]).isdecimal()
    }
    where = [
        f"{facts.files[source].source.name}: training step {', '.join(sorted(steps[source])[:3])}"
        for source, stem in numbered.items()
        if all(_number(step) != int(stem) for step in steps[source])
    ]
    return found("file_number", len(where), len(numbered), "files", where)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


FILE_CHECKS = (
    empty_file,
    torn_line,
    skipped_lines,
    surrogates,
    missing_columns,
    smaller_batch,
    file_number,
)
