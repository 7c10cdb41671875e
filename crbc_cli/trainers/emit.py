"""The credit table re-keyed as a trainer identifies its rows.

An emitted table has the trainer's key columns, then `group_id, rollout_id, step` as in the credit
table, `advantage` in float32 with its nulls, `reason`, and where the log has them
`response_start, response_len`, the tokens of the row's response that belong to the step. Keys
(with the step) are unique: of rows that are copies of each other the first is kept.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from crbc_cli.engine.output import OutputPlan, one_schema
from crbc_cli.engine.sink import Sinks
from crbc_cli.errors import ColumnError, IdentityError, OptionError, OutputError
from crbc_cli.logs.columns import Field, resolve_column
from crbc_cli.logs.read import available_columns
from crbc_cli.logs.sources import Source
from crbc_cli.logs.write import Format, write_table
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.tables import METHOD_NUMBERS
from crbc_cli.trainers.targets import MADE_OF, Key, Target, target_named
from crbc_cli.trainers.tensors import require_torch, write_vectors

__all__ = ["Emission", "emitted_sinks"]

_SPAN = ("response_start", "response_len")
_EXTRA = "emit:"
_WITHIN = "emit within:"


@dataclass(frozen=True)
class Emission:
    """What is emitted, and where each key comes from.

    Attributes:
      name: as typed after `--emit`.
      target: the trainer, or None for plain vectors.
      column: the number that is emitted; once resolved, a column of the credit table.
      mapped: key -> column that `--map` names for it.
      within: columns that tell rollouts apart beside group and rollout id: `source_file`, and those
        of --key.
      columns: once resolved, key -> the log's column it is read from; keys made of columns of the
        credit table are absent.
    """

    name: str
    target: Target | None
    column: str
    mapped: Mapping[str, str]
    within: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(
        cls, name: str, column: str, settings: Settings
    ) -> tuple["Emission | None", Settings]:
        """The emission if there is one, and the settings without `--map` entries for its keys.

        Raises:
          OptionError: no such target, a column without a target, or `.pt` without torch.
        """
        if not name:
            if column:
                raise OptionError("--emit-column needs --emit", todo="add --emit TRAINER")
            return None, settings
        target = target_named(name)
        if name == "pt":
            require_torch("--emit pt")
        own = target.key_names if target is not None else ()
        mapped = {k: v for k, v in settings.log.column_map.items() if k in own}
        rest = tuple(e for e in settings.log.map if e.partition("=")[0] not in mapped)
        log = replace(settings.log, map=rest)
        keys = tuple(log.column_map.get(name, name) for name in log.key)
        within = (() if log.spanning_rollouts else ("source_file",)) + keys
        return cls(name, target, column, mapped, within), replace(settings, log=log)

    @property
    def kind(self) -> str:
        """What follows the input's stem in the name of an output beside it."""
        return ".credit" if self.target is None else f".credit.{self.name}"

    @property
    def vectors(self) -> Format | None:
        """Format of plain vectors; None for a table."""
        return None if self.target is not None else self.name  # type: ignore[return-value]

    def refuse(self, to: str | None, shape: Mapping[str, Any]) -> None:
        """Raises OptionError for options that shape a credit table."""
        given = [f"--{name.replace('_', '-')}" for name, value in shape.items() if value]
        if self.target is None and to is not None:
            given.append("--to")
        if given:
            raise OptionError(
                f"{given[0]} does not go with --emit {self.name}", todo="leave it out"
            )

    def resolved(
        self, sources: Sequence[Source], labels: Sequence[str], notes: Notes
    ) -> "Emission":
        """With the number and the columns chosen, and said.

        Args:
          sources: inputs.
          labels: labels of the methods that are computed.
          notes: told where each key comes from.
        Raises:
          OptionError: no such number, or several methods and no choice among them.
          ColumnError: no input has a column for a key that nothing else can stand in for.
        """
        have = list(dict.fromkeys(c for source in sources for c in available_columns(source)))
        columns: dict[str, str] = {}
        for key in self.target.keys if self.target is not None else ():
            column = self.mapped.get(key.name) or next((c for c in key.columns if c in have), "")
            if column and resolve_column(column, have) is not None:
                columns[key.name] = column
            elif column or not key.otherwise:
                raise self._missing(key, column or key.columns[0], sources[0], have)
        if self.target is not None:
            keys = "; ".join(
                f"{key.name} from "
                f"{columns.get(key.name) or MADE_OF.get(key.otherwise, key.otherwise)}"
                for key in self.target.keys
            )
            notes.say("emitted_keys", f"--emit {self.name}: {keys}")
        return replace(self, column=_number(self.column, labels), columns=columns)

    def _missing(self, key: Key, column: str, source: Source, have: Collection[str]) -> ColumnError:
        shown = ", ".join(list(have)[:12]) + (", …" if len(have) > 12 else "")
        return ColumnError(
            f"has no column {column} for {self.name}'s {key.name}, {key.meaning} "
            f"(columns: {shown or 'none'})",
            source.name,
            f"log it, or name it with --map {key.name}=COLUMN",
        )

    @property
    def fields(self) -> list[Field]:
        """What must be read beside the step table."""
        if self.target is None:
            return []
        keys = [Field(_EXTRA + key, column, "scalar", True) for key, column in self.columns.items()]
        if any(k.otherwise == "position" and k.name not in self.columns for k in self.target.keys):
            told = [name for name in self.within if name != "source_file"]
            keys += [Field(_WITHIN + name, name, "label") for name in told]
        return keys + [Field(_EXTRA + name, name, "number") for name in _SPAN]

    def echo(self) -> dict[str, Any]:
        """For an output's metadata."""
        return {"target": self.name, "column": self.column, "keys": dict(self.columns)}

    def table(self, credit: pl.DataFrame, extra: pl.DataFrame) -> pl.DataFrame:
        """Emitted rows of some credit rows, copies among them.

        Args:
          credit: credit table.
          extra: what `fields` read, row-aligned with it.
        Returns:
          `source_file`, `source_row`, then the columns of the emitted table.
        Raises:
          IdentityError: a key is null.
          OutputError: a number that float32 cannot hold.
        """
        numbers = [*credit.select("group_id", "rollout_id", "step"), _narrow(credit, self.column)]
        place = credit.select("source_file", "source_row")
        keys = [self._key(key, credit, extra) for key in (self.target.keys if self.target else ())]
        for key in keys:
            if key.null_count():
                raise IdentityError(
                    f"{key.name} is null",
                    _place(credit, key.is_null().arg_true()[0]),
                    "every row needs the trainer's identity",
                )
        spans = [
            extra[_EXTRA + name].cast(pl.Int64).alias(name)
            for name in _SPAN
            if _EXTRA + name in extra.columns
        ]
        return pl.DataFrame([*place, *keys, *numbers, credit["reason"], *spans])

    def _key(self, key: Key, credit: pl.DataFrame, extra: pl.DataFrame) -> pl.Series:
        if key.name in self.columns:
            return extra[_EXTRA + key.name].alias(key.name)
        if key.otherwise == "position":
            told = extra.select(pl.selectors.starts_with(_WITHIN))
            files = ["source_file"] if "source_file" in self.within else []
            rollout = [*files, "group_id", "rollout_id", *told.columns]
            made = pl.col("step").rank("dense").over(rollout).cast(pl.Int64) - 1
            credit = pl.concat([credit, told], how="horizontal")
        elif key.otherwise == "group_id_rollout_id_step":
            made = pl.concat_str("group_id", "rollout_id", "step", separator="_")
        else:
            made = pl.col(key.otherwise)
        return credit.select(made.alias(key.name)).to_series()

    def whole(self, tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The rows of one output, without the copies among them.

        Raises:
          IdentityError: two rows that are no copies of each other have the same key and step.
        """
        rows = tables[0] if len(tables) == 1 else pl.concat(tables, how="diagonal_relaxed")
        rows = rows.filter(pl.col("reason").ne_missing("duplicate"))
        if self.target is None:
            return rows
        identity = [*self.target.key_names, "step"]
        again = rows.filter(~pl.struct(identity).is_first_distinct())
        if again.height:
            first = again.row(0, named=True)
            raise IdentityError(
                f"{', '.join(f'{name} {first[name]}' for name in identity)} occurs more than "
                "once, so credit cannot find its row",
                _place(again, 0),
                "name the trainer's own identity with --map KEY=COLUMN",
            )
        return rows.drop("source_file", "source_row")


def emitted_sinks(emission: Emission) -> Sinks:
    """Sinks for tables of `Emission.table`; an output is written when its rows are all there.

    They raise IdentityError and OutputError as `Emission.whole` and `crbc_cli.logs.write` do, and
    OptionError where rows of several inputs would go into one file of vectors.
    """

    @contextmanager
    def opened(plan: OutputPlan, schema: pl.Schema | None) -> Iterator[_Collected]:
        del schema
        yield _Collected(emission, plan)

    return opened


class _Collected:
    def __init__(self, emission: Emission, plan: OutputPlan) -> None:
        self._emission = emission
        self._plan = plan
        self._tables: dict[Source, list[pl.DataFrame]] = {source: [] for source in plan.sources}

    def write(self, source: Source, table: pl.DataFrame) -> None:
        self._tables[source].append(table)

    def finish(self, metadata: Mapping[str, Any]) -> None:
        emission, plan = self._emission, self._plan
        given = [pl.concat(tables) for tables in self._tables.values() if tables]
        if emission.target is not None:
            write_table([emission.whole(one_schema(given, plan))], plan.target, metadata)
        elif len(self._tables) > 1:
            raise OptionError(
                f"--emit {emission.name} holds the rows of one input",
                todo="leave -o away, or use -o FOLDER/",
            )
        else:
            write_vectors(emission.whole(given), plan.target, metadata)


def _number(column: str, labels: Sequence[str]) -> str:
    """Name in the credit table of the number that is emitted."""
    if len(labels) == 1:
        known = list(METHOD_NUMBERS)
    else:
        known = [f"{label}_{number}" for label in labels for number in METHOD_NUMBERS]
        if not column:
            options = ", ".join(f"{label}_advantage" for label in labels)
            raise OptionError(
                "--emit writes one number per row, but there are several methods",
                todo=f"choose it with --emit-column, one of {options}",
            )
    column = column or "advantage"
    if column not in known:
        raise OptionError(
            f"--emit-column {column!r} is not computed", todo=f"use one of {', '.join(known)}"
        )
    return column


def _narrow(credit: pl.DataFrame, column: str) -> pl.Series:
    narrow = credit[column].cast(pl.Float32).alias("advantage")
    lost = narrow.is_infinite().fill_null(False).arg_true()
    if len(lost):
        raise OutputError(
            f"{column} is {credit[column][lost[0]]}, which float32 cannot hold",
            _place(credit, lost[0]),
            "lower the weights or the reward",
        )
    return narrow


def _place(rows: pl.DataFrame, row: int) -> str:
    return f"{rows['source_file'][row]} row {rows['source_row'][row]}"
