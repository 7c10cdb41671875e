"""Anchors that do not look like states, with what speaks against each, and their order."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.quality import holm

__all__ = ["ConflictingAction", "Entry", "Followed", "Suspects", "WorstAnchor", "worst"]

_LEVEL = 0.05

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Entry:
    """One way into an anchor.

    Attributes:
      observation, action: what stood there before; both None at the start of a rollout.
      visits: how often.
    """

    observation: str | None
    action: str | None
    visits: int


@dataclass(frozen=True)
class Followed:
    """What an action led to.

    Attributes:
      observation: first text of the next anchor, None at a boundary.
      boundary: success or failure, None at an anchor.
      visits: how often.
      entries: the most frequent ways in of these visits.
    """

    observation: str | None
    boundary: str | None
    visits: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class ConflictingAction:
    """An action that was followed by different things at one anchor.

    Attributes:
      action: its text.
      visits: whose successor can tell; see `crbc_cli.process.quality`.
      successors: distinct ones; `followed` holds the most frequent.
      told_by_entry: visits whose successor is the most frequent one of their way in.
      told_anyway: visits whose successor is the most frequent one.
      followed: successors.
    """

    action: str | None
    visits: int
    successors: int
    told_by_entry: int
    told_anyway: int
    followed: tuple[Followed, ...]


@dataclass(frozen=True)
class WorstAnchor:
    """One anchor.

    Attributes:
      source_file, group_id: where.
      observation: text of its first visit.
      visits, rollouts: sizes.
      conflicting: visits of its pairs that conflict.
      p_value: of the Markov test, None if it could not be tested.
      adjusted: corrected for all tested anchors (Holm).
      actions: its conflicting actions, most visits first.
    """

    source_file: str
    group_id: str
    observation: str | None
    visits: int
    rollouts: int
    conflicting: int
    p_value: float | None
    adjusted: float | None
    actions: tuple[ConflictingAction, ...]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Suspects:
    """What one chunk contributes.

    Attributes:
      p_values: float64 (m,), of all tested anchors of the chunk.
      anchors: the most suspicious ones, `adjusted` still unknown.
    """

    p_values: Floats
    anchors: list[WorstAnchor]


def worst(found: Sequence[Suspects], most: int) -> tuple[int, int, list[WorstAnchor]]:
    """(anchors tested, those with an adjusted p-value below 0.05, the most suspicious anchors).

    Those at which what follows depends on the way in come first; then by conflicting visits.
    """
    p_values = np.concatenate([np.empty(0), *(suspects.p_values for suspects in found)])
    adjusted = holm(p_values)
    by_p = dict(zip(p_values.tolist(), adjusted.tolist(), strict=True))
    anchors = [
        replace(anchor, adjusted=None if anchor.p_value is None else by_p[anchor.p_value])
        for suspects in found
        for anchor in suspects.anchors
    ]
    anchors.sort(key=_rank)
    return len(p_values), int((adjusted < _LEVEL).sum()), anchors[:most]


def _rank(anchor: WorstAnchor) -> tuple[bool, int, float]:
    p_value = 2.0 if anchor.p_value is None else anchor.p_value
    return (
        anchor.adjusted is None or anchor.adjusted >= _LEVEL,
        -anchor.conflicting,
        p_value,
    )
