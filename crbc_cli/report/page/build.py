"""Whole pages: one file each, no reference to anything outside it.

A group's data is JSON, deflated and written in base64; the page unpacks it when the group is
opened. Scripts run only if their digest is the one in the page's policy, and nothing may be loaded
from anywhere, so that text of a log cannot become code even where escaping should fail.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from crbc_cli import __version__
from crbc_cli.engine.explanation import GroupExplanation
from crbc_cli.engine.overview import GroupLine
from crbc_cli.engine.picture import GroupPicture
from crbc_cli.report.graph.colours import CREDIT, VALUE
from crbc_cli.report.graph.data import group_data
from crbc_cli.report.page.contents import Contents
from crbc_cli.report.page.html import Markup, text
from crbc_cli.report.page.sections import SECTIONS

__all__ = ["group_page", "report_page"]

_SCRIPTS = ("dom.js", "colours.js", "data.js", "graph.js", "group.js", "list.js", "main.js")


def report_page(contents: Contents) -> str:
    """The report of a run."""
    parts = [made for made in (make(contents) for make in SECTIONS) if made]
    names = contents.names
    title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    page = {
        "groups": [_line(number, line) for number, line in enumerate(contents.overview.groups)],
        "open": None,
        "step": None,
    }
    data = [
        _json("page", page),
        _json("reports", contents.reports() | {"provenance": dict(contents.provenance)}),
        *(_packed(number, picture) for number, picture in sorted(contents.pictures.items())),
    ]
    several = ", ".join(names[:6]) if len(names) > 1 else ""
    return _document(f"crbc report: {title}", several, parts, data, contents.provenance)


def group_page(
    picture: GroupPicture, provenance: Mapping[str, Any], step: tuple[int, int] | None = None
) -> str:
    """One group with its graph and its rollouts.

    Args:
      picture: the group.
      provenance: how it was made.
      step: (index of a rollout, step) to open with.
    """
    chosen = None if step is None else {"rollout": step[0], "step": step[1]}
    data = [_json("page", {"groups": [], "open": 0, "step": chosen}), _packed(0, picture)]
    group: GroupExplanation = picture.group
    body = Markup('<section id="group" aria-label="Group" hidden></section>')
    return _document(
        f"crbc explain: group {group.group_id}",
        "",
        [body],
        data,
        provenance,
    )


def _document(
    title: str,
    subtitle: str,
    parts: Iterable[Markup],
    data: Iterable[str],
    provenance: Mapping[str, Any],
) -> str:
    script = "\n".join(['"use strict";', *map(_asset, _SCRIPTS)])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    body = "".join(parts)
    options = json.dumps(provenance, ensure_ascii=False, indent=1, sort_keys=True)
    scales = {"value": [list(c) for c in VALUE], "credit": [list(c) for c in CREDIT]}
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="crbc {__version__}">
<title>{text(title)}</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="top"><h1>{text(title)}</h1>
<button type="button" id="theme" aria-pressed="false">Dark</button>
{f"<p>{text(subtitle)}</p>" if subtitle else ""}
{_navigation(body)}</header>
<main id="content">
{body}
<noscript><p>Groups are drawn by a script, which this browser does not run.</p></noscript>
<footer>Made by crbc {__version__}. Nothing here is loaded from elsewhere.
<details><summary>Options and inputs</summary>
<pre class="log" tabindex="0">{text(options)}</pre></details></footer>
</main>
{_json("scales", scales)}
{"".join(data)}<script>{script}</script>
</body>
</html>
"""


def _navigation(body: str) -> str:
    found = re.findall(r'<h2 id="([a-z]+)-title">([^<]*)</h2>', body)
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in found)
    return f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav>' if links else ""


def _line(number: int, line: GroupLine) -> dict[str, Any]:
    """A group in the list."""
    return {
        "n": number,
        "id": line.group_id,
        "file": line.source_file,
        "key": {name: str(value) for name, value in line.key.items()},
        "status": line.status,
        "rollouts": line.rollouts,
        "successes": line.successes,
        "unscored": line.unscored,
        "rows": line.rows,
        "anchors": line.anchors,
        "conflict": line.conflict,
        "credited": line.credited,
        "reach_0": line.reach_0,
        "reach": line.reach,
        "interest": line.interest,
    }


def _asset(name: str) -> str:
    return files("crbc_cli.report").joinpath("web", name).read_text("utf-8")


def _json(name: str, value: Any) -> str:
    """Data for the script; no `<` of it can end its element."""
    made = json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str
    )
    escaped = made.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="{name}">{escaped}</script>\n'


def _packed(number: int, picture: GroupPicture) -> str:
    made = json.dumps(
        group_data(picture), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str
    )
    packed = base64.b64encode(zlib.compress(made.encode("utf-8", "replace"), 9)).decode()
    return f'<script type="text/plain" id="group-{number}">{packed}</script>\n'
