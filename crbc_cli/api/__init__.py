"""What the commands do, as functions. Inputs are paths, globs, folders, `@lists` or `-`.

Names are imported on first use: a command loads what it needs and nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crbc_cli.api.annotation import Annotated, annotate
    from crbc_cli.api.comparison import COMPARED, audit, compare, compare_runs
    from crbc_cli.api.conversion import convert
    from crbc_cli.api.inspection import inspect_logs
    from crbc_cli.api.outputs import credit, filter_log
    from crbc_cli.api.pages import group_graph, report_page
    from crbc_cli.api.reading import prepared_logs
    from crbc_cli.api.reports import anchor_report, check, coverage, explain, gate, profile, steps

_HOME = {
    "COMPARED": "comparison",
    "Annotated": "annotation",
    "anchor_report": "reports",
    "annotate": "annotation",
    "audit": "comparison",
    "check": "reports",
    "compare": "comparison",
    "compare_runs": "comparison",
    "convert": "conversion",
    "coverage": "reports",
    "credit": "outputs",
    "explain": "reports",
    "filter_log": "outputs",
    "inspect_logs": "inspection",
    "gate": "reports",
    "group_graph": "pages",
    "prepared_logs": "reading",
    "profile": "reports",
    "steps": "reports",
    "report_page": "pages",
}

__all__ = [
    "COMPARED",
    "Annotated",
    "anchor_report",
    "annotate",
    "audit",
    "check",
    "compare",
    "compare_runs",
    "convert",
    "coverage",
    "credit",
    "explain",
    "filter_log",
    "gate",
    "group_graph",
    "inspect_logs",
    "prepared_logs",
    "profile",
    "report_page",
    "steps",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"crbc_cli.api.{_HOME[name]}"), name)
    raise AttributeError(f"module 'crbc_cli.api' has no attribute {name!r}")
