"""Groups made by a rule the user asked for: equal columns, or a fixed stride."""

from dataclasses import dataclass

import msgspec
import numpy as np
import polars as pl

from crbc_cli.errors import IdentityError
from crbc_cli.options import LogOptions
from crbc_cli.rollouts.identity import Place
from crbc_cli.rollouts.tally import Tally

__all__ = ["START", "Before", "infer_groups"]


@dataclass(frozen=True)
class Before:
    """How much of the only input stands before a piece of it: rows, and runs of one rollout."""

    rows: int = 0
    runs: int = 0


START = Before()


def infer_groups(
    frame: pl.DataFrame, options: LogOptions, place: Place, tally: Tally, before: Before = START
) -> pl.DataFrame:
    """Adds `group_id`, and `rollout_id` and `step` where each row is a rollout of its own.

    A frame that has `group_id` already is given back as it is.

    Raises:
      IdentityError: a stride's block holds two prompts.
    """
    if "group_id" in frame.columns or not options.infers_groups:
        return frame
    if "rollout_id" not in frame.columns:
        tally.rows_are_rollouts = True
        position = pl.int_range(pl.len(), dtype=pl.Int64).over("source") + before.rows
        frame = frame.with_columns(position.alias("rollout_id"), pl.lit(0, pl.Int64).alias("step"))
    if options.group_by:
        return frame.with_columns(_by_columns(frame, options).alias("group_id"))
    return _by_stride(frame, options.group_stride, place, before.runs)


def _by_columns(frame: pl.DataFrame, options: LogOptions) -> pl.Series:
    columns = [frame[f"by:{name}"] for name in options.group_by]
    if len(columns) == 1:
        return columns[0] if columns[0].dtype.is_integer() else columns[0].cast(pl.String)
    rows = pl.DataFrame(columns)
    distinct = rows.unique(maintain_order=True)
    texts = [msgspec.json.encode(row).decode() for row in distinct.iter_rows()]
    named = distinct.with_columns(pl.Series("group_id", texts))
    return rows.join(named, on=rows.columns, how="left", nulls_equal=True, maintain_order="left")[
        "group_id"
    ]


def _by_stride(frame: pl.DataFrame, stride: int, place: Place, before: int) -> pl.DataFrame:
    begins = (
        frame.select(
            pl.any_horizontal(
                pl.col(c).ne_missing(pl.col(c).shift()) for c in ("source", "rollout_id")
            )
        )
        .to_series()
        .to_numpy()
        .copy()
    )
    begins[:1] = True
    source = frame["source"].to_numpy()
    run = np.cumsum(begins) - 1
    starts = np.flatnonzero(begins)
    first_run = np.searchsorted(source[starts], source[starts], side="left")
    block = (before + np.arange(len(starts)) - first_run) // stride
    prompts = frame["prompt"] if "prompt" in frame.columns else frame["reply_key"]
    heads = pl.DataFrame(
        {"row": starts, "source": source[starts], "block": block, "prompt": prompts[starts]}
    )
    mixed = heads.filter(pl.col("prompt").n_unique().over("source", "block") > 1)
    if mixed.height:
        first = mixed.row(0, named=True)
        what = "prompts" if "prompt" in frame.columns else "first observations"
        raise IdentityError(
            f"block {first['block']} of --group-stride {stride} holds several {what}",
            place(first["row"]),
            "rollouts are missing or out of order; group by a key instead",
        )
    return frame.with_columns(pl.Series("group_id", block[run]))
