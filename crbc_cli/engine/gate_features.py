"""Groups as a gate sees them, read from a table of features."""

import sys
from collections.abc import Sequence

import numpy as np
import polars as pl

from crbc_cli.engine.gate_groups import FEATURES, GateGroups
from crbc_cli.errors import ColumnError, IdentityError, InputError, OptionError
from crbc_cli.logs.formats.parquet import polars_errors
from crbc_cli.notes import Notes

__all__ = ["groups_of_features"]

_OTHER_NAMES = {
    "group_id": ("group", "task_id"),
    "prefix_distance": ("prefix_edit_distance_mean",),
    "reward_variance": ("reward_var",),
}
"""Column -> what the files published with the paper call it."""


def groups_of_features(
    path: str, notes: Notes, *, at: Sequence[int] = (), signals: Sequence[str], t_max: int
) -> GateGroups:
    """Reads groups from a CSV with one row per group and K.

    Columns: `group_id` (and `source_file`, `key:…` where ids repeat), `K`, `reward_variance`, a
    column per signal as in FEATURES; optional `label`, `rollouts`, `steps` (of all rollouts
    together) and `steps_saved` (those beyond K). `crbc gate --per-group --csv` writes such a
    table, and the names of the file published with the paper are understood.

    Args:
      path: the file, `-` for stdin.
      notes: told what is missing.
      at: the K to take; all of the file by default.
      signals: those that are needed.
      t_max: step limit of rollouts.
    Raises:
      InputError, ColumnError, IdentityError: the table cannot be used.
      OptionError: a K that the file does not have, or no `t_max`.
    """
    if not t_max:
        raise OptionError(
            "a table of features does not say how long rollouts can be",
            todo="give --t-max, for example --t-max 30",
        )
    frame = _read_csv(path)
    keys = [c for c in frame.columns if c in ("source_file", "group_id") or c.startswith("key:")]
    numbers = ["K", "reward_variance", *(FEATURES[name] for name in signals)]
    lengths = [c for c in ("steps", "steps_saved") if c in frame.columns]
    optional = [c for c in ("rollouts", *lengths) if c in frame.columns]
    frame = _checked(frame, path, ["group_id", *numbers], [*numbers, *optional])
    known = frame["K"].unique().sort().to_list()
    absent = [k for k in at if k not in known]
    if absent:
        listed = ", ".join(map(str, known))
        raise OptionError(f"--at {absent[0]} is not in {path}", todo=f"it has K = {listed}")
    ks = sorted(set(at)) or known
    names = frame.select(keys).unique(maintain_order=True)
    ordered = (
        frame.filter(pl.col("K").is_in(ks))
        .join(names.with_row_index("position"), on=keys, maintain_order="left")
        .sort("K", "position")
    )
    positions = ordered["position"].to_numpy()
    if not np.array_equal(positions, np.tile(np.arange(names.height), len(ks))):
        raise IdentityError(
            "groups do not occur once at every K", path, "one row per group and K is needed"
        )
    if "rollouts" not in optional:
        notes.say("equal_groups", f"{path} has no rollouts column: groups count as of equal size")
    if len(lengths) < 2:
        notes.say("no_lengths", f"{path} has no steps and steps_saved: no realised saving")
    columns = {c: ordered[c].to_numpy().reshape(len(ks), -1) for c in [*numbers, *optional]}
    whole = {c: columns[c].astype(np.int64) for c in optional}
    label = [c for c in ("label",) if c in frame.columns]
    return GateGroups(
        ordered.head(names.height).select(*keys, *label),
        np.asarray(ks, np.int64),
        {name: columns[FEATURES[name]] for name in signals},
        whole["steps_saved"] if len(lengths) == 2 else None,
        whole["steps"][0] if len(lengths) == 2 else None,
        columns["reward_variance"][0],
        whole["rollouts"][0] if "rollouts" in whole else np.ones(names.height, np.int64),
        t_max,
        None,
        0,
    )


def _read_csv(path: str) -> pl.DataFrame:
    with polars_errors(path):
        try:
            frame = pl.read_csv(sys.stdin.buffer if path == "-" else path, infer_schema_length=None)
        except OSError as error:
            raise InputError(f"cannot be opened ({error.strerror or error})", path) from error
    named = {
        other: name
        for name, others in _OTHER_NAMES.items()
        for other in others
        if other in frame.columns and name not in frame.columns
    }
    return frame.rename(named)


def _checked(
    frame: pl.DataFrame, path: str, needed: Sequence[str], numbers: Sequence[str]
) -> pl.DataFrame:
    """The frame with its numbers as Float64, none missing."""
    for name in needed:
        if name not in frame.columns:
            raise ColumnError(
                f"has no column {name}", path, f"columns are {', '.join(frame.columns)}"
            )
    for name in numbers:
        if not frame[name].dtype.is_numeric():
            raise ColumnError(f"column {name} holds no numbers", path)
        odd = (~frame[name].cast(pl.Float64).is_finite()).fill_null(True).arg_true()
        if len(odd):
            raise ColumnError(f"column {name} is missing a number", f"{path}:{odd[0] + 2}")
    if not frame.height:
        raise InputError("holds no rows", path)
    if not (frame["K"] == frame["K"].cast(pl.Int64)).all() or not (frame["K"] >= 1).all():
        raise ColumnError("column K holds something else than step counts of at least 1", path)
    others = [name for name in numbers if name != "K"]
    return frame.with_columns(pl.col(others).cast(pl.Float64), pl.col("K").cast(pl.Int64))
