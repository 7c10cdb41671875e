"""Logs read and ordered, ready to be merged."""

from collections.abc import Iterator, Sequence

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.locate import GroupSearch, sources_named
from crbc_cli.engine.prepare import Prepared
from crbc_cli.engine.reader import Reader
from crbc_cli.logs.columns import Field
from crbc_cli.logs.open import open_logs
from crbc_cli.logs.sources import Source
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

__all__ = ["one_group", "prepared_logs"]


def prepared_logs(
    inputs: str | Sequence[str],
    settings: Settings,
    clock: Clock,
    notes: Notes,
    *,
    lengths: bool = False,
    extra: Sequence[Field] = (),
    tolerant: bool = False,
) -> Iterator[Prepared]:
    """Inputs read and ordered, one at a time unless groups span files.

    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    reader = Reader.open(open_logs(inputs, settings.log, notes), settings, clock, notes)
    return reader.logs(lengths=lengths, extra=extra, tolerant=tolerant)


def one_group(
    sources: Sequence[Source],
    group: str | None,
    file: str | None,
    key_values: Sequence[str],
    settings: Settings,
    clock: Clock,
    notes: Notes,
) -> Prepared:
    """The log of one group; arguments as in `crbc_cli.explain`.

    Raises:
      CrbcError: see `crbc_cli.errors`; no such group, or several.
    """
    named = sources_named(sources, file)
    search = GroupSearch(group, key_values)
    read = named if settings.log.per_file else sources
    for log in Reader.open(read, settings, clock, notes).logs():
        search.look(log)
    return search.found()
