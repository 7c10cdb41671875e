"""Terms of a step's formulas that the credit table does not hold.

Each is had by asking the method that makes the number, so that a formula cannot disagree with it.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.explanation import TrajectoryFacts
from crbc_cli.engine.prepare import Prepared
from crbc_cli.methods.crbc import crbc
from crbc_cli.methods.trajectory import group_advantage
from crbc_cli.options import CreditOptions
from crbc_cli.process.closure import solve_values
from crbc_cli.process.empirical import EmpiricalProcess

__all__ = ["sigma_credit", "trajectory_terms", "values_before"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def values_before(process: EmpiricalProcess, options: CreditOptions) -> Floats | None:
    """V^(K-1), which Q^(K) is one backup of; V itself at full closure, None at depth 0."""
    if options.depth == 0:
        return None
    before = options.depth if options.depth == math.inf else options.depth - 1
    return solve_values(process, options.discount, before).state


def sigma_credit(log: Prepared, process: EmpiricalProcess, pair_visit: Ints) -> Floats:
    """The credit of each pair whose spread is sigma (see `crbc`), float64 (pairs,)."""
    credit, options = log.settings.credit, log.settings.group_advantage
    if credit.sigma == "closure":
        credit = replace(credit, depth=math.inf)
    raw: Floats = crbc(process, credit).credit[pair_visit]
    if options.invalid_penalty not in ("step", "both"):
        return raw
    invalid = process.invalid.astype(np.float64)
    excess = process.pair_mean(invalid) - process.state_mean(invalid)[process.pair_state]
    return raw - options.penalty / options.success_reward * excess


def trajectory_terms(log: Prepared, position: int) -> TrajectoryFacts | None:
    """Terms of a row's group advantage, by asking the estimator itself.

    A rollout alone under `raw` has its score as its advantage, Dr.GRPO gives score - mean, and
    the divisor is what lies between that and the term, taken where it is largest.
    """
    episodes, options = log.episodes(), log.settings.group_advantage
    voters = int(episodes.counts.sum())
    if not episodes.counts[episodes.rollout[position]] or voters == 1:
        return None
    apart = replace(episodes, group=np.arange(len(episodes.group)), groups=len(episodes.group))
    score = group_advantage(apart, replace(options, singleton="raw"))[position]
    centred = group_advantage(episodes, replace(options, estimator="dr-grpo"))
    term = group_advantage(episodes, options)
    widest = int(np.nanargmax(np.abs(term)))
    divisor = float(centred[widest] / term[widest]) if term[widest] else None
    return TrajectoryFacts(float(score), float(score - centred[position]), divisor, voters)
