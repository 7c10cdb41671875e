"""The formats that `crbc` knows, in the order in which they are tried."""

from crbc_cli.errors import OptionError
from crbc_cli.logs.formats import selective_rollout
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format

__all__ = ["FORMATS", "STEP_TABLE", "format_named", "recognise"]

STEP_TABLE = "table"
"""What `--from` calls a step table that needs no turning into one."""

FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        selective_rollout.FORMAT,
    )
}  # fmt: skip
"""Formats by name; a dump is of the first that recognises it."""


def format_named(name: str) -> Format | None:
    """The format that `--from` names; None for step tables.

    Raises:
      OptionError: no format has this name.
    """
    if name == STEP_TABLE:
        return None
    if name not in FORMATS:
        raise OptionError(
            f"--from {name!r} is no known format", todo=f"use one of {', '.join(names())}"
        )
    return FORMATS[name]


def names() -> list[str]:
    """All values of `--from`."""
    return [STEP_TABLE, *FORMATS]


def recognise(dump: Dump) -> Format | None:
    """The first format that recognises a dump."""
    return next((known for known in FORMATS.values() if known.recognises(dump)), None)
