"""The input's rows and columns unchanged, for outputs that carry them beside the credit."""

from collections.abc import Iterator
from typing import Any

import msgspec
import polars as pl

from crbc_cli.logs.formats import jsonl, parquet
from crbc_cli.logs.formats.jsonl import LineReport
from crbc_cli.logs.sources import Source

__all__ = ["as_frame", "raw_lines", "typed_members"]


def as_frame(source: Source, skip_bad_lines: bool) -> pl.DataFrame:
    """Every column of the input.

    JSONL members keep a plain type if all lines agree on it (string, integer of 64 bits, number,
    boolean); otherwise their raw JSON text is passed through.

    Raises:
      InputError: as reading does.
    """
    if source.container == "parquet":
        frame = parquet.scan(source)
        with parquet.polars_errors(source.name):
            return frame.collect()
    return typed_members(source, skip_bad_lines, LineReport())[0]


def typed_members(
    source: Source, skip_bad_lines: bool, report: LineReport
) -> tuple[pl.DataFrame, set[str]]:
    """Every member of a JSONL input, and which columns hold raw JSON text.

    Args:
      report: filled while reading.
    Raises:
      InputError: as reading does.
    """
    columns: dict[str, list[bytes | None]] = {}
    rows = 0
    for _, block in jsonl.decode_lines(source, dict[str, msgspec.Raw], skip_bad_lines, report):
        for row in block:
            for name, value in row.items():
                known = columns.setdefault(name, [])
                known.extend([None] * (rows - len(known)))
                known.append(bytes(value))
            rows += 1
    for values in columns.values():
        values.extend([None] * (rows - len(values)))
    typed = [_column(name, values) for name, values in columns.items()]
    return pl.DataFrame([column for column, _ in typed]), {c.name for c, raw in typed if raw}


def _column(name: str, texts: list[bytes | None]) -> tuple[pl.Series, bool]:
    """The column, and whether it is raw JSON text."""
    heads = {text[:1] for text in texts if text not in (None, b"null")}
    if heads == {b'"'}:
        plain: Any = str
    elif heads and heads <= {b"t", b"f"}:
        plain = bool
    elif heads and not heads & {b'"', b"t", b"f", b"{", b"["}:
        whole = all(text is None or not set(text) & set(b".eE") for text in texts)
        plain = int if whole else float
    else:
        return _raw_text(name, texts), bool(heads)
    decode = msgspec.json.Decoder(plain | None).decode
    try:
        values = [None if text is None else decode(text) for text in texts]
    except msgspec.DecodeError:  # a number beyond the range of its type
        return _raw_text(name, texts), True
    if plain is int and any(v is not None and not -(2**63) <= v < 2**63 for v in values):
        return _raw_text(name, texts), True
    return pl.Series(name, values, dtype=_DTYPES[plain]), False


_DTYPES: dict[type, Any] = {str: pl.String, bool: pl.Boolean, int: pl.Int64, float: pl.Float64}


def _raw_text(name: str, texts: list[bytes | None]) -> pl.Series:
    return pl.Series(
        name, [None if t in (None, b"null") else t.decode() for t in texts], dtype=pl.String
    )


def raw_lines(source: Source, skip_bad_lines: bool) -> Iterator[bytes]:
    """Each record of a JSONL input as one line of strict JSON, values byte for byte as logged.

    Only a line that is not strict JSON is rewritten: its non-finite numbers become null.
    """
    row_type = dict[str, msgspec.Raw]
    for _, rows in jsonl.decode_lines(source, row_type, skip_bad_lines, LineReport()):
        yield from map(msgspec.json.encode, rows)
