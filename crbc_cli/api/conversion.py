"""Step tables of logs, whatever program wrote them."""

import sys
from collections.abc import Sequence
from typing import Any

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.convert import Converted, convert_logs
from crbc_cli.engine.output import plan_outputs
from crbc_cli.errors import OptionError
from crbc_cli.logs.open import open_logs
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

__all__ = ["convert"]


def convert(
    inputs: str | Sequence[str],
    output: str | None = None,
    *,
    to: str | None = None,
    force: bool = False,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> Converted:
    """Writes the step table of logs of any known format.

    Args:
      inputs: logs.
      output: a file, `-` or a folder (one output per input); stdout by default if it is piped.
      to: parquet, jsonl, arrow or csv; by default what the suffix says.
      force: replace existing outputs.
      settings, options: as in `annotate`; those of rows and groups count.
      clock, notes: filled if given.
    Raises:
      CrbcError: see `crbc_cli.errors`; nothing is left half-written.
    """
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    piped = not sys.stdout.isatty()
    if output is None and not piped:
        raise OptionError("no output named", todo="give -o FILE, or pipe the output")
    with clock("read"):
        sources = open_logs(inputs, settings.log, notes)
    plans = plan_outputs(sources, output or "-", to, force, piped, kind=".steps")
    with clock("write"):
        done = convert_logs(plans, settings, notes)
    clock.rows += done.rows
    return done
