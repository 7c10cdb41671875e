"""What rules make of a sample: anchors, and how well other rollouts foretell what follows."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crbc_cli.anchors.ids import dense_ids
from crbc_cli.process.agreement import Agreement, codes
from crbc_cli.process.quality import Conflicts

__all__ = ["Keyed", "Trial", "dense", "visit_conflicts"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Keyed:
    """Rows of a sample under some rules.

    Attributes:
      anchor: int64 (n,), dense anchor of each row, -1 where there is none.
      visit: bool (n,), rows that are environment steps with an anchor.
      said: bool (n,), rows whose own reply says something.
      thought: bool (n,).
      action: int64 (n,), dense.
      key: uint64 (n,), the words that `anchor` was made of.
      parts: uint64 (n,) each, key parts other than the reply.
    """

    anchor: Ints
    visit: Bools
    said: Bools
    thought: Bools
    action: Ints
    key: Words
    parts: list[Words]

    def split(self, words: Words) -> "Keyed":
        """The same rows with anchors told apart by one more word."""
        anchor = np.where(self.anchor < 0, -1, codes(self.anchor, dense(words)))
        return replace(self, anchor=anchor)


@dataclass(frozen=True)
class Trial:
    """What a rule file makes of a sample.

    Attributes:
      rows: the anchors.
      agreement: of the visits whose outcome is known, in row order.
      at: int64 (v,), the rows of these visits.
      visits, anchors: sizes.
      shared: share of the visits on anchors of several rollouts.
      conflicts: with the next anchor as successor.
    """

    rows: Keyed
    agreement: Agreement
    at: Ints
    visits: int
    anchors: int
    shared: float
    conflicts: Conflicts

    @property
    def hits(self) -> float:
        """Expected number of visits that other rollouts foretell."""
        return self.agreement.hits

    @property
    def misses(self) -> float:
        """Expected number of visits that other rollouts foretell wrongly."""
        return self.agreement.misses

    @property
    def wrong_share(self) -> float | None:
        """Share of the misses, None where other rollouts foretell nothing."""
        foretold = self.hits + self.misses
        return self.misses / foretold if foretold else None


def dense(words: Words) -> Ints:
    """Code of each word by first occurrence, int64 (n,)."""
    return dense_ids(np.zeros(len(words), np.int64), words)


def visit_conflicts(rows: Keyed, rollout: Ints, visits: Ints) -> Conflicts:
    """Conflicts of visits that are followed by another visit."""
    goes_on = rollout[visits[:-1]] == rollout[visits[1:]]
    before, after = visits[:-1][goes_on], rows.anchor[visits[1:][goes_on]]
    pair = codes(rows.anchor[before], rows.action[before])
    size = np.bincount(pair)
    first = np.zeros(len(size), np.int64)
    first[pair[::-1]] = after[::-1]
    conflict = np.bincount(pair, after != first[pair], len(size)) > 0
    return Conflicts(int(size[conflict].sum()), int(size[size > 1].sum()))
