"""Group-relative trajectory terms: GRPO, Dr.GRPO and RLOO (algorithm sources at each function)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.options import GroupAdvantageOptions

__all__ = ["Episodes", "group_advantage"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Episodes:
    """Rollouts as the trajectory term sees them, rows in canonical order.

    Attributes:
      rollout: int64 (n,), non-decreasing from 0, rollout of each row.
      group: int64 (r,), group of each rollout, non-decreasing.
      groups: number of groups.
      reward: float64 (r,), before penalties.
      counts: bool (r,), has a vote and gets a value.
      invalid: bool (n,), the environment refused the row's action.
    """

    rollout: Ints
    group: Ints
    groups: int
    reward: Floats
    counts: Bools
    invalid: Bools


def group_advantage(episodes: Episodes, options: GroupAdvantageOptions) -> Floats:
    """A_G of each row; NaN where its rollout does not count.

    Scores are rewards less penalties; mean and std run over rollouts (each with the score of its
    first row) or over rows, as `episode_stats` says.

    * grpo: (score − mean)/(std + eps), exactly 0 in a group without spread (arXiv 2402.03300;
      CRBC eq. 3);
    * dr-grpo: score − mean (arXiv 2503.20783);
    * rloo: n/(n−1)·(score − mean), the score less the mean of the others (arXiv 2402.14740).

    Groups in which one rollout counts follow `singleton`: 0, the raw score, or NaN.

    Returns:
      float64 (n,).
    """
    score = _scores(episodes, options)
    counted = episodes.counts[episodes.rollout]
    votes = np.flatnonzero(counted)
    if options.episode_stats == "rollout":
        votes = votes[np.diff(episodes.rollout[votes], prepend=-1) != 0]
    row_group = episodes.group[episodes.rollout]
    voting, values, groups = row_group[votes], score[votes], episodes.groups
    number = np.bincount(voting, minlength=groups)
    first, differ = _spread(voting, values, groups)
    mean = np.where(differ, np.bincount(voting, values, groups) / np.maximum(number, 1), first)
    centred = score - mean[row_group]
    if options.estimator == "grpo":
        squares = np.bincount(voting, (values - mean[voting]) ** 2, groups)
        std = np.sqrt(squares / np.maximum(number - options.ddof, 1))
        # Differences below 1e-162 have squares that are 0; without eps they would be infinite.
        divisor = np.where(differ, std + options.eps, 0.0)[row_group]
        centred = np.divide(centred, divisor, np.zeros_like(centred), where=divisor > 0)
    elif options.estimator == "rloo":
        centred = centred * (number / np.maximum(number - 1, 1))[row_group]

    rollouts = np.bincount(episodes.group[episodes.counts], minlength=groups)
    alone = (rollouts == 1)[row_group]
    fallback = {"zero": np.zeros_like(score), "raw": score, "drop": np.full_like(score, np.nan)}
    advantage = np.where(alone, fallback[options.singleton], centred)
    return np.where(counted, advantage, np.nan)


def _scores(episodes: Episodes, options: GroupAdvantageOptions) -> Floats:
    """Score of each row, float64 (n,)."""
    score = episodes.reward[episodes.rollout]
    if options.invalid_penalty not in ("trajectory", "both"):
        return score
    if options.penalty_unit == "sum":
        number = np.bincount(episodes.rollout, episodes.invalid, len(episodes.reward))
        return score - options.penalty * number[episodes.rollout]
    return score - options.penalty * episodes.invalid


def _spread(voting: Ints, values: Floats, groups: int) -> tuple[Floats, Bools]:
    """(a group's first vote, whether its votes differ at all), each (groups,)."""
    first = np.zeros(groups)
    first[voting[::-1]] = values[::-1]
    return first, np.bincount(voting, values != first[voting], groups) > 0
