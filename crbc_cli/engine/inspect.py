"""What an input is: format, columns, sizes and a few rows."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from crbc_cli.logs.formats.registry import FORMATS
from crbc_cli.logs.sources import Source
from crbc_cli.logs.tolerated import tell_report
from crbc_cli.logs.whole import Whole
from crbc_cli.notes import Notes
from crbc_cli.options import LogOptions
from crbc_cli.tables import IDENTITY_COLUMNS, REPORT_SCHEMA_VERSION, STEP_COLUMNS

__all__ = ["InspectReport", "Inspected", "inspect_sources"]

_LONGEST = 200


@dataclass(frozen=True)
class Inspected:
    """One input.

    Attributes:
      source_file: its name.
      container: how its records are held.
      bytes: its size.
      format: name of its format, "table" for a step table.
      title, lacks: what that is, and what it lacks for a closure; "" if nothing.
      columns: name, dtype and number of nulls of each column of the step table.
      rows, groups, rollouts: sizes; None where the columns that say so are missing.
      group_sizes: rollouts in a group -> number of such groups.
      rollout_lengths: rows of the shortest, the median and the longest rollout.
      head: the first rows, long values cut.
    """

    source_file: str
    container: str
    bytes: int
    format: str
    title: str
    lacks: str
    columns: list[dict[str, Any]]
    rows: int
    groups: int | None
    rollouts: int | None
    group_sizes: dict[str, int] | None
    rollout_lengths: list[float] | None
    head: list[dict[str, Any]]


@dataclass(frozen=True)
class InspectReport:
    """What `crbc inspect` found."""

    inputs: list[Inspected]
    notes: Notes

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "inspect",
            "inputs": [asdict(one) for one in self.inputs],
            "notes": self.notes.echo(),
        }


def inspect_sources(
    sources: Sequence[Source], options: LogOptions, notes: Notes, *, rows: int = 3
) -> InspectReport:
    """Looks into inputs.

    Args:
      sources: opened inputs.
      options: `map` and `skip_bad_lines` count.
      notes: told what reading tolerated.
      rows: how many first rows to show.
    Raises:
      InputError: an input cannot be read.
    """
    return InspectReport([_inspected(s, options, notes, rows) for s in sources], notes)


def _inspected(source: Source, options: LogOptions, notes: Notes, rows: int) -> Inspected:
    whole = Whole(source, options.skip_bad_lines)
    nulls: dict[str, int] = {}
    dtypes: dict[str, str] = {}
    identities: list[pl.DataFrame] = []
    head: list[dict[str, Any]] = []
    total = 0
    renamed = options.column_map
    group, rollout = (renamed.get(name, name) for name in ("group_id", "rollout_id"))
    for frame in whole.frames():
        total += frame.height
        for column in frame:
            nulls[column.name] = nulls.get(column.name, 0) + column.null_count()
            dtypes[column.name] = str(column.dtype)
        if len(head) < rows:
            head += map(_shortened, frame.head(rows - len(head)).iter_rows(named=True))
        if rollout in frame.columns:
            keys = [name for name in (group, rollout) if name in frame.columns]
            identities.append(frame.select(keys))
    tell_report(source.name, whole.report, notes)
    known = FORMATS.get(source.format)
    lacks = known.lacks if known else _lacking(dtypes, options)
    is_table = {*IDENTITY_COLUMNS} <= {*dtypes, *options.column_map}
    for name in whole.json_columns & dtypes.keys():
        dtypes[name] = "JSON"
    return Inspected(
        source.name,
        source.records or source.container,
        _size(source),
        source.format or "table",
        known.title if known else "step table" if is_table else "table",
        lacks,
        [{"name": n, "dtype": dtypes[n], "nulls": nulls[n]} for n in dtypes],
        total,
        *_sizes(identities, group, rollout),
        head,
    )


def _lacking(names: Collection[str], options: LogOptions) -> str:
    """What a table without a known format lacks to be a step table."""
    optional = {*options.column_map}
    optional |= {"group_id"} if options.infers_groups else set()
    optional |= {"step"} if options.order_by == "file" else set()
    absent = [c.name for c in STEP_COLUMNS if c.required and c.name not in {*names, *optional}]
    if not absent and "success" not in {*names, *options.column_map}:
        return (
            "no success; --success-when says by what a rollout ends well, and --map success=COLUMN "
            "where it is"
        )
    if not absent:
        return ""
    return (
        f"no {', '.join(absent)}; --map CANONICAL=COLUMN names columns that are called otherwise, "
        "--from the program that wrote the file"
    )


def _sizes(
    identities: list[pl.DataFrame], group: str, rollout: str
) -> tuple[int | None, int | None, dict[str, int] | None, list[float] | None]:
    """(groups, rollouts, group sizes, rollout lengths)."""
    if not identities:
        return None, None, None, None
    keys = identities[0].columns
    lengths = pl.concat(identities).group_by(keys).len()
    spread = [float(lengths["len"].quantile(q, "linear") or 0) for q in (0.0, 0.5, 1.0)]
    if group not in keys or set(lengths[group]) == {""}:  # "" stands for no group
        return None, lengths.height, None, spread
    sizes = lengths.group_by(group).len("rollouts")["rollouts"].value_counts().sort("rollouts")
    counts = {str(size): number for size, number in sizes.iter_rows()}
    return sum(counts.values()), lengths.height, counts, spread


def _shortened(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _short(value) for name, value in row.items()}


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _size(source: Source) -> int:
    """Bytes as given, of a folder those of its files."""
    given = Path(source.name)
    if given.is_dir():
        return sum(p.stat().st_size for p in given.rglob("*") if p.is_file())
    return (given if given.is_file() else source.path).stat().st_size
