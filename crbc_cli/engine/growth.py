"""Do anchors hold the history? Then their length grows with the step, and no two visits match."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.prepare import Prepared

__all__ = ["GROWING_SHARE", "GROWS", "growth", "say_growing_anchors"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

GROWS = 0.9
"""Least rank correlation of length and step at which a rollout's anchors grow."""
GROWING_SHARE = 0.8
"""If more of the rollouts than this share have growing anchors, anchors hold the history."""
_LEAST_VISITS = 3


def growth(chain: Ints, step: Ints, size: Ints, chains: int) -> Floats:
    """Spearman correlation of `size` with `step` inside each chain; NaN where either is constant.

    Args:
      chain: shape (n,), rollout or group of each visit.
      step, size: shape (n,).
      chains: number of chains.
    Returns:
      float64 (chains,).
    """
    ranks = (
        pl.DataFrame({"chain": chain, "step": step, "size": size})
        .with_columns(pl.col("step", "size").rank("average").over("chain"))
        .group_by("chain", maintain_order=True)
        .agg(pl.corr("step", "size").alias("rho"))
    )
    rho = np.full(chains, np.nan)
    rho[ranks["chain"].to_numpy()] = ranks["rho"].fill_null(np.nan).to_numpy()
    return rho


def say_growing_anchors(log: Prepared) -> None:
    """Warns if the reply is part of the anchor and grows in more than 80 % of the rollouts with at
    least three visits. A log read without lengths says nothing."""
    if "anchor_bytes" not in log.frame.columns or "reply" not in log.loaded.rules.key:
        return
    r = log.rollouts
    at = np.flatnonzero(log.is_visit)
    visits = np.bincount(r.rollout[at], minlength=len(r.group))
    at = at[visits[r.rollout[at]] >= _LEAST_VISITS]
    if not len(at):
        return
    size: Ints = log.frame["anchor_bytes"].to_numpy()[r.row[at]].astype(np.int64)
    first = np.flatnonzero(np.diff(r.rollout[at], prepend=-1))
    last = np.append(first[1:], len(at)) - 1
    # Ranks cost a sort; rollouts that end no longer than they began need none.
    if np.count_nonzero(size[last] > size[first]) <= GROWING_SHARE * len(first):
        return
    growing = growth(r.rollout[at], r.step[at], size, len(r.group)) >= GROWS
    grown = int(np.count_nonzero(growing))
    if grown <= GROWING_SHARE * len(first):
        return
    least, median, most_of, most = np.quantile(size, (0, 0.5, 0.9, 1)).astype(int)
    log.notes.say(
        "anchor_growth",
        f"the anchor grows with the step in {grown} of {len(first)} rollouts: it holds the history,"
        f" so that visits hardly match ({least} to {most} bytes, median {median}, 90 % up to "
        f"{most_of}; median {int(np.median(size[first]))} at a rollout's first step, "
        f"{int(np.median(size[last]))} at its last); anchor on the last message alone "
        "(--anchor last-message, last-tool-result or last-user-message) or on a column or dotted "
        "path without the history",
        warning=True,
    )
