"""Remarks about lines of JSON that were left out or mended while reading."""

from crbc_cli.logs.formats.jsonl import LineReport
from crbc_cli.notes import Notes, counted

__all__ = ["tell_report"]


def tell_report(name: str, report: LineReport, notes: Notes) -> None:
    """Says what reading an input tolerated."""
    if report.torn is not None:
        notes.say(
            "torn_line", f"{name}:{report.torn}: last line is torn and left out", warning=True
        )
    if report.skipped:
        notes.say(
            "skipped_lines",
            f"{name}: {counted(len(report.skipped), 'bad line')} left out, "
            f"first {report.skipped[0]}",
            warning=True,
        )
    if report.surrogates:
        notes.say(
            "surrogates",
            f"{name}: lone surrogates in {counted(report.surrogates, 'line')} replaced by U+FFFD",
            warning=True,
        )
