"""What a reader of another program's dump is, and how it says what it inferred."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.columns import Field, ReadRole, from_values
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.notes import Notes
from crbc_cli.tables import STEP_COLUMNS

__all__ = ["Format", "Remarks", "ending", "required", "step_numbers", "step_table", "unwrapped"]

_ROLES: dict[str, ReadRole] = {
    c.name: "value" if c.role == "text" or c.role == "any" else c.role for c in STEP_COLUMNS
}
_EMPTY: dict[ReadRole, Any] = {
    "id": pl.Null, "number": pl.Float64, "flag": pl.Boolean, "integer": pl.Int64
}  # fmt: skip
"""Types of a table without rows, by role; others are strings."""

_NUMBERS = (type(None), bool, int, float, str)


@dataclass
class Remarks:
    """What a reader inferred, said on stderr and stored in outputs.

    Attributes:
      name: the input.
      notes: where it is said.
      json_columns: columns that hold one JSON document per row, as text.
      outcome_rule: what --success-when could be, where no outcome is logged.
    """

    name: str
    notes: Notes
    json_columns: set[str] = field(default_factory=set)
    outcome_rule: str = ""

    def say_no_outcome(self, rule: str, where: str = "") -> None:
        """No field says how a rollout ended; `rule` does, `where` that holds."""
        self.outcome_rule = rule
        self.say("outcome", f'no outcome is logged: name it, as --success-when "{rule}"{where}')

    def say(self, code: str, text: str, *, warning: bool = False) -> None:
        """One remark about the input; the text names what and how many."""
        self.notes.say(code, f"{self.name}: {text}", warning=warning)


@dataclass(frozen=True)
class Format:
    """One on-disk format of another program.

    Attributes:
      name: what `--from` takes.
      title: for people.
      writer: program and version whose writer was read.
      recognises: whether a dump is one, told from its first record, columns, names or path; cheap,
        and never raises.
      read: step table of a dump, rows in file order: columns of `crbc_cli.tables.STEP_COLUMNS`,
        the trainer's own identity columns, and `source_record` (Int64, record the row came from).
      group, rollout, step, state: where each comes from, for the table of formats.
      lacks: exactly what is missing; the format is read only under an explicit grouping.
      only_groups: groups alone are missing, so that an explicit grouping is enough for a closure.
      hook: adapter whose hook logs the rest; see `crbc adapter NAME --hook`.
      whole_folder: a folder is one dump.
    """

    name: str
    title: str
    writer: str
    recognises: Callable[[Dump], bool]
    read: Callable[[Dump, Remarks], pl.DataFrame]
    group: str = ""
    rollout: str = ""
    step: str = ""
    state: str = ""
    lacks: str = ""
    only_groups: bool = False
    hook: str = ""
    whole_folder: bool = False


def step_table(dump: Dump, rows: Sequence[Mapping[str, Any]], remarks: Remarks) -> pl.DataFrame:
    """A table of decoded rows.

    Columns of the step table come first, in its order. A column of strings, of numbers or of
    booleans keeps its type; nested or mixed values become JSON text, which `remarks` is told.

    Args:
      dump: where the rows are from.
      rows: one mapping per step; absent members are null.
      remarks: of this input.
    Raises:
      ColumnError: a value of a type that its column cannot have.
    """
    if not rows:
        return pl.DataFrame(
            schema={name: _EMPTY.get(role, pl.String) for name, role in _ROLES.items()}
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    order = [name for name in _ROLES if name in names]
    order += [name for name in names if name not in _ROLES]
    records = [row.get("source_record", 0) for row in rows]
    columns = []
    for name in order:
        values = [_plain(row.get(name)) for row in rows]
        role = _ROLES.get(name) or ("value" if _is_nested(values) else "scalar")
        series, kind = from_values(
            Field(name, name, role), values, lambda row: dump.where(records[row])
        )
        if kind == "json":
            remarks.json_columns.add(name)
        columns.append(series)
    return pl.DataFrame(columns)


def _is_nested(values: Sequence[Any]) -> bool:
    kinds = set(map(type, values)) - {type(None)}
    numbers = kinds <= {bool} or kinds <= {int, float}
    return not (kinds <= {str} or numbers)


def _plain(value: Any) -> Any:
    """Arrays of a pickle as lists and numbers."""
    return value if isinstance(value, _NUMBERS) else _from_array(value)


def _from_array(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def ending(last: bool, *, success: bool | None, cut: bool) -> dict[str, bool]:
    """End flags of a row.

    Args:
      last: whether it is the rollout's last.
      success: the rollout's outcome; None if the format logs none.
      cut: the rollout was ended by a limit.
    """
    flags = {"done": last and not cut, "truncated": last and cut}
    return flags if success is None else flags | {"success": last and success}


def step_numbers(logged: Sequence[Any]) -> tuple[list[int], bool]:
    """Steps of one rollout from a logged counter, and whether it started again in between, so
    that positions count instead."""
    rising = all(isinstance(n, int) for n in logged) and all(
        a < b for a, b in itertools.pairwise(logged)
    )
    return (list(logged), False) if rising else (list(range(len(logged))), True)


def unwrapped(value: Any) -> Any:
    """A number or text out of arrays and lists of length one; other values as they are."""
    while True:
        if hasattr(value, "tolist"):
            value = value.tolist()
        if not (isinstance(value, list | tuple) and len(value) == 1):
            return value
        value = value[0]


def required(record: Any, name: str, where: str) -> Any:
    """A member that every record of the format has.

    Raises:
      InputError: it is not there.
    """
    if not isinstance(record, Mapping) or name not in record:
        raise InputError(f"has no member {name}", where)
    return record[name]
