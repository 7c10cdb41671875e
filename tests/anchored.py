"""Anchors under a preset: along a rollout written by hand, and scored against known states."""

from __future__ import annotations

from typing import Any

import polars as pl

from tests.helpers import package_credit


def anchors_along(preset: str, *steps: tuple[str, str]) -> list[Any]:
    """Anchors of one rollout of (observation, next action), numbered by first visit."""
    last = len(steps) - 1
    rows = [
        {
            "group_id": "g",
            "rollout_id": 0,
            "step": i,
            "observation": observation,
            "action": action,
            "success": False,
            "done": i == last,
            "truncated": i == last,
        }
        for i, (observation, action) in enumerate(steps)
    ]
    return package_credit(rows, preset=preset)["anchor"]


def anchored(log: pl.DataFrame, **options: Any) -> pl.DataFrame:
    """The log with a column `anchor`."""
    return log.with_columns(
        pl.Series("anchor", package_credit(log.to_dicts(), **options)["anchor"])
    )


def aliased_and_shared(log: pl.DataFrame) -> tuple[float, float]:
    """How a log with columns `anchor` and `true_state` scores.

    Returns:
      Share of the visits on repeated anchors whose anchor holds several states, and share of all
      visits on anchors of several rollouts.
    """
    per = (
        log.drop_nulls("anchor")
        .group_by("group_id", "anchor")
        .agg(
            n=pl.len(),
            states=pl.col("true_state").n_unique(),
            rollouts=pl.col("rollout_id").n_unique(),
        )
    )
    repeated = per.filter(pl.col("n") > 1)
    aliased = repeated.filter(pl.col("states") > 1)["n"].sum() / repeated["n"].sum()
    return aliased, per.filter(pl.col("rollouts") > 1)["n"].sum() / per["n"].sum()
