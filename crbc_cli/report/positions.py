"""Credit by position and outcome on a terminal of 80 columns."""

from typing import TYPE_CHECKING

from crbc_cli.notes import counted
from crbc_cli.report.text import Bar, percent, plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from crbc_cli.engine.positions import PositionReport

__all__ = ["positions_table"]


def positions_table(report: "PositionReport") -> "Table":
    """One line per position: steps, mean step credit and share with credit, by outcome."""
    table = plain_table(
        f"Step credit ({report.method}) by position; rollouts that succeed, and that fail",
        "step",
        "succeed",
        "A_S",
        "credited",
        "fail",
        "A_S",
        "credited",
        "",
    )
    table.columns[-1].justify = "left"
    lines: dict[int, dict[str, dict[str, float]]] = {}
    for row in report.rows():
        lines.setdefault(row["position"], {})[row["outcome"]] = row
    most = max((sum(r["steps"] for r in by.values()) for by in lines.values()), default=1)
    for position, by in lines.items():
        cells = [cell for outcome in ("success", "failure") for cell in _cells(by.get(outcome))]
        share = sum(row["steps"] for row in by.values()) / most
        table.add_row(str(position), *cells, Bar(share, 8))
    if report.left_out:
        table.caption = f"{counted(report.left_out, 'row')} without step credit left out"
        table.caption_justify = "left"
    return table


def _cells(row: dict[str, float] | None) -> list[str]:
    if row is None:
        return ["-", "-", "-"]
    return [f"{row['steps']}", f"{row['mean']:+.3f}", percent(row["credited_share"])]
