"""Logs of any known format -> the step table as a file."""

import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import msgspec
import polars as pl

from crbc_cli.engine.joining import concatenated, within_64_bits
from crbc_cli.engine.output import OutputPlan
from crbc_cli.engine.provenance import provenance
from crbc_cli.errors import ColumnError, OutputError
from crbc_cli.logs.columns import Field, ReadRole, conform
from crbc_cli.logs.formats.parquet import JSON_COLUMNS
from crbc_cli.logs.missing import missing_columns
from crbc_cli.logs.plainness import NotPlainError
from crbc_cli.logs.read import read
from crbc_cli.logs.sources import Source, refuse_changed
from crbc_cli.logs.straight import Straight
from crbc_cli.logs.tolerated import tell_report
from crbc_cli.logs.whole import Whole
from crbc_cli.logs.write import open_table, table_metadata
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.tables import STEP_COLUMNS

__all__ = ["Converted", "convert_logs"]

_BLOCK_ROWS = 1 << 15
_AHEAD = 4
_STRICT = ("id", "integer", "flag")
_NAMES = [c.name for c in STEP_COLUMNS]
_Stamps = Mapping[Source, tuple[int, int, int]]


@dataclass
class Converted:
    """What `convert` wrote.

    Attributes:
      outputs: paths written, `-` for stdout.
      rows: number of them.
      columns: names, in order.
    """

    outputs: list[str] = field(default_factory=list)
    rows: int = 0
    columns: list[str] = field(default_factory=list)


def convert_logs(plans: Sequence[OutputPlan], settings: Settings, notes: Notes) -> Converted:
    """Writes the step table of each plan's inputs, rows in input order.

    Columns of the step table come first and have its types; all others are carried along. Several
    inputs in one output get a column `source_file`.

    Raises:
      ColumnError, IdentityError: group_id, rollout_id or step is missing or cannot be one.
      OutputError: it cannot be written, or the inputs' columns do not go together.
    """
    done = Converted([plan.target.name for plan in plans])
    for plan in plans:
        if len(plan.sources) > 1:
            notes.say(
                "source_file",
                f"{plan.target.place} holds several inputs; --key source_file keeps their groups "
                "apart",
            )
        stamps = {source: source.stamp for source in plan.sources}
        try:
            straight = _straight(plan, settings)
            if straight is None:
                _write(plan, settings, notes, done, stamps, plain=not settings.log.map)
            else:
                _write_straight(straight, plan, settings, notes, done, stamps)
        except NotPlainError:
            _write(plan, settings, notes, done, stamps, plain=False)
    return done


def _straight(plan: OutputPlan, settings: Settings) -> Straight | None:
    """The only input of a plan as a log that one query converts, if it looks like one."""
    if len(plan.sources) > 1 or plan.target.format != "parquet" or plan.target.is_stream:
        return None
    changed = settings.log.map or settings.log.infers_groups
    straight = None if changed else Straight.of(plan.sources[0])
    absent = {*_NEEDED} - {*(straight.schema if straight else ())}
    return None if absent else straight


def _write_straight(
    straight: Straight,
    plan: OutputPlan,
    settings: Settings,
    notes: Notes,
    done: Converted,
    stamps: _Stamps,
) -> None:
    def metadata() -> dict[str, str]:
        return table_metadata(_metadata(plan, settings, notes), _more(()))

    with ThreadPoolExecutor(1) as beside, plan.target.open() as stream:
        beside.submit(import_module, "pyarrow.parquet")  # takes a while and is needed at the end
        rows = straight.write(stream, _BLOCK_ROWS, metadata)
        refuse_changed(stamps)
    done.rows += rows
    done.columns = list(straight.schema)


def _metadata(plan: OutputPlan, settings: Settings, notes: Notes) -> dict[str, Any]:
    made = provenance("convert", settings, plan.sources, notes)
    made["formats"] = {s.name: s.format or "table" for s in plan.sources}
    return made


def _more(json_columns: Collection[str]) -> dict[str, str]:
    return {JSON_COLUMNS: json.dumps(sorted(json_columns))}


