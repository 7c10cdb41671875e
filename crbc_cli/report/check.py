"""`crbc check` as text: the log in numbers, then problems, then notes."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from crbc_cli.notes import counted
from crbc_cli.report.text import percent, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from crbc_cli.engine.check import CheckReport
    from crbc_cli.engine.checks.codes import Finding
    from crbc_cli.engine.checks.summary import Summary

__all__ = ["check_parts", "code_rows", "code_table"]

_SHOWN_PLACES = 3
_SHOWN_BATCHES = 20


def code_rows() -> list[dict[str, Any]]:
    """Every finding there can be, for `--list --json`."""
    from crbc_cli.engine.checks.codes import CODES

    return [asdict(code) for code in CODES.values()]


def code_table() -> Table:
    """Every finding there can be, for `--list`."""
    table = plain_table("Findings of crbc check", "code", "severity", "meaning; what to do", left=3)
    table.columns[0].no_wrap = True
    for row in code_rows():
        table.add_row(row["code"], row["severity"], f"{row['meaning']}; {row['advice']}")
    return table


def check_parts(report: "CheckReport") -> "Iterator[RenderableType]":
    """Renderables in order: summary, batches where there are several, findings, a last line."""
    yield _summary_table(report.summary)
    if len(report.batches) > 1:
        yield _batch_table(report.batches)
    for finding in report.findings:
        yield Text()
        yield _finding_block(finding)
    yield Text()
    notes = len(report.findings) - report.problems
    yield Text(f"{counted(report.problems, 'problem')}, {counted(notes, 'note')}")


def _summary_table(s: "Summary") -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    sizes = ", ".join(f"{groups} of size {size}" for size, groups in s.group_sizes.items())
    low, middle, high = s.rollout_rows
    endings = ", ".join(f"{count} {name}" for name, count in s.endings.items() if count)
    contents = (
        f"; {counted(s.anchors_in_several_groups, 'content occurs', 'contents occur')} "
        "in several groups, kept apart"
        if s.anchors_in_several_groups
        else ""
    )
    rows = [
        (
            "log",
            f"{counted(s.files, 'file')}, {counted(s.rows, 'row')}, "
            f"{counted(s.rollouts, 'rollout')}",
        ),
        ("groups", f"{s.groups} ({sizes})"),
        ("rows per rollout", f"{low} to {high}, median {middle:g}"),
        ("endings", endings),
        ("success rate", percent(s.success_rate)),
        (
            "mean outcome",
            f"{_number(s.outcome_mean_rollouts)} over rollouts, "
            f"{_number(s.outcome_mean_rows)} over rows",
        ),
        (
            "anchors",
            f"{s.anchors}, {_number(s.visits_per_anchor)} "
            f"visit{'' if s.visits_per_anchor == 1 else 's'} each{contents}",
        ),
        ("visits", f"{percent(s.shared_share)} at anchors that several rollouts share"),
        ("", f"{percent(s.choice_share)} at anchors with two actions or more"),
        ("", f"{percent(s.top_anchor_share)} at the most visited anchor of each group"),
    ]
    if s.anchor_bytes:
        least, median, most_of, most = s.anchor_bytes
        rows.append(("anchor bytes", f"{least} to {most}, median {median}, 90 % at most {most_of}"))
    if s.invalid_share:
        rows.append(("invalid actions", percent(s.invalid_share)))
    for name, value in rows:
        table.add_row(name, value)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _batch_table(batches: "Sequence[dict[str, Any]]") -> Table:
    """Files and training steps; of many, the smaller ones."""
    shown = [b for b in batches if b["smaller"]]
    shown = list(batches) if len(batches) <= _SHOWN_BATCHES else shown[:_SHOWN_BATCHES]
    cut = f" ({len(shown)} smaller ones of {len(batches)})" if len(shown) < len(batches) else ""
    title = f"Files and training steps{cut}"
    table = plain_table(title, "file", "step", "rows", "rollouts", "groups", "")
    for batch in shown:
        step = "-" if batch["training_step"] is None else batch["training_step"]
        numbers = (str(batch[name]) for name in ("rows", "rollouts", "groups"))
        table.add_row(batch["source_file"], step, *numbers, "smaller" if batch["smaller"] else "")
    return table


def _finding_block(finding: "Finding") -> Table:
    """Code and count on top; message, the first places and advice indented below."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, min_width=7)
    table.add_column()
    style = "bold red" if finding.severity == "problem" else "bold"
    one = {"batches": "batch"}.get(finding.unit, finding.unit.removesuffix("s"))
    of = counted(finding.of, one, finding.unit)
    head = Text.assemble((finding.code, style), f"  {finding.count} of {of}")
    table.add_row(Text(finding.severity, style), head)
    table.add_row("", finding.message)
    for place in finding.where[:_SHOWN_PLACES]:
        table.add_row("", f"- {place}")
    table.add_row("", f"do: {finding.advice}")
    return table
