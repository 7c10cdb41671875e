"""What tells JSON lines that a quick way may read from those that need the careful one.

A log is plain if it is strict JSON, one object a line, each member of one type. Its first lines
tell members and types; a member that is absent from a line is null there, and one that only later
lines have may hold nothing but null. polars refuses other syntax, numbers and booleans. What it is
lenient about, but for blank lines, shows in what stands in the file:

    other members             more members than the columns have values, nulls apart
    no text in a text column  fewer strings than the text columns have values
    a space before a colon    more quotes than those members and strings have
    spaces behind some colons what stands at a space's distance from the others is no value
    a lone surrogate          becomes a zero character

Of a member that one line has twice, which JSON leaves open, one may count here and the other in
the careful way.
"""

import re
from dataclasses import dataclass
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.columns import Field, ReadRole
from crbc_cli.logs.formats.lines import LineReport, decode_lines
from crbc_cli.logs.sources import Source
from crbc_cli.tables import STEP_COLUMNS

__all__ = ["STEP_ROLES", "Counts", "Held", "NotPlainError", "plain_fields"]

_SAMPLE_BYTES = 1 << 18
_PIECE = 1 << 18  # what a processor's cache holds
_QUOTE, _COLON, _SPACE, _NULL = b'": n'
_NAME = re.compile(r"(?!\*$|\^.*\$$)[ -!#-\-/-\[\]-~]+")
"""ASCII without quotes, backslashes, dots and control characters, and no pattern of polars."""
STEP_ROLES: dict[str, ReadRole] = {
    c.name: "value" if c.role == "text" or c.role == "any" else c.role for c in STEP_COLUMNS
}
"""Column of the step table -> how it is read."""


class NotPlainError(Exception):
    """A log whose members a quick way would lose or change."""


def plain_fields(source: Source) -> dict[Field, set[type]]:
    """Members of a plain log, in file order, and the types of their first values, nulls apart.

    Raises:
      NotPlainError: the first lines are not plain.
    """
    if source.container != "jsonl":
        raise NotPlainError
    types: dict[str, set[type]] = {}
    try:
        lines = decode_lines(source, dict[str, Any], False, LineReport(), _SAMPLE_BYTES)
        for row in next(lines, ([], []))[1]:
            for name, value in row.items():
                types.setdefault(name, set()).update(() if value is None else (type(value),))
    except InputError as error:
        raise NotPlainError from error
    if not types or not all(map(_NAME.fullmatch, types)):
        raise NotPlainError
    fields = {}
    for name, found in types.items():
        role = STEP_ROLES.get(name) or ("value" if found == {str} else "scalar")
        if role == "value" and not found <= {str}:
            raise NotPlainError
        fields[Field(name, name, role)] = found
    return fields


@dataclass
class Counts:
    """What stands in JSON lines.

    Attributes:
      members, strings, nulls, quotes: numbers of members, of those that are strings, of those that
        are null, and of the quotes around names and strings.
      escapes: whether a character is escaped.
      mixed: whether a space stands behind some colons only.

    A key is what `":` follows, and a string that is a member's value stands behind that, with a
    space between them if lines begin so. Members that are written in another way have quotes too.
    """

    members: int = 0
    strings: int = 0
    nulls: int = 0
    quotes: int = 0
    escapes: bool = False
    mixed: bool = False

    def add(self, lines: bytes, *, nulls: bool = True) -> None:
        """Counts in whole lines; nulls where they are asked for."""
        import numpy as np

        if b"\\" in lines:
            self.escapes = True
            lines = lines.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        text = np.frombuffer(lines, np.uint8)
        first = lines.find(b'":')
        value = 3 if lines[first + 2 : first + 3] == b" " else 2
        members, spaced = self.members, 0
        for start in range(0, len(lines), _PIECE):
            size = min(_PIECE, len(lines) - start)
            piece = text[start : start + size + value]
            if len(piece) < size + value:
                piece = np.pad(piece, (0, value))
            quotes = piece == _QUOTE
            self.quotes += int(np.count_nonzero(quotes[:size]))
            ends = quotes[:size] & (piece[1 : size + 1] == _COLON)
            self.members += int(np.count_nonzero(ends))
            if value == 3:  # else a string behind a space is missed, and its quotes are not
                spaced += int(np.count_nonzero(ends & (piece[2 : size + 2] == _SPACE)))
            if nulls:
                null = piece[value : size + value] == _NULL
                self.nulls += int(np.count_nonzero(ends & null))
            ends &= quotes[value : size + value]
            self.strings += int(np.count_nonzero(ends))
        self.mixed |= value == 3 and spaced < self.members - members

    def are_those_of(self, held: "Held") -> bool:
        """Whether nothing else stands there than what columns hold."""
        members = held.values - held.nulls + self.nulls
        found = self.members, self.strings, self.quotes
        return not self.mixed and found == (members, held.texts, 2 * (members + held.texts))


@dataclass
class Held:
    """What columns hold.

    Attributes:
      values: number of rows times columns.
      texts: how many of them are text.
      nulls: how many are null.
    """

    values: int = 0
    texts: int = 0
    nulls: int = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Adds rows.

        Raises:
          NotPlainError: a text begins with a colon, so that its first quote looks like the last one
            of a name.
        """
        self.values += frame.height * frame.width
        for column in frame:
            absent = column.null_count()
            self.nulls += absent
            if column.dtype == pl.String:
                self.texts += frame.height - absent
                # Comparing looks at first characters only, and takes a tenth of the time.
                if column.is_between(pl.lit(":"), pl.lit(";"), closed="left").any():
                    raise NotPlainError
