"""Per-step credit from groups of LLM-agent rollouts.

Everything a command does is one public function here; `credit` works on Arrow tables in memory
and touches no file. Names are imported on first use, so that `import crbc_cli` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from crbc_cli.api import (
        anchor_report,
        annotate,
        audit,
        check,
        compare,
        compare_runs,
        convert,
        coverage,
        credit,
        explain,
        filter_log,
        gate,
        group_graph,
        inspect_logs,
        profile,
        report_page,
        steps,
    )
    from crbc_cli.errors import CrbcError

_HOME = {
    "anchor_report": "api",
    "annotate": "api",
    "audit": "api",
    "check": "api",
    "compare": "api",
    "compare_runs": "api",
    "convert": "api",
    "coverage": "api",
    "credit": "api",
    "explain": "api",
    "filter_log": "api",
    "inspect_logs": "api",
    "gate": "api",
    "group_graph": "api",
    "profile": "api",
    "steps": "api",
    "report_page": "api",
    "CrbcError": "errors",
}

__all__ = [
    "CrbcError",
    "__version__",
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
    "profile",
    "report_page",
    "steps",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"crbc_cli.{_HOME[name]}"), name)
    raise AttributeError(f"module 'crbc_cli' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
