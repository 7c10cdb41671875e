"""What logs are."""

from collections.abc import Sequence
from typing import Any

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.inspect import InspectReport, inspect_sources
from crbc_cli.logs.open import open_logs
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

__all__ = ["inspect_logs"]


def inspect_logs(
    inputs: str | Sequence[str],
    *,
    rows: int = 3,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> InspectReport:
    """What logs are: format, columns, groups, rollouts, sizes and their first rows.

    Args:
      inputs: logs.
      rows: how many first rows of each.
      settings, options: as in `annotate`; those of rows and groups count.
      clock, notes: filled if given.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    with clock("read"):
        sources = open_logs(inputs, settings.log, notes, tolerant=True)
        return inspect_sources(sources, settings.log, notes, rows=rows)
