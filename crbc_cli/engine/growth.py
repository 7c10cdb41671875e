"""Do anchors hold the history? Then their length grows with the step, and no two visits match."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.prepare import Prepared
from crbc_cli.notes import Notes

__all__ = ["GROWING_SHARE", "GROWS", "Growth", "growth", "say_growing_anchors"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

GROWS = 0.9
"""Least rank correlation of length and step at which a rollout's anchors grow."""
GROWING_SHARE = 0.8
"""If more of the rollouts than this share have growing anchors, anchors hold the history."""
_LEAST_VISITS = 3
_COUNTED_DENSELY = 1 << 16


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


@dataclass
class Growth:
    """Lengths of anchors and how they change along rollouts, added up over pieces of a log.

    Attributes:
      rollouts: rollouts with at least three visits.
      grown: those whose anchors grow with the step and end longer than they began.
      sizes, first, last: anchors of these rollouts by length in bytes: all of them, those of a
        rollout's first visit, those of its last.
    """

    rollouts: int = 0
    grown: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    first: Counter[int] = field(default_factory=Counter)
    last: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, log: Prepared) -> "Growth":
        """Growth in some groups; nothing if the reply is no part of the anchor, or if they were
        read without lengths."""
        if "anchor_bytes" not in log.frame.columns or "reply" not in log.loaded.rules.key:
            return cls()
        r = log.rollouts
        at = np.flatnonzero(log.is_visit)
        visits = np.bincount(r.rollout[at], minlength=len(r.group))
        at = at[visits[r.rollout[at]] >= _LEAST_VISITS]
        if not len(at):
            return cls()
        size: Ints = log.frame["anchor_bytes"].to_numpy()[r.row[at]].astype(np.int64)
        rollout = r.rollout[at]
        first = np.flatnonzero(np.diff(rollout, prepend=-1))
        last = np.append(first[1:], len(at)) - 1
        return cls(
            len(first),
            _grown(rollout, r.step[at], size, size[last] > size[first]),
            _counted(size),
            _counted(size[first]),
            _counted(size[last]),
        )

    def add(self, later: "Growth") -> None:
        """Adds other groups of the same log."""
        self.rollouts += later.rollouts
        self.grown += later.grown
        self.sizes.update(later.sizes)
        self.first.update(later.first)
        self.last.update(later.last)

    def tell(self, notes: Notes) -> None:
        """Warns if anchors grow in more than 80 % of the rollouts."""
        if self.grown <= GROWING_SHARE * self.rollouts:
            return
        least, median, most_of, most = _quantiles(self.sizes, (0, 0.5, 0.9, 1))
        [first], [last] = _quantiles(self.first, (0.5,)), _quantiles(self.last, (0.5,))
        notes.say(
            "anchor_growth",
            f"the anchor grows with the step in {self.grown} of {self.rollouts} rollouts: it holds "
            f"the history, so that visits hardly match ({least} to {most} bytes, median {median}, "
            f"90 % up to {most_of}; median {first} at a rollout's first step, "
            f"{last} at its last); anchor on the last message alone "
            "(--anchor last-message, last-tool-result or last-user-message) or on a column or "
            "dotted path without the history",
            warning=True,
        )


def say_growing_anchors(log: Prepared) -> None:
    """Warns if the reply is part of the anchor and grows in more than 80 % of the rollouts with at
    least three visits. A log read without lengths says nothing."""
    Growth.of(log).tell(log.notes)


def _grown(rollout: Ints, step: Ints, size: Ints, longer: NDArray[np.bool_]) -> int:
    """Rollouts among the `longer` ones whose sizes grow with the step.

    Ranks cost a sort, so rollouts that fall as often as they rise are left out before.
    """
    chain = np.cumsum(np.diff(rollout, prepend=rollout[0]) != 0)
    change = np.sign(np.diff(size)) * (np.diff(chain) == 0)
    rises = np.bincount(chain[1:], change, len(longer)) > 0
    kept = (longer & rises)[chain]
    if not kept.any():
        return 0
    rho = growth(chain[kept], step[kept], size[kept], len(longer))
    return int(np.count_nonzero(rho >= GROWS))


def _counted(sizes: Ints) -> Counter[int]:
    if sizes.max(initial=0) < _COUNTED_DENSELY:
        dense = np.bincount(sizes)
        size = np.flatnonzero(dense)
        number = dense[size]
    else:
        size, number = np.unique(sizes, return_counts=True)
    return Counter(dict(zip(size.tolist(), number.tolist(), strict=True)))


def _quantiles(sizes: Counter[int], at: Sequence[float]) -> list[int]:
    """Quantiles as `np.quantile` interpolates them, down to whole bytes."""
    size = np.array(sorted(sizes))
    upto = np.cumsum([sizes[s] for s in size.tolist()])
    place = np.asarray(at) * (upto[-1] - 1)
    below, above = (size[np.searchsorted(upto, f(place) + 1)] for f in (np.floor, np.ceil))
    found: list[int] = (below + (above - below) * (place % 1)).astype(int).tolist()
    return found
