"""Inputs -> one frame of compact rows: ids, step, keys and the few numbers the run needs."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crbc_cli.anchors.choose import SAMPLE_ROWS, choose_rules
from crbc_cli.anchors.keys import Keys, keyed, text_of
from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.anchors.values import VIEWS
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.joining import concatenated
from crbc_cli.errors import ColumnError, OptionError, OutcomeError
from crbc_cli.logs.batch import Batch
from crbc_cli.logs.columns import Field, conform, refuse_null
from crbc_cli.logs.formats.jsonl import LineReport
from crbc_cli.logs.formats.parquet import polars_errors
from crbc_cli.logs.missing import missing_columns
from crbc_cli.logs.read import read
from crbc_cli.logs.sources import Source
from crbc_cli.logs.tolerated import tell_report
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.rollouts.inference import START, Before
from crbc_cli.tables import STEP_COLUMNS

__all__ = [
    "Loaded",
    "Reading",
    "empty_rows",
    "identity_fields",
    "keyed_batches",
    "load",
    "load_batch",
    "needed_fields",
    "refuse_missing",
    "rules_for",
    "sample_texts",
]

_ROLES = {column.name: column.role for column in STEP_COLUMNS}
_OVER_ROWS = re.compile(
    r"\b(sum|min|max|avg|mean|median|mode|count|first|last|std\w*|var\w*|quantile\w*|corr|covar\w*"
    r"|rank|row_number|lag|lead|array_agg|string_agg|listagg)[\"`]?\s*\(",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Loaded:
    """Rows of one or more inputs.

    Attributes:
      frame: `source` (UInt32, index into sources), `source_row`, `group_id`, `rollout_id`,
        `step`, `action_key`, the columns anchors are made of (`crbc_cli.anchors.keys`), and what
        the settings ask for.
      sources: the inputs.
      rules: what makes up an anchor.
      notes: what was tolerated or inferred so far.
      extra: columns read for one report alone, row-aligned with `frame`; they identify nothing.
      before: what of the only input stands before these rows.
    """

    frame: pl.DataFrame
    sources: Sequence[Source]
    rules: RuleFile
    notes: Notes
    extra: pl.DataFrame
    before: Before = START

    def place(self, row: int) -> str:
        """`file:line` or `file row n` of a row."""
        source: int = self.frame["source"][row]
        return self.sources[source].where(self.frame["source_row"][row])


def needed_fields(
    settings: Settings, rules: RuleFile, *, following: bool = False, anchors: bool = True
) -> list[Field]:
    """What must be read, and under which name, for these settings.

    Args:
      settings: all options.
      rules: what makes up an anchor.
      following: also the observation after each row.
      anchors: whether the log must have what anchors and actions are made of.

    Raises:
      OptionError: --map names something that is not a column of the step table.
    """
    renamed = settings.log.column_map
    unknown = sorted(set(renamed) - set(_ROLES))
    if unknown:
        raise OptionError(
            f"--map {unknown[0]}=… names no step-table column", todo=f"known: {', '.join(_ROLES)}"
        )

    def column(name: str) -> str:
        return renamed.get(name, name)

    fields = identity_fields(settings, column)
    for i, name in enumerate(settings.anchor.anchor):
        name = "messages" if name in VIEWS else name
        fields.append(Field(f"anchor:{i}", column(name), "value", anchors))
        if following:
            fields.append(Field(f"next:{i}", column(f"next_{name}"), "value"))
    fields.append(Field("action", column(settings.anchor.action), "value", anchors))
    fields += [
        Field(f"column:{name}", column(name), "value", required and anchors)
        for name, required in rules.columns
    ]
    if settings.outcome.success_when:
        fields += [
            Field(f"rule:{name}", column(name), "scalar", True)
            for name in _rule_columns(settings.outcome.success_when)
        ]
    else:
        fields.append(Field("success", column("success"), "flag", True))
    needs_reward = (
        settings.group_advantage.reward in ("sum", "last") or settings.credit.intermediate_rewards
    )
    fields.append(
        Field("reward", column("reward"), "number", needs_reward, lenient=not needs_reward)
    )
    fields += [Field(name, column(name), "flag") for name in ("done", "truncated")]
    needs_valid = settings.group_advantage.invalid_penalty != "none"
    valid = column("is_action_valid")
    fields.append(Field("is_action_valid", valid, "flag", needs_valid, lenient=not needs_valid))
    for name in {settings.group_advantage.reward, settings.outcome.boundary}:
        if name not in ("outcome", "sum", "last"):
            fields.append(Field(f"number:{name}", column(name), "number", True))
    return fields


def identity_fields(settings: Settings, column: Callable[[str], str]) -> list[Field]:
    """What tells groups, rollouts and steps apart; `column` names each in the log."""
    log = settings.log
    fields: list[Field] = []
    if log.group_by:
        fields += [Field(f"by:{name}", column(name), "label", True) for name in log.group_by]
    elif not log.group_stride:
        fields.append(Field("group_id", column("group_id"), "id", True))
    else:
        fields.append(Field("prompt", column("prompt"), "label"))
    fields += [Field(f"key:{name}", column(name), "scalar", True) for name in log.key]
    fields.append(Field("rollout_id", column("rollout_id"), "id", not log.infers_groups))
    if log.order_by == "step":
        fields.append(Field("step", column("step"), "integer", not log.infers_groups))
    return fields


def _rule_columns(expression: str) -> list[str]:
    """The columns of a --success-when rule, which judges one row at a time."""
    flag = f"--success-when {expression!r}"
    todo = 'for example --success-when "reward >= 1"'
    try:
        names = pl.sql_expr(expression).meta.root_names()
    except (pl.exceptions.PolarsError, pl.exceptions.SQLInterfaceError) as error:
        raise OptionError(
            f"{flag} cannot be parsed ({str(error).strip().splitlines()[0]})", todo=todo
        ) from error
    over_rows = _OVER_ROWS.search(re.sub(r"'[^']*'", "", expression))
    if over_rows:
        raise OptionError(
            f"{flag} uses {over_rows[1]}, but a rule sees one row, the rollout's last",
            todo=todo,
        )
    if not names:
        raise OptionError(f"{flag} names no column", todo=todo)
    return sorted(set(names))


def load(
    sources: Sequence[Source],
    settings: Settings,
    clock: Clock,
    notes: Notes,
    *,
    rules: RuleFile | None = None,
    following: bool = False,
    anchors: bool = True,
    anchor_id: bool = False,
    lengths: bool = False,
    extra: Sequence[Field] = (),
) -> Loaded:
    """Reads and keys all rows of `sources`.

    Args:
      sources: inputs, in order.
      settings: all options.
      clock: the stage "read" is added to.
      notes: told about torn and skipped lines.
      rules: what makes up an anchor; by default what the settings name.
      following: also read the observation after each row; `--truncated bootstrap` always does.
      anchors: the log must have what anchors and actions are made of; without, a row that lacks
        it has no anchor.
      anchor_id: also compute content digests.
      lengths: also give each anchor's length in bytes.
      extra: columns for `Loaded.extra`, where the inputs have them.
    Raises:
      InputError and its kin: see `crbc_cli.logs`.
    """
    rules = rules or rules_for(sources, settings, notes)
    reading = Reading.of(
        settings,
        rules,
        following=following,
        anchors=anchors,
        anchor_id=anchor_id,
        lengths=lengths,
        extra=extra,
    )
    with clock("read"):
        frames = [_load_one(source, i, reading, notes) for i, source in enumerate(sources)]
        frame = concatenated(frames, [source.name for source in sources])
    clock.rows += frame.height
    apart = [name for name in reading.extra if name in frame.columns]
    return Loaded(frame.drop(apart), sources, rules, notes, frame.select(apart))


@dataclass(frozen=True)
class Reading:
    """What is read of each row, and how its values become keys."""

    fields: Sequence[Field]
    keys: Keys
    skip_bad_lines: bool
    extra: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        settings: Settings,
        rules: RuleFile,
        *,
        following: bool = False,
        anchors: bool = True,
        anchor_id: bool = False,
        lengths: bool = False,
        extra: Sequence[Field] = (),
    ) -> "Reading":
        """Arguments as those of `load`."""
        following = following or settings.outcome.truncated == "bootstrap"
        keys = Keys.build(
            settings.anchor, rules, following=following, anchor_id=anchor_id, lengths=lengths
        )
        fields = needed_fields(settings, rules, following=following, anchors=anchors)
        names = [field.name for field in extra]
        return cls([*fields, *extra], keys, settings.log.skip_bad_lines, names)


def rules_for(sources: Sequence[Source], settings: Settings, notes: Notes) -> RuleFile:
    """The anchor rules that the settings name; `auto` looks at the first rows of each input.

    Raises:
      OptionError: see `crbc_cli.anchors.choose`.
    """
    sample = sample_texts(sources, settings) if settings.anchor.preset == "auto" else []
    return choose_rules(settings.anchor, sample, notes)


def sample_texts(sources: Sequence[Source], settings: Settings) -> list[pl.DataFrame]:
    """`observation` and `action` of the first rows of each input that has both, as text."""
    sample = []
    renamed = settings.log.column_map
    first = "messages" if settings.anchor.anchor[0] in VIEWS else settings.anchor.anchor[0]
    names = {"observation": first, "action": settings.anchor.action}
    fields = [Field(k, renamed.get(v, v), "value", True) for k, v in names.items()]
    for source in sources:
        batch = next(read(source, fields, skip_bad_lines=True, report=LineReport()), None)
        if batch is not None and set(batch.kinds) == set(names):
            texts = {name: text_of(name, kind) for name, kind in batch.kinds.items()}
            with polars_errors(source.name):
                sample.append(batch.frame.head(SAMPLE_ROWS).select(**texts).collect())
    return sample


def _load_one(source: Source, index: int, reading: Reading, notes: Notes) -> pl.DataFrame:
    present: set[str] = set()
    frames = [*keyed_batches(source, index, reading, notes, present)]
    frame = concatenated(frames, [source.name])
    if frame.height or frame.width:
        refuse_missing(source, reading, present)
    if not frame.height:
        notes.say("empty", f"{source.name} holds no rows", warning=True)
        return empty_rows(reading, frame)
    for f in reading.fields:
        if f.required and f.role in ("id", "integer", "label"):
            refuse_null(frame[f.name], f, lambda i: source.where(frame["source_row"][i]))
    return frame


def keyed_batches(
    source: Source, index: int, reading: Reading, notes: Notes, present: set[str]
) -> Iterator[pl.DataFrame]:
    """Compact rows of an input, in order, a batch at a time.

    Fields that a batch does not have are left out of it; `present` is told those it has. `index`
    becomes the column `source`.
    """
    report = LineReport()
    for batch in read(source, reading.fields, skip_bad_lines=reading.skip_bad_lines, report=report):
        present.update(batch.frame.collect_schema())
        yield load_batch(source, index, batch, reading)
    tell_report(source.name, report, notes)


def refuse_missing(source: Source, reading: Reading, present: Collection[str]) -> None:
    """Raises ColumnError for required fields that are not `present` in an input."""
    missing = [f for f in reading.fields if f.required and f.name not in present]
    if missing:
        raise missing_columns(source, missing)


def load_batch(source: Source, index: int, batch: Batch, reading: Reading) -> pl.DataFrame:
    """Keys and columns of one batch; values that no row of it has are null."""
    keys, by_name = reading.keys, {f.name: f for f in reading.fields}
    present = batch.frame.collect_schema()
    absent = [name for name in (*keys.anchor, "action") if name not in present]
    values = batch.frame.with_columns(pl.lit(None, pl.String).alias(name) for name in absent)
    with polars_errors(source.name):
        frame = keyed(values, {**batch.kinds, **dict.fromkeys(absent, "text")}, keys).collect()
    columns = []
    for series in frame.get_columns():
        field = by_name.get(series.name)
        try:
            columns.append(series if field is None else conform(series, field, batch.where))
        except (ColumnError, OutcomeError):
            if field is None or not field.lenient:
                raise
    rows = batch.rows
    if rows is None:
        rows = pl.Series(np.arange(batch.first_row, batch.first_row + frame.height))
    number = pl.repeat(index, frame.height, dtype=pl.UInt32, eager=True).alias("source")
    return pl.DataFrame([rows.alias("source_row"), *columns, number])


def empty_rows(reading: Reading, frame: pl.DataFrame) -> pl.DataFrame:
    """No rows, with every column; types of ids that the input names are kept."""
    dtypes = {"flag": pl.Boolean, "number": pl.Float64, "id": pl.String, "integer": pl.Int64}
    schema: dict[str, Any] = {
        f.name: dtypes.get(f.role, pl.String) for f in reading.fields if f.role != "value"
    }
    schema |= {
        "source_row": pl.Int64,
        "source": pl.UInt32,
        "reply_key": pl.UInt64,
        "action_key": pl.UInt64,
    }
    if reading.keys.anchor_id:
        schema["reply_digest"] = pl.String
    named = {name: dtype for name, dtype in frame.schema.items() if dtype != pl.Null}
    return pl.DataFrame(schema=schema | named)
