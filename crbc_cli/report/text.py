"""Reports as rich renderables that survive 80 columns and plain pipes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from crbc_cli.notes import counted

if TYPE_CHECKING:
    from crbc_cli.engine.clock import Clock
    from crbc_cli.engine.coverage import CoverageReport
    from crbc_cli.engine.profile import ProfileReport

__all__ = [
    "Bar",
    "coverage_summary",
    "coverage_tables",
    "heat",
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


@dataclass(frozen=True)
class Bar:
    """A share as a bar of at most `width` cells, to an eighth of a cell; `#` where the terminal
    has no block characters."""

    share: float
    width: int = 12

    def text(self, ascii_only: bool) -> str:
        """The bar without colour."""
        eighths = round(min(max(self.share, 0.0), 1.0) * self.width * 8)
        if ascii_only:
            return "#" * round(eighths / 8)
        return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text(self.text(options.ascii_only))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        cells = len(self.text(options.ascii_only))
        return Measurement(cells, cells)


def heat(text: str, share: float) -> Text:
    """A cell shaded by a share in [0, 1]; without colour the number is left."""
    if not share > 0:
        return Text(text)
    level = min(int(share**0.5 * len(_HEAT)), len(_HEAT) - 1)
    ink = "white" if level >= len(_HEAT) // 2 else "black"
    return Text(text, style=f"{ink} on {_HEAT[level]}")


_HEAT = ("#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#3182bd", "#08519c")
"""Blues of the figures, light to dark."""


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
    table.columns[-1].justify = "left"
    for depth, full, mean in zip(report.depths, report.full, report.means(), strict=True):
        share = full / report.total if report.total else math.nan
        table.add_row(
            "inf" if depth == math.inf else str(int(depth)),
            "-" if math.isnan(mean) else f"{mean:.3f}",
            percent(share),
            Bar(0.0 if math.isnan(share) else share),
        )
    shown = sorted({reach for pair in report.paired for reach in pair})
    if len(shown) > 10:
        return [table]
    paired = plain_table(
        "Depth 0 (rows) against full closure (columns), % of eligible", "rollouts", *map(str, shown)
    )
    largest = max(report.paired.values(), default=1)
    for i in shown:
        units = [report.paired.get((i, j), 0) for j in shown]
        cells = [
            heat(f"{100 * n / report.total:.1f}", n / largest) if n else Text(".") for n in units
        ]
        paired.add_row(str(i), *cells)
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
