"""Frames of one log, joined row under row."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from crbc_cli.errors import ColumnError

__all__ = ["concatenated", "hashable_rows", "refuse_mixed", "within_64_bits"]


def concatenated(frames: list[pl.DataFrame], names: Sequence[str]) -> pl.DataFrame:
    """Rows of all frames; columns that some lack are null there.

    Raises:
      ColumnError: a column is text in some rows and numbers in others.
    """
    if not frames:
        return pl.DataFrame()
    frames = [frame for frame in frames if frame.height] or frames[:1]
    if len(frames) == 1:
        return frames[0]
    refuse_mixed([frame.schema for frame in frames], names)
    return within_64_bits(pl.concat(frames, how="diagonal_relaxed", rechunk=True), names)


def hashable_rows(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Rows as tuples that are equal where polars groups their rows: NaN is NaN, and 0 is -0."""
    for name, dtype in frame.schema.items():
        if dtype.is_float():
            number = pl.col(name).cast(pl.Float64)
            number = pl.when(number == 0).then(0.0).otherwise(number)  # not -0.0
            frame = frame.with_columns(number.cast(pl.String).alias(name))
    return frame.rows()


def refuse_mixed(schemas: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Raises ColumnError for a column that is text in some schemas and numbers in others."""
    kinds: dict[str, set[str]] = {}
    for schema in schemas:
        for name, dtype in schema.items():
            if dtype != pl.Null:
                kinds.setdefault(name, set()).add("numbers" if dtype.is_numeric() else str(dtype))
    odd = next((n for n, k in kinds.items() if len(k) > 1), None)
    if odd is not None:
        raise ColumnError(
            f"column {odd.rpartition(':')[2]} is {' in some rows, '.join(sorted(kinds[odd]))} "
            "in others",
            ", ".join(names[:3]) + (", …" if len(names) > 3 else ""),
            "write one type per column",
        )


def within_64_bits(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Signed and unsigned integers together, in whichever of the two holds them all.

    Args:
      frame: frame in which joining both gave Int128.
      names: where it came from, for the message.
    Raises:
      ColumnError: neither holds them all.
    """
    for name, dtype in frame.schema.items():
        if dtype != pl.Int128:
            continue
        for narrow in (pl.Int64, pl.UInt64):
            series = frame[name].cast(narrow, strict=False)
            if series.null_count() == frame[name].null_count():
                frame = frame.with_columns(series)
                break
        else:
            raise ColumnError(
                f"column {name.rpartition(':')[2]} needs more than 64 bits",
                ", ".join(names[:3]),
                "write it as strings",
            )
    return frame
