"""Functions that return or write tables: credit of a table, logs without some rows."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from crbc_cli.engine.annotate import credit_table
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.filter import Filtered, Selection, plan_filtered
from crbc_cli.engine.in_memory import credit_in_memory
from crbc_cli.engine.prepare import Prepared
from crbc_cli.engine.provenance import provenance
from crbc_cli.engine.reader import Reader
from crbc_cli.logs.open import open_logs
from crbc_cli.logs.sources import Source
from crbc_cli.logs.subset import write_subset
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["credit", "filter_log"]


def credit(
    table: "pa.Table", *, method: str | Sequence[str] = "crbc", **options: Any
) -> "pa.Table":
    """Credit table of an in-memory step table: Arrow in, Arrow out, no I/O.

    Safe to call inside a training loop or a Spark, Daft or Ray worker.

    Args:
      table: step table; columns as in `crbc_cli.tables.STEP_COLUMNS`.
      method: as in `annotate`.
      **options: option names of `crbc_cli.options`, for example `depth=0, discount=0.95`; and
        `anchor_id=True` for content digests.
    Returns:
      Credit table, row-aligned with `table`; `source_file` is "<table>".
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    return credit_in_memory(table, method, options)


def filter_log(
    inputs: str | Sequence[str],
    output: str | None = None,
    *,
    drop: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    force: bool = False,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> Filtered:
    """Copies logs without the rows of some groups; rows and columns that stay are unchanged.

    Args:
      inputs: logs.
      output: a file, `-`, a folder, or None for `NAME.filtered.SUFFIX` beside each input.
      drop: group statuses and reasons whose rows go (several in a string: commas between), or
      keep: those whose rows alone stay.
      force: replace existing outputs.
      settings, **options: as for `annotate`.
    Raises:
      CrbcError: see `crbc_cli.errors`; nothing is left half-written.
    """
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes, selection = notes or Notes(), Selection.of(_listed(drop), _listed(keep))
    sources = open_logs(inputs, settings.log, notes)
    plans = plan_filtered(sources, output, force, not sys.stdout.isatty())
    done = Filtered([plan.target.name for plan in plans])
    kept: dict[Source, pl.Series] = {}
    reader = Reader.open(sources, settings, clock, notes)
    for part in reader.parts:
        log = reader.read(part)
        table = credit_table(log, clock)
        done.count(log, table, selection.kept(table))
        kept |= {s: selection.kept(rows) for s, rows in _split(table, log, part).items()}
    for plan in plans:
        with clock("write"):
            metadata = provenance("filter", settings, plan.sources, notes)
            metadata |= {"keep" if selection.keep else "drop": list(selection.names)}
            write_subset(
                plan.sources,
                [kept[source] for source in plan.sources],
                plan.target,
                metadata,
                skip_bad_lines=settings.log.skip_bad_lines,
            )
    return done


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else names


def _split(
    table: pl.DataFrame, log: Prepared, sources: Sequence[Source]
) -> dict[Source, pl.DataFrame]:
    """Rows of each source; a source without rows gets an empty table."""
    if len(sources) == 1:
        return {sources[0]: table}
    number = log.frame["source"]
    return {source: table.filter(number == i) for i, source in enumerate(sources)}
