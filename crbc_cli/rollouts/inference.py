"""Groups made by a rule the user asked for: equal columns, or a fixed stride."""

from collections import Counter

import msgspec
import numpy as np
import polars as pl

from crbc_cli.errors import IdentityError
from crbc_cli.notes import Notes, counted
from crbc_cli.options import LogOptions
from crbc_cli.rollouts.identity import Place, Rollouts

__all__ = ["check_inferred_groups", "infer_groups"]


def infer_groups(
    frame: pl.DataFrame, options: LogOptions, place: Place, notes: Notes
) -> pl.DataFrame:
    """Adds `group_id`, and `rollout_id` and `step` where each row is a rollout of its own.

    Raises:
      IdentityError: a stride's block holds two prompts.
    """
    if not options.infers_groups:
        return frame
    if "rollout_id" not in frame.columns:
        notes.say("rows_are_rollouts", "no rollout_id: each row is one rollout of one step")
        position = pl.int_range(pl.len(), dtype=pl.Int64).over("source")
        frame = frame.with_columns(position.alias("rollout_id"), pl.lit(0, pl.Int64).alias("step"))
    if options.group_by:
        return frame.with_columns(_by_columns(frame, options).alias("group_id"))
    return _by_stride(frame, options.group_stride, place)


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


def _by_stride(frame: pl.DataFrame, stride: int, place: Place) -> pl.DataFrame:
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
    block = (np.arange(len(starts)) - first_run) // stride
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


def check_inferred_groups(rollouts: Rollouts, options: LogOptions, notes: Notes) -> None:
    """Says which rule made the groups and which sizes came out; refuses uneven ones.

    Raises:
      IdentityError: sizes differ and --allow-uneven is not given.
    """
    if not options.infers_groups:
        return
    sizes = Counter(np.bincount(rollouts.group, minlength=rollouts.groups).tolist())
    histogram = ", ".join(f"{count} of size {size}" for size, count in sorted(sizes.items()))
    rule = (
        f"--group-by {','.join(options.group_by)}"
        if options.group_by
        else f"--group-stride {options.group_stride}"
    )
    text = f"{rule} gives {counted(rollouts.groups, 'group')}: {histogram}"
    if len(sizes) > 1 and not options.allow_uneven:
        raise IdentityError(
            f"{text}; sizes differ", todo="group by a key, or accept them with --allow-uneven"
        )
    notes.say("inferred_groups", text, warning=len(sizes) > 1)
