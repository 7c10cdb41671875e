"""Reports as rich renderables that survive 80 columns and plain pipes."""

import math
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from crbc_cli.notes import counted

if TYPE_CHECKING:
    from crbc_cli.engine.clock import Clock
    from crbc_cli.engine.coverage import CoverageReport
    from crbc_cli.engine.profile import ProfileReport

__all__ = [
    "bar",
    "coverage_summary",
    "coverage_tables",
    "percent",
    "plain_table",
    "stage_table",
    "update_table",
]


def plain_table(title: str, *columns: str, left: int = 1) -> Table:
    """A table whose first `left` columns are left-aligned text and the others numbers."""
    # A title wraps at its table's width, so the table is made as wide as the title, up to 78.
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        min_width=min(len(title), 78),
    )
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    return table


def percent(share: float | None) -> str:
    """A share as text, `-` where there is none."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def bar(share: float, width: int = 12) -> str:
    """A share as a bar of fixed width, in plain ASCII."""
    return "#" * round(share * width)


def coverage_tables(report: "CoverageReport") -> list[Table]:
    """Distribution per depth, and depth 0 against full closure."""
    table = plain_table(
        f"Reachable rollouts of {report.total} eligible {report.unit} "
        f"({report.eligible}; {report.seen} in all)",
        "depth",
        "mean",
        "all reached",
        "",
    )
    for depth, full, mean in zip(report.depths, report.full, report.means(), strict=True):
        share = full / report.total if report.total else math.nan
        table.add_row(
            "inf" if depth == math.inf else str(int(depth)),
            "-" if math.isnan(mean) else f"{mean:.3f}",
            percent(share),
            bar(0.0 if math.isnan(share) else share),
        )
    shown = sorted({reach for pair in report.paired for reach in pair})
    if len(shown) > 10:
        return [table]
    paired = plain_table(
        "Depth 0 (rows) against full closure (columns), % of eligible", "rollouts", *map(str, shown)
    )
    for i in shown:
        paired.add_row(
            str(i),
            *(
                f"{100 * report.paired[i, j] / report.total:.1f}"
                if (i, j) in report.paired
                else "."
                for j in shown
            ),
        )
    return [table, paired]


def coverage_summary(report: "CoverageReport") -> str:
    """Where it settled and how much expanded; and how far anchors can be trusted."""
    share = report.expanded / report.total if report.total else math.nan
    return (
        f"{percent(share)} of eligible {report.unit} reach more rollouts at full closure than "
        f"at depth 0; nothing changes beyond depth {report.settled}.\n"
        f"{report.conflicts.told}."
    )


def update_table(report: "ProfileReport") -> list[Table]:
    """Mean seconds per training update, with credit construction set against them."""
    means = report.update_means()
    if means is None:
        return []
    updates = 0 if report.updates is None else report.updates.height
    table = plain_table(f"Mean of {updates} training updates", "phase", "seconds", "share")
    total = means.get("total", math.nan)
    for phase, seconds in means.items():
        table.add_row(phase, f"{seconds:.4f}", percent(seconds / total))
    return [table]


def stage_table(clock: "Clock") -> Table:
    """Seconds, share and rows per second of each stage."""
    from crbc_cli.engine.clock import STAGES, peak_memory

    total = sum(clock.seconds.values())
    table = plain_table(
        f"{counted(clock.rows, 'row')} in {total:.3f} s, "
        f"peak memory {peak_memory() / 2**20:.0f} MiB",
        "stage",
        "seconds",
        "share",
        "rows/s",
    )
    for stage in STAGES:
        seconds = clock.seconds.get(stage)
        if seconds is not None:
            rate = f"{clock.rows / seconds:,.0f}" if seconds and stage != "import" else "-"
            table.add_row(stage, f"{seconds:.4f}", percent(seconds / total), rate)
    return table
