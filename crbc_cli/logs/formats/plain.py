"""Blocks of plain JSON lines, decoded by polars on all cores.

Most blocks of a log are plain: strict JSON, one object a line, one type a member. For such a block
this gives the columns that the careful decoder (`jsonl.py`) would give, several times faster; for
any other it gives nothing, and the careful decoder says what is wrong. polars is strict about
syntax, UTF-8, numbers and booleans. What it is lenient about is checked here: it writes other
values into text columns as their JSON, and lone surrogates as zero characters.

A few lines of each block tell which members there are and of which type. A member that they do not
show counts as absent while it holds nothing but null. Of a member that one line has twice, which
JSON leaves open, the first counts here and the last in the careful decoder.
"""

import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from crbc_cli.logs.columns import Field, ValueKind

__all__ = ["PlainBlocks", "count_lines"]

# Few long lines take little Python, and the careful decoder skips what nobody needs of them.
_FEWEST_LINES = 256
_SAMPLE_LINES = 8
_SAMPLE_BYTES = 1 << 19
_PATIENCE = 4
_PIECE = 1 << 17

# What polars may have made of another JSON value.
_AMBIGUOUS = r"^(?:[\[{]|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$|(?:true|false)$)"

_TYPES: dict[Any, type] = {
    pl.String: str,
    pl.Boolean: bool,
    pl.Int64: int,
    pl.UInt64: int,
    pl.Float64: float,
}


