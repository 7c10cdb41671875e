"""Where credit goes: one table beside each input, one for all, or a pipe."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from crbc_cli.engine.joining import within_64_bits
from crbc_cli.errors import OptionError, OutputError
from crbc_cli.logs.sources import Source
from crbc_cli.logs.write import Format, Target

__all__ = ["OutputPlan", "one_schema", "plan_outputs"]

_SUFFIXES = (".gz", ".zst", ".parquet", ".jsonl", ".ndjson", ".json")


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
    make_folder: bool = False,
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
      make_folder: make the folder of a file when it is written, if there is none.
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
        plans = [OutputPlan(target(output, make_folder), sources)]
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
