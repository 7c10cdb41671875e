"""What tells JSON lines that a quick way may read from those that need the careful one.

A log is plain if it is strict JSON, one object a line with the same members, each of one type. Its
first lines tell members and types, and polars refuses other syntax, numbers and booleans. What it
is lenient about, but for blank lines, shows in what stands in the file:

    other or absent members  members that are not rows times columns, nulls that nobody logged
    no text in a text column fewer strings than the text columns have values
    a space before a colon   more quotes than those members and strings have
    a lone surrogate         becomes a zero character
"""

import re
from dataclasses import dataclass
from typing import Any

from crbc_cli.errors import InputError
from crbc_cli.logs.columns import Field, ReadRole
from crbc_cli.logs.formats.lines import LineReport, decode_lines
from crbc_cli.logs.sources import Source
from crbc_cli.tables import STEP_COLUMNS

__all__ = ["STEP_ROLES", "Counts", "NotPlainError", "plain_fields"]

_SAMPLE_BYTES = 1 << 18
_QUOTE, _COLON, _SPACE, _BACKSLASH, _NUMBER, _NULL = b'": \\un'
_NAME = re.compile(r"(?!\*$|\^.*\$$)[ -!#-\-/-\[\]-~]+")
"""ASCII without quotes, backslashes, dots and control characters, and no pattern of polars."""
_KEY_END = _COLON << 8 | _QUOTE
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
    """What stands in a file of JSON lines.

    Attributes:
      members, strings, quotes: numbers of members, of those that are strings, and of the quotes
        around names and strings.
      nulls: of each known member, how many of it are null.
      escapes: whether a character is written as its number.

    A key is what `":` follows, and a string that is a member's value stands behind that. Members
    that are written in another way have quotes too.
    """

    nulls: dict[str, int]
    members: int = 0
    strings: int = 0
    quotes: int = 0
    escapes: bool = False

    def add(self, block: bytes) -> None:
        """Counts in whole lines."""
        import numpy as np

        if b"\\" in block:
            block = block.replace(b"\\\\", b"__")
            text = np.frombuffer(block, np.uint8)
            after = text.take(np.flatnonzero(text == _BACKSLASH) + 1, mode="clip")
            self.escapes = self.escapes or bool((after == _NUMBER).any())
            block = block.replace(b'\\"', b"__")
        text = np.frombuffer(block, np.uint8)
        self.quotes += int(np.count_nonzero(text == _QUOTE))
        for odd in (0, 1):
            pairs = text[odd : odd + (len(text) - odd) // 2 * 2].view("<u2")
            ends = np.flatnonzero(pairs == _KEY_END) * 2 + odd
            self.members += len(ends)
            first, second = (text.take(ends + step, mode="clip") for step in (2, 3))
            strings = (first == _QUOTE) | ((first == _SPACE) & (second == _QUOTE))
            self.strings += int(np.count_nonzero(strings))
            null = ends[(first == _NULL) | ((first == _SPACE) & (second == _NULL))]
            for name in self.nulls if len(null) else ():
                key = np.frombuffer(f'"{name}'.encode(), np.uint8)
                before = text.take(null[:, None] + np.arange(-len(key), 0), mode="clip")
                named = (before == key).all(axis=1)
                self.nulls[name] += int(np.count_nonzero(named))
                null = null[~named]

    def are_those_of(self, members: int, strings: int) -> bool:
        """Whether there are so many members and strings, and nothing else."""
        quotes = 2 * (members + strings)
        return (self.members, self.strings, self.quotes) == (members, strings, quotes)
