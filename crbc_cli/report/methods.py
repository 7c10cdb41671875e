"""The registry of methods, as tables."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from crbc_cli.report.text import plain_table

__all__ = ["method_page", "method_table"]


def method_table(methods: Sequence[dict[str, Any]]) -> Table:
    """One line a method."""
    table = plain_table("Methods", "name", "label", "kind", "signal", left=4)
    table.caption = "label: its name in reports, and before its columns where there are several"
    table.caption_justify = "left"
    for method in methods:
        table.add_row(method["name"], method["label"], method["kind"], method["summary"])
    return table


def method_page(method: dict[str, Any]) -> list[Table | str]:
    """A method with its options."""
    options = plain_table("Options", "name", "default", "what it does", left=3)
    for option in method["options"]:
        choices = "|".join(map(str, option["choices"]))
        text = f"{option['help']} ({choices})" if choices else str(option["help"])
        default = "" if option["default"] is None else str(option["default"])
        options.add_row(option["name"], default, text)
    parts: list[Table | str] = [
        f"{method['name']} ({method['kind']}): {method['summary']}",
        f"Source: {method['source']}",
    ]
    if method["notes"]:
        parts.append(method["notes"])
    return [*parts, options]