class PlainBlocks:
    """Decodes the plain blocks of one file; remembers what it saw of its members.

    Args:
      fields: members to read; with dotted paths among them no block is plain.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        self._roles: dict[str, set[str]] = {}
        for f in fields:
            self._roles.setdefault(f.column, set()).add(f.role)
        self._seen: dict[str, set[type]] = {column: set() for column in self._roles}
        self._categories: set[str] = set()
        dotted = any("." in column for column in self._roles)
        self._patience = 0 if dotted else _PATIENCE

    def frame(self, block: bytes, lines: Callable[[], int]) -> pl.DataFrame | None:
        """Columns by field name, as `from_values` gives them; None if the block, of so many lines,
        is not plain."""
        if not self._patience or not _polars_is_strict():
            return None
        some = _first_and_last(block)
        if len(block) * len(some) < _FEWEST_LINES * sum(map(len, some)):
            return None
        shown = self._sample(some)
        columns = None if shown is None else self._columns(block)
        if shown is None or columns is None or columns.height != lines():  # blank lines are no rows
            self._patience -= 1
            return None
        self._patience = _PATIENCE
        shown |= {c.name for c in columns if c.null_count() < columns.height}
        found = [_named(columns[f.column], f) for f in self._fields if f.column in shown]
        return pl.DataFrame(found) if found else pl.DataFrame({"": [None] * columns.height})

    def learn(self, schema: Mapping[str, Any], kinds: Mapping[str, ValueKind]) -> None:
        """Takes note of the columns, by field name, that the careful decoder made of a block."""
        for f in self._fields:
            if f.name in schema:
                kind = dict if kinds.get(f.name) == "json" else _TYPES.get(schema[f.name])
                self._seen[f.column].update({kind} if kind else ())

    def _columns(self, block: bytes) -> pl.DataFrame | None:
        """Columns by member name."""
        dtypes = {column: self._dtype(column) for column in self._roles}
        if None in dtypes.values():
            return None
        frame = _decode(block, dtypes)
        if frame is None:
            return None
        texts = [c for c, dtype in dtypes.items() if dtype == pl.String]
        categories = [c for c, dtype in dtypes.items() if isinstance(dtype, pl.Categorical)]
        if categories:
            frame = frame.with_columns(frame[c].cast(pl.String) for c in categories)
        escapes = b"\\" in block  # or nothing stands for a lone surrogate
        if escapes and _hold_zero(frame, texts + categories):
            return None
        ambiguous = {c for c in _unsure(frame, texts) if frame[c].str.contains(_AMBIGUOUS).any()}
        if ambiguous:
            self._categories |= ambiguous
            return self._columns(block)
        return frame

    def _sample(self, lines: Sequence[bytes]) -> set[str] | None:
        """Members in some lines, types noted; None if a line is odd."""
        try:
            rows = [json.loads(line, object_pairs_hook=_members) for line in lines]
        except (ValueError, RecursionError):
            return None
        if not all(isinstance(row, dict) for row in rows):
            return None
        for row in rows:
            for column in self._roles.keys() & row.keys():
                self._seen[column].add(type(row[column]))
        return self._roles.keys() & set().union(*rows)

    def _dtype(self, column: str) -> Any:
        """What to decode a member as; None if it needs the careful decoder."""
        types, roles = self._seen[column] - {type(None)}, self._roles[column]
        if types <= {int, float} and roles == {"number"}:
            return pl.Float64
        if not types:
            return pl.Null
        if types == {str} and column in self._categories:
            return pl.Categorical(pl.Categories.random())  # strict about strings, not fast
        if types == {str}:
            return pl.String
        if "value" in roles:
            return None
        if types == {bool}:
            return pl.Boolean
        if types == {int}:
            return pl.Int64
        if types <= {int, float} and roles <= {"number", "scalar"}:
            return pl.Float64
        return None


def _named(column: pl.Series, field: Field) -> pl.Series:
    nothing = field.role == "value" and column.dtype == pl.Null
    return (column.cast(pl.String) if nothing else column).alias(field.name)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member occurs twice")
    return members


def _first_and_last(block: bytes) -> list[bytes]:
    """Lines from both ends of a block, no more than fit into the sample; at least the first."""
    stream = io.BytesIO(block)
    lines: list[bytes] = []
    size = 0
    while len(lines) < _SAMPLE_LINES and size < _SAMPLE_BYTES and (line := stream.readline()):
        lines.append(line)
        size += len(line)
    end = len(block)
    for _ in range(_SAMPLE_LINES):
        start = block.rfind(b"\n", max(end - _SAMPLE_BYTES, 0), end - 1) + 1
        if start <= stream.tell():
            break
        lines.append(block[start:end])
        end = start
    return lines


def _decode(block: bytes, dtypes: Mapping[str, Any]) -> pl.DataFrame | None:
    try:
        return pl.read_ndjson(block, schema=dtypes)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None


def count_lines(block: bytes) -> int:
    """Number of lines. Pieces stay in the cache; bytes.count takes several times as long."""
    import numpy as np  # takes as long as decoding a block does, which goes on meanwhile

    text = np.frombuffer(block, np.uint8)
    ends = sum(
        int(np.count_nonzero(text[start : start + _PIECE] == 10))
        for start in range(0, len(text), _PIECE)
    )
    return ends + (not block.endswith(b"\n"))


def _unsure(frame: pl.DataFrame, texts: Sequence[str]) -> list[str]:
    """Columns with a value that may have been no string."""
    if not texts:
        return []
    text = pl.col(texts)
    likely = text.is_in(["true", "false"])
    for first, last in ("-:", "[\\", "{|"):  # comparing is ten times as fast as matching
        likely |= text.is_between(pl.lit(first), pl.lit(last), closed="left")
    return [c for c, hit in zip(texts, frame.select(likely.any()).row(0), strict=True) if hit]


def _hold_zero(frame: pl.DataFrame, texts: Sequence[str]) -> bool:
    """Whether there is a zero character in a column."""
    return any(frame[name].str.contains("\0", literal=True).any() for name in texts)


_LENIENT = (
    ('{"a":5.0}', pl.Int64),
    ('{"a":true}', pl.Int64),
    ('{"a":"5"}', pl.Int64),
    ('{"a":true}', pl.Float64),
    ('{"a":"5"}', pl.Float64),
    ('{"a":1}', pl.Boolean),
    ('{"a":5}', pl.Categorical),
    ('{"a":{}}', pl.Categorical),
    ('{"a":[]}', pl.Categorical),
    ('{"a":true}', pl.Categorical),
    ('{"a":false}', pl.Null),
    ('{"a":1,"b":NaN}', pl.Int64),
    ('{"a":1}{"a":2}', pl.Int64),
    ('{"a":1} x', pl.Int64),
    ('{"a":1', pl.Int64),
    ("[1]", pl.Int64),
    ('{"a":1,"b":"\t"}', pl.Int64),
    ('{"a":1,"b":"\udcff"}', pl.Int64),
)
"""What a lenient parser would take: (line, dtype of its member a)."""


@functools.cache
def _polars_is_strict() -> bool:
    """Whether this version of polars refuses what it is relied upon to refuse."""
    lines = [(text.encode("utf-8", "surrogateescape"), dtype) for text, dtype in _LENIENT]
    return all(_decode(line + b"\n", {"a": dtype}) is None for line, dtype in lines)