def _write(
    plan: OutputPlan,
    settings: Settings,
    notes: Notes,
    done: Converted,
    stamps: _Stamps,
    *,
    plain: bool,
) -> None:
    rows = 0
    json_columns: set[str] = set()
    schema: pl.Schema | None = None
    with (
        open_table(plan.target, _BLOCK_ROWS) as writer,
        ThreadPoolExecutor(1) as beside,  # encodes pieces while the next are read
    ):
        beside.submit(import_module, "pyarrow.parquet")
        for source in plan.sources:
            beside.submit(getattr, source, "digest")
        pending: deque[Future[None]] = deque()
        for source in plan.sources:
            for frame in _step_rows(source, settings, notes, json_columns, plain=plain):
                if len(plan.sources) > 1 and "source_file" not in frame.columns:
                    frame = frame.with_columns(pl.lit(source.name).alias("source_file"))
                rows += frame.height
                schema = schema or frame.schema
                if plan.target.format == "jsonl" and json_columns & set(frame.columns):
                    _wait(pending, 0)
                    for line in _lines(frame, json_columns):
                        writer.line(line)
                    continue
                if plan.target.format != "jsonl":
                    frame = _fitted(frame, schema, source)
                pending.append(beside.submit(writer.write, frame))
                _wait(pending, _AHEAD)
        _wait(pending, 0)
        refuse_changed(stamps)
        writer.finish(_metadata(plan, settings, notes), _more(json_columns))
    done.rows += rows
    done.columns = list(schema or ())


def _wait(pending: "deque[Future[None]]", most: int) -> None:
    """Until no more than `most` pieces wait to be written."""
    while len(pending) > most:
        pending.popleft().result()


def _step_rows(
    source: Source, settings: Settings, notes: Notes, json_columns: set[str], *, plain: bool
) -> Iterator[pl.DataFrame]:
    """One input's rows with the step table's columns and types."""
    whole = Whole(source, settings.log.skip_bad_lines)
    quick = plain and source.container == "jsonl"
    inferred = _inferred(source, settings, notes) if settings.log.infers_groups else None
    start = 0
    for frame in whole.plain_frames() if quick else whole.frames():
        json_columns |= whole.json_columns
        frame = _renamed(frame, source, settings, json_columns)
        if not quick and source.container == "jsonl":
            frame = _as_read(frame, source, settings, json_columns)
        if inferred is not None:
            frame = _regrouped(frame, inferred.slice(start, frame.height))
        yield _conformed(frame, source, settings, start)
        start += frame.height
    tell_report(source.name, whole.report, notes)


def _as_read(
    frame: pl.DataFrame, source: Source, settings: Settings, json_columns: set[str]
) -> pl.DataFrame:
    """All rows of JSON lines, with columns whose types drift as every other command reads them."""
    drifting = [
        Field(c.name, c.name, c.role, lenient=c.role == "number")
        for c in STEP_COLUMNS
        if c.role in ("id", "integer", "flag", "number")
        and c.name in json_columns
        and c.name not in settings.log.column_map
    ]
    if not drifting:
        return frame
    skip = settings.log.skip_bad_lines
    report = Whole(source, skip).report
    pieces = [
        batch.frame.collect()
        for batch in read(source, drifting, skip_bad_lines=skip, report=report)
    ]
    found = [f.name for f in drifting if all(f.name in piece.columns for piece in pieces)]
    rows = concatenated([piece.select(found) for piece in pieces], [source.name])
    json_columns -= set(found)
    return frame.with_columns(rows[name] for name in found)


def _inferred(source: Source, settings: Settings, notes: Notes) -> pl.DataFrame:
    """`group_id` of each row by the rule that is asked for, and `rollout_id` and `step` where the
    log has none, as `annotate` has them.

    Raises:
      ColumnError: a column that tells groups apart is missing or cannot be one.
      IdentityError: a stride's block holds two prompts.
    """
    from crbc_cli.engine.load import identity_fields  # and with it all that makes anchors
    from crbc_cli.rollouts.inference import infer_groups
    from crbc_cli.rollouts.tally import Tally

    log, renamed = settings.log, settings.log.column_map
    fields = identity_fields(settings, lambda name: renamed.get(name, name))
    fields.append(Field("reply_key", renamed.get("observation", "observation"), "value"))
    whole = Whole(source, log.skip_bad_lines)
    pieces = []
    for batch in read(source, fields, skip_bad_lines=log.skip_bad_lines, report=whole.report):
        frame = batch.frame.collect()
        found = [f for f in fields if f.name in frame.columns]
        pieces.append(pl.DataFrame([conform(frame[f.name], f, batch.where) for f in found]))
    rows = concatenated(pieces, [source.name])
    missing = [f for f in fields if f.required and f.name not in rows.columns]
    if missing:
        raise missing_columns(source, missing)
    if "reply_key" not in rows.columns:
        rows = rows.with_columns(pl.lit(None, pl.String).alias("reply_key"))
    logged, tally = set(rows.columns), Tally()
    rows = rows.with_columns(pl.col("reply_key").hash(), pl.lit(0, pl.UInt32).alias("source"))
    rows = infer_groups(rows, log, source.where, tally)
    if tally.rows_are_rollouts:
        notes.say("rows_are_rollouts", "no rollout_id: each row is one rollout of one step")
    return rows.select("group_id", *({"rollout_id", "step"} - logged))


