"""One input -> pieces of its step table: columns renamed, typed and, where asked for, regrouped."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from crbc_cli.engine.joining import concatenated
from crbc_cli.errors import ColumnError
from crbc_cli.logs.columns import Field, ReadRole, conform
from crbc_cli.logs.missing import missing_columns
from crbc_cli.logs.read import read
from crbc_cli.logs.sources import Source
from crbc_cli.logs.tolerated import tell_report
from crbc_cli.logs.whole import Whole
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.tables import IDENTITY_COLUMNS, STEP_COLUMNS

__all__ = ["step_rows"]

_STRICT = ("id", "integer", "flag")
_LOGGED = "logged_group_id"
_NAMES = [c.name for c in STEP_COLUMNS]


def step_rows(
    source: Source, settings: Settings, notes: Notes, json_columns: set[str], *, plain: bool
) -> Iterator[pl.DataFrame]:
    """One input's rows, a piece at a time, with the step table's columns and types.

    Args:
      source: the input.
      settings: its rows and groups count.
      notes: told what reading tolerated and inferred.
      json_columns: told which columns hold JSON documents.
      plain: JSON lines are read the quick way.
    Raises:
      NotPlainError: they are not plain, which may show after the last piece.
      ColumnError, IdentityError: group_id, rollout_id or step is missing or cannot be one.
    """
    whole = Whole(source, settings.log.skip_bad_lines)
    quick = plain and source.container == "jsonl"
    inferred = _inferred(source, settings, notes) if settings.log.infers_groups else None
    mapped: dict[str, tuple[pl.Series, bool]] = {}
    start = 0
    for frame in whole.plain_frames() if quick else whole.frames():
        json_columns |= whole.json_columns
        frame = _renamed(frame, source, settings, mapped, start)
        json_columns |= {name for name, (_, documents) in mapped.items() if documents}
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
    log has none, as `annotate` has them; the logged group too, if it tells rows apart.

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
    fields.append(Field(_LOGGED, renamed.get("group_id", "group_id"), "label"))
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
    tells = _LOGGED in rows.columns and rows[_LOGGED].fill_null("").n_unique() > 1
    logged, tally = set(rows.columns), Tally()
    rows = rows.with_columns(pl.col("reply_key").hash(), pl.lit(0, pl.UInt32).alias("source"))
    rows = infer_groups(rows, log, source.where, tally)
    if tally.rows_are_rollouts:
        notes.say("rows_are_rollouts", "no rollout_id: each row is one rollout of one step")
    added = sorted({"rollout_id", "step"} - logged)
    return rows.select("group_id", *added, *([_LOGGED] if tells else []))


def _regrouped(frame: pl.DataFrame, inferred: pl.DataFrame) -> pl.DataFrame:
    """The rows with what was inferred; a `group_id` that says something keeps another name."""
    if "group_id" in frame.columns:
        told = _LOGGED in inferred.columns
        frame = frame.rename({"group_id": _LOGGED}) if told else frame.drop("group_id")
    return pl.concat([frame, inferred.drop(_LOGGED, strict=False)], how="horizontal")


def _renamed(
    frame: pl.DataFrame,
    source: Source,
    settings: Settings,
    mapped: dict[str, tuple[pl.Series, bool]],
    start: int,
) -> pl.DataFrame:
    """Columns that --map names under their canonical names.

    Args:
      frame: rows of the source from `start` on.
      mapped: what is no column of its own, such as a member of one: all rows, and whether they are
        JSON documents; filled when it is needed.
    """
    for name, column in settings.log.column_map.items():
        if column in frame.columns:
            frame = frame.drop(name, strict=False).rename({column: name})
            continue
        if name not in mapped:
            mapped[name] = _mapped(source, settings, name, column)
        rows = mapped[name][0].slice(start, frame.height)
        frame = frame.with_columns(rows.alias(name))
    return frame


def _mapped(source: Source, settings: Settings, name: str, column: str) -> tuple[pl.Series, bool]:
    roles = {c.name: c.role for c in STEP_COLUMNS}
    role: Any = roles.get(name, "value")
    role = "value" if role in ("text", "any") else role
    fields = [Field(name, column, role, True)]
    skip = settings.log.skip_bad_lines
    report = Whole(source, skip).report
    batches = read(source, fields, skip_bad_lines=skip, report=report)
    pieces = [(batch.frame.collect(), batch.kinds) for batch in batches]
    found = [(piece[name], kinds) for piece, kinds in pieces if name in piece.columns]
    if len(found) < len(pieces) or not found:
        raise missing_columns(source, fields)
    documents = any(kinds.get(name) == "json" for _, kinds in found)
    return pl.concat([series for series, _ in found]), documents


def _conformed(frame: pl.DataFrame, source: Source, settings: Settings, start: int) -> pl.DataFrame:
    absent = [name for name in IDENTITY_COLUMNS if name not in frame.columns]
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
