"""How well anchors tell true states apart, as a share of visits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from crbc_cli.engine.prepare import Prepared


@dataclass(frozen=True)
class Scores:
    """Anchors against states.

    Attributes:
      aliased: share of the visits to repeated anchors whose anchor holds several states.
      shared: share of the visits whose anchor several rollouts of the group visit.
      exact: anchors and states of a group are one to one.
    """

    aliased: float
    shared: float
    exact: bool


def scores(p: Prepared, states: Sequence[Any]) -> Scores:
    """Scores of all visits; `states` in input order."""
    r = p.rollouts
    visits = pl.DataFrame(
        {
            "group": r.row_group(),
            "rollout": r.rollout,
            "anchor": p.anchor_key,
            "state": pl.Series(states).gather(r.row),
        }
    ).filter(pl.Series(p.is_visit))
    anchors = visits.group_by("group", "anchor").agg(
        visits=pl.len(), states=pl.col("state").n_unique(), rollouts=pl.col("rollout").n_unique()
    )
    repeated = anchors.filter(pl.col("visits") > 1)
    aliased = repeated.filter(pl.col("states") > 1)["visits"].sum() / repeated["visits"].sum()
    shared = anchors.filter(pl.col("rollouts") > 1)["visits"].sum() / visits.height
    pairs = visits.select("group", "anchor", "state").n_unique()
    exact = pairs == anchors.height == visits.select("group", "state").n_unique()
    return Scores(aliased, shared, exact)
