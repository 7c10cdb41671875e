"""Credit of a table in memory: Arrow in, Arrow out, no I/O."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from crbc_cli.engine.annotate import credit_table
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.reader import Reader
from crbc_cli.errors import InputError
from crbc_cli.logs.sources import Source
from crbc_cli.methods.registry import parse_methods
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["credit_in_memory"]


def credit_in_memory(
    table: "pa.Table", method: str | Sequence[str], options: Mapping[str, Any]
) -> "pa.Table":
    """The credit table of a step table.

    Args:
      table: step table.
      method: estimators, as in `crbc_cli.annotate`.
      options: option names of `crbc_cli.options` and their values; `anchor_id` for digests.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    options = dict(options)
    anchor_id = bool(options.pop("anchor_id", False))
    settings = Settings.from_flat(options)
    try:
        frame = table if isinstance(table, pl.DataFrame) else pl.from_arrow(table)
    except pl.exceptions.PolarsError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"its columns cannot be taken ({reason})", "<table>") from error
    except (TypeError, ValueError):
        frame = None
    if not isinstance(frame, pl.DataFrame):
        raise InputError(
            f"is a {type(table).__name__}", "<table>", "give credit() a pyarrow.Table or its like"
        )
    source = Source("<table>", Path(), "memory", frame=frame)
    reader = Reader.open([source], settings, Clock(), Notes())
    settings = reader.settings
    methods = parse_methods(method, settings.credit, settings.group_advantage)
    following = any("terminal" in chosen.needs for chosen in methods)
    log = reader.read([source], following=following, anchor_id=anchor_id)
    return credit_table(log, reader.clock, methods).to_arrow()
