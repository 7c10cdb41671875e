"""The parts of a report in the order of the page: what to look at first, then what it rests on."""

from crbc_cli.report.page.group_section import groups
from crbc_cli.report.page.log_sections import anchors, check, coverage, summary, updates
from crbc_cli.report.page.method_sections import estimators, gate, runtime

__all__ = ["SECTIONS"]

SECTIONS = (summary, updates, check, anchors, coverage, estimators, gate, runtime, groups)
