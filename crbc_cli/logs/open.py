"""Inputs -> sources of step tables: what another program wrote is recognised and turned into one.

A dump becomes a temporary Parquet step table, so that everything after `logs` reads it like any
other log; its rows are those that `crbc convert` writes, and its name stays the one given.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import polars as pl

from crbc_cli.errors import CrbcError, IdentityError, InputError
from crbc_cli.logs.encode import parquet_metadata
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks
from crbc_cli.logs.formats.parquet import JSON_COLUMNS
from crbc_cli.logs.read import available_columns
from crbc_cli.logs.sources import (
    Source,
    file_source,
    input_names,
    named_source,
    temporary_file,
)
from crbc_cli.logs.tolerated import tell_report
from crbc_cli.notes import Notes
from crbc_cli.options import LogOptions
from crbc_cli.tables import IDENTITY_COLUMNS

__all__ = ["format_of", "open_logs", "read_dump"]

_TABULAR = ("parquet", "jsonl")
_CONTAINERS = {
    "json": "a JSON document",
    "zip": "a zip archive",
    "torch": "a torch file",
    "pickle": "a pickle",
    "sqlite": "an SQLite database",
    "hdf5": "an HDF5 file",
    "folder": "a folder",
}


def open_logs(
    inputs: str | Sequence[str],
    options: LogOptions,
    notes: Notes,
    stdin: IO[bytes] | None = None,
    *,
    tolerant: bool = False,
    refused: dict[str, CrbcError] | None = None,
) -> list[Source]:
    """Step tables of inputs, in order.

    Args:
      inputs: as in `crbc_cli.logs.sources.resolve`.
      options: `from_`, `map`, the grouping and `skip_bad_lines` count.
      notes: told which format each dump has, and what its reader inferred.
      stdin: stream used for `-`.
      tolerant: take dumps that have no groups.
      refused: told why inputs cannot be read, which are left out then as long as one is left.
    Raises:
      InputError: an input cannot be read, or is in no known format.
      IdentityError: a dump that has no groups, without an explicit grouping.
      OptionError: `from_` names no format.
    """
    wanted = None
    if options.from_:
        from crbc_cli.logs.formats.registry import format_named

        wanted = format_named(options.from_)
    sources = []
    for name in input_names(inputs, stdin, lambda path: _is_dump(path, wanted)):
        try:
            sources.append(_as_table(named_source(name, stdin), options, notes, tolerant))
        except CrbcError as error:
            if refused is None:
                raise
            refused[name] = error
    if refused and not sources:
        raise next(iter(refused.values()))
    return sources


def _is_dump(path: Path, wanted: Format | None) -> bool:
    """Whether a folder is one dump (or a file, a dump), of the format that `--from` names."""
    if path.is_dir() and wanted is not None and not wanted.whole_folder:
        return False
    from crbc_cli.logs.formats.registry import recognise

    try:
        dump = Dump(file_source(str(path)))
        return recognise(dump) is not None if wanted is None else wanted.recognises(dump)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"cannot be looked into ({reason})", str(path), "check its permissions"
        ) from error


def format_of(source: Source, options: LogOptions) -> tuple[Dump, Format | None]:
    """What an input is; no format means a step table.

    Raises:
      InputError: neither a step table nor of a known format.
    """
    dump = Dump(source, skip_bad_lines=options.skip_bad_lines)
    tabular = source.container in _TABULAR
    # --map says what the columns are, so nothing has to be guessed.
    if (
        tabular
        and not options.from_
        and (options.map or available_columns_safely(source) >= {*IDENTITY_COLUMNS})
    ):
        return dump, None
    # All readers, and what they need: most logs are step tables.
    from crbc_cli.logs.formats.registry import format_named, names, recognise

    if options.from_:
        return dump, format_named(options.from_)
    known = recognise(dump)
    if known is None and source.container == "json" and not dump.is_whole:
        return Dump(replace(source, container="jsonl"), skip_bad_lines=options.skip_bad_lines), None
    if known is None and not tabular:
        raise InputError(
            f"is neither JSONL nor Parquet but {_CONTAINERS[dump.container]} of no known format",
            source.name,
            f"name what wrote it with --from (one of {', '.join(names())})",
        )
    return dump, known


def available_columns_safely(source: Source) -> set[str]:
    """Column names; none where the file cannot be read, which reading it will say."""
    try:
        return set(available_columns(source))
    except CrbcError:
        return set()


def read_dump(
    dump: Dump, known: Format, options: LogOptions, notes: Notes, *, tolerant: bool = False
) -> tuple[pl.DataFrame, Remarks]:
    """Step table of a dump, and its reader's remarks; `tolerant` takes it without groups.

    Raises: as `open_logs`.
    """
    remarks = Remarks(dump.name, notes)
    guessed = "" if options.from_ else f" (--from {known.name})"
    remarks.say("format", f"read as {known.title}{guessed}")
    if known.lacks and not (options.infers_groups or tolerant):
        hook = f"; crbc adapter {known.hook} --hook logs the rest" if known.hook else ""
        wrong = "name no groups" if known.only_groups else "cannot carry a closure"
        by = "group_id" if "group_id" in dump.keys else "prompt"
        alone = "" if known.only_groups else "for group advantages and audits alone "
        raise IdentityError(
            f"{known.title} {wrong}: {known.lacks}",
            dump.name,
            f"{alone}add --group-by {by} or --group-stride N{hook}",
        )
    if known.lacks and not known.only_groups:
        remarks.say("no_closure", f"no closure: {known.lacks}", warning=True)
    try:
        table = known.read(dump, remarks)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"does not look like {known.title} throughout ({type(error).__name__}: {error})",
            dump.name,
            "name what wrote it with --from",
        ) from error
    tell_report(dump.name, dump.report, notes)
    return table, remarks


def _as_table(source: Source, options: LogOptions, notes: Notes, tolerant: bool) -> Source:
    dump, known = format_of(source, options)
    if known is None:
        return dump.source
    table, remarks = read_dump(dump, known, options, notes, tolerant=tolerant)
    path = temporary_file(".parquet")
    described = {JSON_COLUMNS: json.dumps(sorted(remarks.json_columns))}
    table.write_parquet(path, compression="lz4", metadata=parquet_metadata(table, described))
    return Source(
        source.name,
        path,
        "parquet",
        format=known.name,
        records=dump.container,
        stateless=bool(known.lacks) and not known.only_groups,
        outcome_rule=remarks.outcome_rule,
    )
