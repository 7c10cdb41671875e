"""Finding the one group and the one step a user named."""

import difflib
import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import OptionError
from crbc_cli.logs.sources import Source

__all__ = ["GroupSearch", "find_step", "sources_named"]


def sources_named(sources: Sequence[Source], name: str | None) -> Sequence[Source]:
    """The input called `name`, or all without a name.

    Raises:
      OptionError: no input is called that.
    """
    if name is None:
        return sources
    named = [source for source in sources if source.name == name]
    if not named:
        raise OptionError(
            f"--file {name!r} is no input", todo=_hint(name, [s.name for s in sources])
        )
    return named


class GroupSearch:
    """Looks for one group through the logs of a run; ids match exactly, integers by their digits.

    Args:
      group: group id as typed, or None for a log's only group.
      key_values: COLUMN=VALUE of --key columns, needed where one id occurs with several values.
    Raises:
      OptionError: a key value that is not COLUMN=VALUE.
    """

    def __init__(self, group: str | None, key_values: Sequence[str] = ()) -> None:
        self._group = group
        self._key: dict[str, str] = {}
        for entry in key_values:
            column, equals, value = entry.partition("=")
            if not (equals and column):
                raise OptionError(
                    f"--key-value {entry!r} is not COLUMN=VALUE",
                    todo="for example --key-value global_step=100",
                )
            self._key[column] = value
        self._ids: dict[str, None] = {}
        self._found: Prepared | None = None
        self._places: list[str] = []

    def look(self, log: Prepared) -> None:
        """Keeps the groups of `log` that match.

        Raises:
          OptionError: a key value names a column that --key does not.
        """
        known = [c.removeprefix("key:") for c in log.frame.columns if c.startswith("key:")]
        odd = next((column for column in self._key if column not in known), None)
        if odd is not None:
            raise OptionError(
                f"--key-value {odd}=… names no --key column", todo=f"add it with --key {odd}"
            )
        _, first = np.unique(log.rollouts.group_of_row, return_index=True)
        names = log.frame[first].select(
            "source", pl.col("group_id", *(f"key:{column}" for column in known)).cast(pl.String)
        )
        wanted = {f"key:{column}": value for column, value in self._key.items()}
        if self._group is not None:
            wanted["group_id"] = self._group
        matches = pl.repeat(True, names.height, eager=True)
        for column, value in wanted.items():
            matches &= (names[column] == value).fill_null(False)
        self._ids |= dict.fromkeys(names["group_id"].to_list())
        for group in matches.arg_true().to_list():
            name = names.row(group, named=True)
            keys = ", ".join(f"{column}={name[f'key:{column}']}" for column in known)
            place = log.loaded.sources[name["source"]].name
            self._places.append(f"{place} ({keys})" if keys else place)
            self._found = self._found or log.only(group)

    def found(self) -> Prepared:
        """The log of the one group.

        Raises:
          OptionError: none or several match; close ids are named.
        """
        if self._found is not None and len(self._places) == 1:
            return self._found
        ids = list(self._ids)
        if not ids:
            raise OptionError("the log holds no rows, so there is no group to explain")
        if self._group is None and len(ids) > 1:
            raise OptionError(
                f"the log has {len(ids)} groups", todo=f"choose one with --group: {_some(ids)}"
            )
        if self._found is None:
            what = "no group" + ("" if self._group is None else f" {self._group!r}")
            raise OptionError(
                f"{what} with these key values" if self._key else what,
                todo=_hint(self._group or "", ids),
            )
        raise OptionError(
            f"group {self._group or ids[0]!r} occurs {len(self._places)} times: "
            f"{_some(self._places)}",
            todo="choose with --file NAME or --key-value COLUMN=VALUE",
        )


def find_step(log: Prepared, step: str, file: str | None) -> int:
    """Canonical position of the row called ROLLOUT:STEP; a rollout id may hold colons itself.

    Args:
      log: one group.
      step: as typed.
      file: the rollout's file, where rollouts of several files have that id.
    Raises:
      OptionError: no such rollout or step, or several.
    """
    name, colon, number = step.rpartition(":")
    if not (colon and re.fullmatch(r"\s*-?[0-9]{1,20}\s*", number)):
        raise OptionError(
            f"--step {step!r} is not ROLLOUT:STEP", todo="for example --step 3:0 or --step t0:12"
        )
    rollouts = log.rollouts
    first = log.frame[rollouts.first]
    ids = first["rollout_id"].cast(pl.String)
    matches = ids == name
    if file is not None:
        files = pl.Series([s.name for s in log.loaded.sources]).gather(first["source"])
        matches &= files == file
    chosen = matches.arg_true().to_list()
    if len(chosen) != 1:
        if chosen:
            raise OptionError(
                f"rollout {name!r} occurs in {len(chosen)} files", todo="choose with --file NAME"
            )
        raise OptionError(f"the group has no rollout {name!r}", todo=_hint(name, ids.to_list()))
    begin, end = rollouts.offsets[chosen[0]], rollouts.offsets[chosen[0] + 1]
    steps = rollouts.step[begin:end]
    at = np.flatnonzero(steps == int(number))
    if not len(at):
        raise OptionError(
            f"rollout {name!r} has no step {int(number)}",
            todo=f"its steps run from {steps[0]} to {steps[-1]}",
        )
    return int(begin + at[0])


def _hint(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 3)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {_some(known)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
