"""What a filter kept, for people."""

from typing import TYPE_CHECKING

from crbc_cli.report.text import plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from crbc_cli.engine.filter import Filtered

__all__ = ["filter_table"]


def filter_table(done: "Filtered") -> "Table":
    """Groups and rows per group status, then rows per reason."""
    table = plain_table("", "", "groups", "rows", "kept")
    for status, rows in sorted(done.rows["group_status"].items()):
        kept = done.kept["group_status"][status]
        table.add_row(status, str(done.groups[status]), str(rows), str(kept))
    for reason, rows in sorted(done.rows["reason"].items()):
        table.add_row(f"reason {reason}", "", str(rows), str(done.kept["reason"][reason]))
    return table
