"""Writes the README's generated parts: `python tests/readme_tables.py`.

Tables of columns and options stand in the package as data; between `<!-- NAME -->` and
`<!-- end -->` the README shows them. `test_readme.py` fails where the two differ.
"""

import re
import sys
from dataclasses import fields
from pathlib import Path

from typer.main import get_group

from crbc_cli.cli.main import app
from crbc_cli.logs.formats.registry import FORMATS
from crbc_cli.methods.registry import describe
from crbc_cli.options import flag_of, option_groups
from crbc_cli.tables import (
    ANCHOR_ID,
    CREDIT_COLUMNS,
    GROUP_STATUSES,
    REASONS,
    STEP_COLUMNS,
    UNCERTAINTY_COLUMNS,
)
from crbc_cli.trainers.targets import MADE_OF, TARGETS

sys.path.insert(0, str(Path(__file__).parent / "learning"))
import tables

README = Path(__file__).parent.parent / "README.md"
PART = re.compile(r"(<!-- (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


SECTIONS = {
    "adapter": "from-a-trainer",
    "anchors": "anchors-presets-and-rules",
    "config": "schema-and-config",
    "convert": "dumps-of-trainers-and-harnesses",
    "inspect": "dumps-of-trainers-and-harnesses",
    "schema": "schema-and-config",
}
"""Command -> its section, where that has another name."""


def commands() -> str:
    return _table(
        ("command", "what it does"),
        [
            (f"[`{name}`](#{SECTIONS.get(name, name)})", (command.help or "").split("\n\n")[0])
            for name, command in sorted(get_group(app).commands.items())
        ],
    )


def step_columns() -> str:
    return _table(
        ("column", "type", "meaning", "null means"),
        [
            (f"**{c.name}**" if c.required else c.name, c.dtype, c.meaning, c.null)
            for c in STEP_COLUMNS
        ],
    )


def credit_columns() -> str:
    return _table(
        ("column", "type", "meaning", "null where"),
        [
            (c.name, c.dtype, c.meaning, c.null)
            for c in (*CREDIT_COLUMNS, *UNCERTAINTY_COLUMNS, ANCHOR_ID)
        ],
    )


def statuses() -> str:
    return _table(("group_status", "the first that holds"), list(GROUP_STATUSES.items()))


def reasons() -> str:
    return _table(("reason", "the first that holds"), list(REASONS.items()))


def options() -> str:
    rows = []
    for group in option_groups().values():
        for f in fields(group):
            values = "|".join(f.metadata["choices"]) or f.metadata["metavar"]
            default = f.default
            if isinstance(default, tuple):
                default = ",".join(default)
            shown = "" if default is False or default == "" else f"`{default}`"
            flag = flag_of(f.name)
            rows.append((f"`{flag}{' ' + values if values else ''}`", shown, f.metadata["help"]))
    return _table(("option", "default", "what it does"), rows)


def methods() -> str:
    rows = []
    for method in describe():
        defaults = ", ".join(
            f"{o['name']} {o['default']}" for o in method["options"] if o["default"] is not None
        )
        kind, summary, source = method["kind"], method["summary"], method["source"]
        rows.append((f"`{method['name']}`", kind, summary, source, defaults))
    return _table(("method", "kind", "signal", "source", "options and defaults"), rows)


def targets() -> str:
    return _table(
        ("--emit", "trainer", "key", "what it is there", "read from", "or made of"),
        [
            (
                f"`{target.name}`" if key is target.keys[0] else "",
                target.title if key is target.keys[0] else "",
                key.name,
                key.meaning,
                ", ".join(key.columns),
                MADE_OF.get(key.otherwise, key.otherwise),
            )
            for target in TARGETS.values()
            for key in target.keys
        ],
    )


def formats() -> str:
    rows = []
    for known in FORMATS.values():
        places = (known.group, known.rollout, known.step, known.state)
        rows.append((f"`{known.name}`", known.title, *(place or "-" for place in places)))
    return _table(("--from", "what", "group", "rollout", "step", "state"), rows)


def incomplete_formats() -> str:
    rows = []
    for known in FORMATS.values():
        if known.lacks:
            hook = f"`crbc adapter {known.hook} --hook`" if known.hook else ""
            rows.append((f"`{known.name}`", known.lacks, hook))
    return _table(("--from", "what is missing", "logs the rest"), rows)


PARTS = {
    "commands": commands,
    "formats": formats,
    "incomplete-formats": incomplete_formats,
    "targets": targets,
    "methods": methods,
    "step-columns": step_columns,
    "credit-columns": credit_columns,
    "statuses": statuses,
    "reasons": reasons,
    "options": options,
    **tables.PARTS,
}


def regenerated(text: str) -> str:
    """The README with its generated parts as the package has them now."""
    return PART.sub(lambda m: m[1] + PARTS[m["name"]]() + m[4], text)


if __name__ == "__main__":
    README.write_text(regenerated(README.read_text("utf-8")), "utf-8")
