"""How a gate's threshold is chosen, and how well such a choice does on groups it has not seen.

Source: Selective Rollout (arXiv 2605.05802), section 4, and `scripts/08_ablation_cv.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.methods.gate_rule import Evidence, Metrics, cut_groups, measure

__all__ = ["Choice", "choose", "cross_validate"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Choice:
    """A point of the sweep: index of K, and the threshold."""

    position: int
    threshold: float


def choose(
    evidence: Evidence,
    *,
    or_terminated: float | None = None,
    min_precision: float = 0.80,
    positions: Sequence[int] | None = None,
    among: Bools | None = None,
) -> Choice | None:
    """The paper's rule: of the thresholds with enough precision and a true positive, the one with
    the largest safe saving; ties go to the strictest threshold, then to the smallest K.

    Args:
      evidence: the groups.
      or_terminated: see `cut_groups`.
      min_precision: on the groups it is chosen on.
      positions: indices into `at` to choose from; all by default.
      among: bool (N,), the groups it is chosen on; all by default.
    Returns:
      The choice, or None where no threshold is precise enough.
    """
    among = np.ones(len(evidence.variance), bool) if among is None else among
    best: tuple[int, int, int] | None = None
    for position in range(len(evidence.at)) if positions is None else positions:
        cuts = cut_groups(evidence, position, evidence.grid, or_terminated)[:, among]
        hits = cuts[:, evidence.zero[among]].sum(axis=1)
        precise = hits / np.maximum(cuts.sum(axis=1), 1) >= min_precision
        saving = np.where(precise & (hits > 0), hits * evidence.nominal[position], -1)
        strictest = int(saving.argmax())
        candidate = (-int(saving[strictest]), strictest, position)
        if saving[strictest] >= 0 and (best is None or candidate < best):
            best = candidate
    return None if best is None else Choice(best[2], float(evidence.grid[best[1]]))


def cross_validate(
    evidence: Evidence,
    *,
    folds: int,
    seed: int,
    or_terminated: float | None = None,
    min_precision: float = 0.80,
    positions: Sequence[int] | None = None,
) -> tuple[list[Choice | None], Metrics]:
    """Chooses on all folds but one and cuts the groups of that one.

    Groups are shuffled by `numpy.random.default_rng(seed)` and split into nearly equal folds, as
    in the authors' `scripts/08_ablation_cv.py`.

    Args:
      evidence: the groups, at least as many as folds.
      folds: at least 2.
      seed: of the shuffle.
      or_terminated, min_precision, positions: see `choose`.
    Returns:
      The choice of each fold, and the metrics of all groups, each cut by a threshold that was
      chosen without it.
    """
    number = len(evidence.variance)
    cut, at = np.zeros(number, bool), np.zeros(number, np.int64)
    choices = []
    for held_out in np.array_split(np.random.default_rng(seed).permutation(number), folds):
        training = np.ones(number, bool)
        training[held_out] = False
        choice = choose(
            evidence,
            or_terminated=or_terminated,
            min_precision=min_precision,
            positions=positions,
            among=training,
        )
        choices.append(choice)
        if choice is not None:
            at[held_out] = choice.position
            decided = cut_groups(evidence, choice.position, choice.threshold, or_terminated)
            cut[held_out] = decided[held_out]
    return choices, measure(evidence, cut, at)
