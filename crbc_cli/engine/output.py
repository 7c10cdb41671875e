"""Where credit goes: one table beside each input, one for all, or a pipe; alone or with the log."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from crbc_cli.engine.load import within_64_bits
from crbc_cli.errors import OptionError, OutputError
from crbc_cli.logs.passthrough import as_frame, raw_lines
from crbc_cli.logs.sources import Source
from crbc_cli.logs.write import Format, Target, write_lines, write_table

__all__ = ["OutputPlan", "one_schema", "plan_outputs", "write_output"]

_IDENTITY = ("source_file", "source_row", "group_id", "rollout_id", "step")
_SUFFIXES = (".gz", ".zst", ".parquet", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class OutputPlan:
    """Which inputs go into which output.

    Attributes:
      target: destination.
      sources: its inputs, in order.
    """

    target: Target
    sources: Sequence[Source]


def plan_outputs(
    sources: Sequence[Source],
    output: str | None,
    to: str | None,
    force: bool,
    piped: bool,
    *,
    kind: str = ".credit",
    vectors: Format | None = None,
) -> list[OutputPlan]:
    """Destinations, checked before any work is done.

    Args:
      sources: inputs.
      output: a file, `-`, a folder (one file per input), or None for `NAME.credit.*` beside each
        input.
      to: format name, or None for the suffix.
      force: replace existing files.
      piped: stdout is not a terminal.
      kind: what follows the input's stem in the name of an output beside it.
      vectors: write plain vectors in this format instead of a table.
    Raises:
      OptionError, OutputError: no destination, an existing one, or two inputs for one file.
    """
    nameless = next((s.name for s in sources if not Path(s.name).exists()), None)
    if output is None and nameless is not None:
        if not piped:
            raise OptionError(
                f"{'stdin' if nameless == '-' else nameless} is no file to put the output beside",
                todo="give -o FILE, or pipe the output",
            )
        output = "-"

    def target(name: str, make_folder: bool = False) -> Target:
        if vectors is not None:
            return Target(name, vectors, force, make_folder)
        return Target.parse(name, to, force, make_folder=make_folder)

    if output is not None and not (output.endswith("/") or Path(output).is_dir()):
        plans = [OutputPlan(target(output), sources)]
    else:
        suffix = f"{kind}.{vectors or to or 'parquet'}"
        plans = [
            OutputPlan(target(str(_beside(s, output, suffix)), output is not None), [s])
            for s in sources
        ]
    inputs = {os.path.realpath(s.name) for s in sources if s.name != "-"}
    taken: dict[str, OutputPlan] = {}
    for plan in plans:
        name = plan.target.name
        other = taken.setdefault(name, plan)
        if other is not plan:
            raise OutputError(
                f"{other.sources[0].name} and {plan.sources[0].name} would both be written here",
                name,
                "write them into one file with -o FILE",
            )
        if name != "-" and os.path.realpath(name) in inputs:
            raise OutputError("is an input", name, "name another output")
    for plan in plans:
        plan.target.check()
    return plans


def _beside(source: Source, folder: str | None, suffix: str) -> Path:
    path = Path("stdin" if source.name == "-" else source.name)
    stem = path.name
    while stem.endswith(_SUFFIXES):
        stem = stem[: stem.rfind(".")]
    return (Path(folder) if folder is not None else path.parent) / (stem + suffix)


def write_output(
    plan: OutputPlan,
    tables: Sequence[pl.DataFrame],
    metadata: Mapping[str, Any],
    *,
    all_columns: bool,
    prefix: str,
    skip_bad_lines: bool,
) -> None:
    """Writes one output.

    Args:
      plan: destination and inputs.
      tables: one credit table per input, rows in input order.
      metadata: how they were made.
      all_columns: carry the input's rows and columns unchanged.
      prefix: put before each credit column's name (identity columns keep theirs).
      skip_bad_lines: as the log was read.
    Raises:
      OutputError: a credit column would take the name of one of the input's.
    """
    tables = [t.rename({n: prefix + n for n in t.columns if n not in _IDENTITY}) for t in tables]
    if not all_columns:
        write_table(one_schema(tables, plan), plan.target, metadata)
        return
    raw = plan.target.format == "jsonl" and all(s.container == "jsonl" for s in plan.sources)
    if raw:
        lines = _spliced_lines(plan.sources, tables, skip_bad_lines)
        write_lines(lines, plan.target, metadata)
        return
    joined = [
        _with_log_columns(as_frame(source, skip_bad_lines), table, source)
        for source, table in zip(plan.sources, tables, strict=True)
    ]
    write_table(one_schema(joined, plan), plan.target, metadata)


def _with_log_columns(log: pl.DataFrame, table: pl.DataFrame, source: Source) -> pl.DataFrame:
    """The log's columns unchanged, then the credit columns.

    Raises:
      OutputError: both have a column of one name.
      InputError: the log has another number of rows by now.
    """
    if log.height != table.height:
        raise source.changed()
    added = table.select(_added(table, log.columns, source.name))
    return pl.concat([log, added], how="horizontal")


def _added(table: pl.DataFrame, taken: Sequence[str], name: str) -> list[str]:
    added = [c for c in table.columns if c not in _IDENTITY]
    clash = sorted(set(added) & set(taken))
    if clash:
        raise OutputError(
            f"the log has a column {clash[0]} already",
            name,
            "rename the credit columns with --prefix, for example --prefix crbc_",
        )
    return added


def _spliced_lines(
    sources: Sequence[Source], tables: Sequence[pl.DataFrame], skip_bad_lines: bool
) -> Iterator[bytes]:
    """Each logged line with the credit members appended inside its object."""
    for source, table in zip(sources, tables, strict=True):
        added = table.select(_added(table, [], source.name))
        names = [msgspec.json.encode(c) for c in added.columns]
        start = 0
        block: list[bytes] = []
        number = -1
        for number, line in enumerate(raw_lines(source, skip_bad_lines)):
            if number >= added.height:
                raise source.changed()
            if number - start >= len(block):
                start = number
                block = added.slice(start, 1 << 14).write_ndjson().encode().splitlines()
            if any(n + b":" in line for n in names):
                _refuse_clash(line, added.columns, source, number)
            body = line[:-1]
            yield body + (b"," if len(body) > 1 else b"") + block[number - start][1:]
        if number + 1 != added.height:
            raise source.changed()


def _refuse_clash(line: bytes, added: Sequence[str], source: Source, row: int) -> None:
    clash = sorted(set(msgspec.json.decode(line, type=dict[str, msgspec.Raw])) & set(added))
    if clash:
        raise OutputError(
            f"the log has a column {clash[0]} already",
            source.where(row),
            "rename the credit columns with --prefix, for example --prefix crbc_",
        )


def one_schema(tables: Sequence[pl.DataFrame], plan: OutputPlan) -> Sequence[pl.DataFrame]:
    """Tables that can be written one after the other; columns that some inputs lack are null.

    Raises:
      OutputError: a column has types that do not go together.
    """
    filled = [t for t in tables if t.height] or tables[:1]
    if len(filled) == 1 or plan.target.format == "jsonl":
        return filled
    seen: dict[str, tuple[str, Any]] = {}
    for source, table in zip(plan.sources, tables, strict=True):
        for name, dtype in table.schema.items() if table.height else ():
            where, other = seen.setdefault(name, (source.name, dtype))
            if other.is_numeric() != dtype.is_numeric() and pl.Null not in (other, dtype):
                raise OutputError(
                    f"column {name} is {other} in {where} and {dtype} in {source.name}",
                    plan.target.name,
                    "write one output per input: leave -o away, or use -o FOLDER/",
                )
    try:
        whole = pl.concat(filled, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise OutputError(
            f"columns have types that do not go together ({str(error).splitlines()[0]})",
            plan.target.name,
            "write one output per input: leave -o away, or use -o FOLDER/",
        ) from error
    return [within_64_bits(whole, [s.name for s in plan.sources])]
