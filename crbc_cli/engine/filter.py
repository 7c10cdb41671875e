"""Dropping rows by the kind of group they are in: the log's rows and columns, fewer of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from crbc_cli.engine.output import OutputPlan, plan_outputs
from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import OptionError, OutputError
from crbc_cli.logs.sources import Source
from crbc_cli.tables import GROUP_STATUSES, REASONS

__all__ = ["Filtered", "Selection", "plan_filtered"]

_SUFFIXES = {"jsonl": (".jsonl", ".ndjson"), "parquet": (".parquet",)}
_ALL_SUFFIXES = (".gz", ".zst", *_SUFFIXES["jsonl"], *_SUFFIXES["parquet"])


@dataclass(frozen=True)
class Selection:
    """Which rows stay: all but those whose group status or reason is named, or only those.

    Attributes:
      names: group statuses and reasons.
      keep: named rows stay and others go.
    """

    names: tuple[str, ...]
    keep: bool

    @classmethod
    def of(cls, drop: Sequence[str], keep: Sequence[str]) -> "Selection":
        """From exactly one of two lists.

        Raises:
          OptionError: none, both, or an unknown name.
        """
        if bool(drop) == bool(keep):
            raise OptionError(
                "--drop and --keep exclude each other" if drop else "nothing to drop is named",
                todo="for example --drop all_success,all_fail,singleton or --keep ok",
            )
        known = list(dict.fromkeys([*GROUP_STATUSES, *REASONS]))
        odd = next((name for name in (*drop, *keep) if name not in known), None)
        if odd is not None:
            raise OptionError(
                f"{odd!r} is no group status or reason", todo=f"use {', '.join(known)}"
            )
        return cls(tuple(drop or keep), bool(keep))

    def kept(self, table: pl.DataFrame) -> pl.Series:
        """Boolean per row of a credit table."""
        named = pl.col("group_status", "reason").is_in(list(self.names)).fill_null(False)
        chosen = table.select(pl.any_horizontal(named).alias("kept")).to_series()
        return chosen if self.keep else ~chosen


@dataclass
class Filtered:
    """What was kept, by group status and by reason.

    Attributes:
      outputs: paths written, `-` for stdout.
      groups: groups of each status.
      rows, kept: rows of each group status and of each reason, before and after.
    """

    outputs: list[str] = field(default_factory=list)
    groups: Counter[str] = field(default_factory=Counter)
    rows: dict[str, Counter[str]] = field(default_factory=dict)
    kept: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def all_rows(self) -> int:
        """Rows of the inputs."""
        return self.rows["group_status"].total()

    @property
    def kept_rows(self) -> int:
        """Rows of the outputs."""
        return self.kept["group_status"].total()

    def count(self, log: Prepared, table: pl.DataFrame, kept: pl.Series) -> None:
        """Adds one log and its credit table."""
        statuses = list(GROUP_STATUSES)
        for status, number in enumerate(np.bincount(log.outcomes.group_status)):
            self.groups[statuses[status]] += int(number)
        for column in ("group_status", "reason"):
            values = table[column]
            for totals, part in ((self.rows, values), (self.kept, values.filter(kept))):
                counts = part.drop_nulls().value_counts(name="rows")
                totals.setdefault(column, Counter()).update(dict(counts.iter_rows()))


def plan_filtered(
    sources: Sequence[Source], output: str | None, force: bool, piped: bool
) -> list[OutputPlan]:
    """Destinations in the inputs' own format, checked before any work is done.

    Args:
      sources: inputs.
      output: a file, `-`, a folder (one file per input), or None for `NAME.filtered.SUFFIX`
        beside each input.
      force: replace existing files.
      piped: stdout is not a terminal.
    Raises:
      OptionError: inputs of several formats for one output, or a suffix of another format.
      OutputError: an existing output, or two inputs for one file.
    """
    folder = output is not None and (output.endswith("/") or Path(output).is_dir())
    if folder or (output is None and all(source.name != "-" for source in sources)):
        names = [str(_name(source, output)) for source in sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise OutputError(
                "two inputs would be written here", twice, "write them into one file with -o FILE"
            )
        plans = [
            plan_outputs(
                sources, name, source.container, force, piped, make_folder=output is not None
            )[0]
            for name, source in zip(names, sources, strict=True)
        ]
        return [replace(plan, sources=[s]) for plan, s in zip(plans, sources, strict=True)]
    formats = {source.container for source in sources}
    if len(formats) > 1:
        raise OptionError(
            f"inputs are {' and '.join(sorted(formats))} and do not go into one output",
            todo="name a folder, or leave -o away",
        )
    [kind] = formats
    if output not in (None, "-") and not str(output).lower().endswith(_SUFFIXES[kind]):
        raise OptionError(
            f"output {output} would hold {kind}: filter keeps the input's format",
            todo=f"name it *{_SUFFIXES[kind][0]}",
        )
    return plan_outputs(sources, output, kind, force, piped)


def _name(source: Source, folder: str | None) -> Path:
    path = Path("stdin" if source.name == "-" else source.name)
    stem = path.name
    while stem.endswith(_ALL_SUFFIXES):
        stem = stem[: stem.rfind(".")]
    name = f"{stem}.filtered{_SUFFIXES[source.container][0]}"
    return (path.parent if folder is None else Path(folder)) / name
