"""What goes to the terminal: remarks and summaries on stderr, reports on stdout."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from crbc_cli.notes import Notes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from crbc_cli.cli.options import Run
    from crbc_cli.engine.clock import Clock

__all__ = [
    "console",
    "finish",
    "passing",
    "print_csv",
    "print_json",
    "show",
    "tell",
    "tell_notes",
    "visible",
]

_WIDTH = 80
_PASSING_SECONDS = 1.0
_NARROWEST = 40  # rich fails where a table's columns have no room at all


_CONTROLS = {*range(0x20), *range(0x7F, 0xA0)} - {*b"\t\n"}
_BIDIRECTIONAL = {0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_INVISIBLE = str.maketrans(dict.fromkeys(_CONTROLS | _BIDIRECTIONAL, "\ufffd"))


def visible(text: str) -> str:
    """Text of a log with U+FFFD for what a terminal would obey; tabs and line ends stay."""
    return text.translate(_INVISIBLE)


def _color() -> bool | None:
    """NO_COLOR wins, then FORCE_COLOR and CLICOLOR_FORCE; None leaves it to the terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return None


def console(to_stderr: bool = False) -> "Console":
    """A console that keeps plain pipes plain; width from COLUMNS, else the terminal, else 80."""
    from rich.console import Console
    from rich.segment import Segment

    class Tame(Console):
        """Obeys no control character of a log."""

        def render(self, *what: Any, **how: Any) -> "Iterable[Segment]":
            for segment in super().render(*what, **how):
                text = segment.text if segment.control else visible(segment.text)
                yield segment._replace(text=text)

    stream = sys.stderr if to_stderr else sys.stdout
    color = _color()
    columns = os.environ.get("COLUMNS", "")
    width = None if stream.isatty() else _WIDTH
    if re.fullmatch(r"[1-9][0-9]{0,5}", columns):
        width = max(int(columns), _NARROWEST)
    return Tame(
        file=stream,
        force_terminal=color,
        no_color=color is False,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def show(*parts: "RenderableType") -> None:
    """Prints a report on stdout, in a pipe or file without the blanks that fill up its lines."""
    out = console()
    for part in parts:
        with nullcontext() if sys.stdout.isatty() else out.capture() as captured:
            out.print(part)
        if captured is not None:
            lines = captured.get().removesuffix("\n").split("\n")
            sys.stdout.writelines(f"{line.rstrip(' ')}\n" for line in lines)


def tell(text: str) -> None:
    """One plain line on stderr."""
    print(visible(text).replace("\n", " "), file=sys.stderr)


@contextmanager
def passing(quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """Shows how far a long run is, in a line of the terminal that is gone in the end."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    last, shown = time.monotonic(), False

    def show_line(text: str) -> None:
        nonlocal last, shown
        if time.monotonic() - last > _PASSING_SECONDS:
            last, shown = time.monotonic(), True
            with suppress(OSError):
                print(f"\r{visible(text)} …\x1b[K", end="", file=sys.stderr, flush=True)

    try:
        yield show_line
    finally:
        if shown:
            with suppress(OSError):
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def tell_notes(notes: Notes, quiet: bool) -> None:
    """Remarks of a run, one line each, on stderr."""
    if not quiet:
        for note in notes.items:
            tell(f"{'warning' if note.warning else 'note'}: {note.message}")


def print_json(report: dict[str, Any]) -> None:
    """Strict JSON on stdout, escaped where its encoding is not Unicode."""
    unicode = sys.stdout.encoding.lower().startswith("utf")
    print(json.dumps(report, ensure_ascii=not unicode, allow_nan=False, indent=2))


def print_csv(rows: Sequence[dict[str, Any]]) -> None:
    """Rows as CSV with a header on stdout."""
    import csv

    if rows:
        writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def finish(run: "Run", notes: Notes, clock: "Clock") -> None:
    """Remarks, the stage table if asked for, and exit code 1 for warnings under --strict."""
    tell_notes(notes, run.quiet)
    if run.profile:
        from crbc_cli.report.text import stage_table

        console(to_stderr=True).print(stage_table(clock))
    if run.strict and notes.warnings:
        raise SystemExit(1)
