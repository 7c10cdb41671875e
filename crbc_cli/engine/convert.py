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

from crbc_cli.engine.joining import within_64_bits
from crbc_cli.engine.output import OutputPlan
from crbc_cli.engine.provenance import provenance
from crbc_cli.errors import OutputError
from crbc_cli.logs.encode import Compression
from crbc_cli.logs.formats.parquet import JSON_COLUMNS
from crbc_cli.logs.plainness import NotPlainError
from crbc_cli.logs.sources import Source, refuse_changed
from crbc_cli.logs.straight import Straight
from crbc_cli.logs.write import open_table, table_metadata
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.tables import IDENTITY_COLUMNS

__all__ = ["Converted", "convert_logs"]

_BLOCK_ROWS = 1 << 13
_AHEAD = 4
_COMPRESSION: Compression = "snappy"  # what is written is read next, so time goes before size
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
    absent = {*IDENTITY_COLUMNS} - {*(straight.schema if straight else ())}
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

    with plan.target.open() as stream:
        try:
            rows = straight.write(stream, _BLOCK_ROWS, metadata, _COMPRESSION)
        finally:
            refuse_changed(stamps)  # also where an input cut short looks like a failed write
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
    from crbc_cli.engine.step_rows import step_rows  # and with it all that reads other logs

    rows = 0
    json_columns: set[str] = set()
    schema: pl.Schema | None = None
    with (
        open_table(plan.target, _BLOCK_ROWS, _COMPRESSION) as writer,
        ThreadPoolExecutor(1) as beside,  # encodes pieces while the next are read
    ):
        beside.submit(import_module, "pyarrow.parquet")
        for source in plan.sources:
            beside.submit(getattr, source, "digest")
        pending: deque[Future[None]] = deque()
        kinds: dict[str, bool] = {}
        for source in plan.sources:
            own: set[str] = set()
            for frame in step_rows(source, settings, notes, own, plain=plain):
                if len(plan.sources) > 1 and "source_file" not in frame.columns:
                    frame = frame.with_columns(pl.lit(source.name).alias("source_file"))
                rows += frame.height
                schema = schema or frame.schema
                if plan.target.format == "jsonl" and own & set(frame.columns):
                    _wait(pending, 0)
                    for line in _lines(frame, own):
                        writer.line(line)
                    continue
                if plan.target.format != "jsonl":
                    frame = _fitted(frame, schema, source)
                    if len(plan.sources) > 1:
                        _refuse_mixed(frame, own, kinds, source)
                pending.append(beside.submit(writer.write, frame))
                _wait(pending, _AHEAD)
            json_columns |= own
        _wait(pending, 0)
        refuse_changed(stamps)
        writer.finish(_metadata(plan, settings, notes), _more(json_columns))
    done.rows += rows
    done.columns = list(schema or ())


def _wait(pending: "deque[Future[None]]", most: int) -> None:
    """Until no more than `most` pieces wait to be written."""
    while len(pending) > most:
        pending.popleft().result()


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


def _refuse_mixed(
    frame: pl.DataFrame, documents: set[str], kinds: dict[str, bool], source: Source
) -> None:
    """Raises OutputError for a column of JSON documents that was plain text before, or the other
    way round; `kinds` are what columns were so far."""
    for name in frame.columns:
        if frame[name].null_count() == frame.height:
            continue
        if kinds.setdefault(name, name in documents) != (name in documents):
            raise _differing(source)


def _differing(source: Source) -> OutputError:
    return OutputError(
        "its columns or their types differ from those of the first input",
        source.name,
        "write one output per input: use -o FOLDER/, or --to jsonl",
    )