def _regrouped(frame: pl.DataFrame, inferred: pl.DataFrame) -> pl.DataFrame:
    """The rows with what was inferred; a `group_id` that says something keeps another name."""
    if "group_id" in frame.columns:
        told = frame["group_id"].cast(pl.String).fill_null("").n_unique() > 1
        frame = frame.rename({"group_id": "logged_group_id"}) if told else frame.drop("group_id")
    return pl.concat([frame, inferred], how="horizontal")


def _renamed(
    frame: pl.DataFrame, source: Source, settings: Settings, json_columns: set[str]
) -> pl.DataFrame:
    """Columns that --map names under their canonical names."""
    roles = {c.name: c.role for c in STEP_COLUMNS}
    for name, column in settings.log.column_map.items():
        if column in frame.columns:
            frame = frame.drop(name, strict=False).rename({column: name})
            continue
        role: Any = roles.get(name, "value")
        role = "value" if role in ("text", "any") else role
        fields = [Field(name, column, role, True)]
        report = Whole(source, settings.log.skip_bad_lines).report
        batches = read(source, fields, skip_bad_lines=settings.log.skip_bad_lines, report=report)
        pieces = [(batch.frame.collect(), batch.kinds) for batch in batches]
        found = [(piece[name], kinds) for piece, kinds in pieces if name in piece.columns]
        if len(found) < len(pieces) or not found:
            raise missing_columns(source, fields)
        if any(kinds.get(name) == "json" for _, kinds in found):
            json_columns.add(name)
        frame = frame.with_columns(pl.concat([series for series, _ in found]).alias(name))
    return frame


_NEEDED = ("group_id", "rollout_id", "step")


def _conformed(frame: pl.DataFrame, source: Source, settings: Settings, start: int) -> pl.DataFrame:
    absent = [name for name in _NEEDED if name not in frame.columns]
    if absent and frame.width:
        raise missing_columns(source, [Field(name, name, "id", True) for name in absent])
    columns = []
    for column in STEP_COLUMNS:
        if column.name not in frame.columns:
            continue
        role: ReadRole = "value" if column.role == "text" or column.role == "any" else column.role
        series = frame[column.name]
        if role in ("flag", "number") and series.null_count() == len(series):
            series = series.cast(pl.Null)  # nulls alone may have been taken for text
        wanted = Field(column.name, column.name, role)
        try:
            series = conform(series, wanted, lambda row: source.where(start + row))
        except ColumnError:
            if role in _STRICT:
                raise
        columns.append(series)
    rest = [frame[name] for name in frame.columns if name not in _NAMES]
    return pl.DataFrame([*columns, *rest])


def _lines(frame: pl.DataFrame, json_columns: set[str]) -> Iterator[bytes]:
    """Rows as JSON lines, documents as they are."""
    documents = [name for name in frame.columns if name in json_columns]
    names = [msgspec.json.encode(name) + b":" for name in documents]
    rest = frame.drop(documents).write_ndjson().encode().splitlines()
    for row, line in zip(frame.select(documents).iter_rows(), rest, strict=True):
        told = (n + (b"null" if v is None else v.encode()) for n, v in zip(names, row, strict=True))
        yield b",".join([line[:-1], *told]) + b"}"


def _fitted(frame: pl.DataFrame, schema: pl.Schema, source: Source) -> pl.DataFrame:
    """The frame in the schema of the first; other columns of later inputs are an error."""
    if frame.schema == schema or not frame.width:
        return frame if frame.width else pl.DataFrame(schema=schema)
    try:
        empty = pl.DataFrame(schema=schema)
        joined = pl.concat([empty, frame], how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise _differing(source) from error
    if within_64_bits(joined, [source.name]).schema != schema:
        raise _differing(source)
    return joined


def _differing(source: Source) -> OutputError:
    return OutputError(
        "its columns or their types differ from those of the first input",
        source.name,
        "write one output per input: use -o FOLDER/, or --to jsonl",
    )
