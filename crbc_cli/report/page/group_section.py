"""The list of groups: what it is sorted by and what it can be filtered by."""

from crbc_cli.report.page.contents import Contents
from crbc_cli.report.page.html import Markup, paragraph, section, text

__all__ = ["groups"]


def groups(contents: Contents) -> Markup:
    """Controls; the list itself is drawn by the page."""
    lines_, drawn = contents.overview.groups, len(contents.pictures)
    left = len(lines_) - drawn
    note = (
        f" Graph and transcript of the {drawn} most interesting groups are in this page; of the "
        f"other {left} only the numbers are (--detail N changes that)."
        if left
        else ""
    )
    statuses = "".join(
        f"<option>{text(status)}</option>" for status in dict.fromkeys(g.status for g in lines_)
    )
    return section(
        "groups",
        "Groups",
        paragraph(
            "Interest is the mean over a group's steps of |credit at full closure − credit at "
            f"depth 0|: how much other rollouts' evidence changed.{note}"
        ),
        Markup(f'<div class="controls">{_controls(statuses)}</div><div id="list"></div>{_OPENED}'),
    )


_OPENED = '<section id="group" aria-label="Chosen group" hidden></section>'
_SORTS = {
    "interest": "interest",
    "log": "order of the log",
    "success": "fewest successes",
    "gain": "coverage gained",
    "conflict": "conflict",
    "size": "steps",
}


def _controls(statuses: str) -> str:
    sorts = "".join(f'<option value="{name}">{told}</option>' for name, told in _SORTS.items())
    return (
        f'<label>Sort by <select id="sort">{sorts}</select></label>'
        f'<label>Status <select id="status"><option value="">all</option>{statuses}</select>'
        '</label><label>Outcomes <select id="outcomes"><option value="">all</option>'
        '<option value="mixed">mixed</option><option value="same">all the same</option></select>'
        '</label><label>Search <input type="search" id="search" placeholder="group or file">'
        '</label><label><input type="checkbox" id="inside"> also in observations and actions'
        "</label>"
    )
