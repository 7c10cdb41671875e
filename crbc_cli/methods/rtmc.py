"""RTMC: first-visit Monte Carlo per (anchor, action), shrunk baseline (arXiv 2604.11037).

    Q(s,a) = mean over rollouts of γ^(T−t)·R at the rollout's first visit of (s,a)
    V(s)   = mean of Q over those first visits
    V'(s)  = (n_s·V(s) + n_prior·R̄)/(n_s + n_prior),   R̄ the group's mean reward   (eq. 11)
    A      = Q − V', optionally over the group's ddof-0 std; it is not centred

It stands in place of the group advantage. The published keys are cumulative, order-invariant
signatures of what the agent has done so far; here the anchor of the run is the state. No penalty
for invalid actions is published, and none is applied.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.method import Method, MethodOptions, StepCredit, setting
from crbc_cli.process.empirical import EmpiricalProcess

__all__ = ["RTMC", "RtmcOptions", "rtmc"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SMALLEST_STD = 1e-8


@dataclass(frozen=True)
class RtmcOptions(MethodOptions):
    """Defaults: the paper's."""

    gamma: float = setting(
        0.99, "Discount per step; the last step is not discounted.", low=0, high=1
    )
    prior: float = setting(2.0, "Visits that the group's mean reward counts for.", low=0)
    norm: str = setting(
        "none", "Divide by the std of the group's rows, or not.", choices=("none", "std")
    )
    w_s: float = setting(1.0, "Weight of the step credit.")


def rtmc(evidence: Evidence, options: RtmcOptions, group_advantage: Floats) -> StepCredit:
    """Numbers of RTMC: `state_value` is V', `action_value` Q, `credit` their difference."""
    process = evidence.process
    first = _first_visits(process)
    pair = process.pair[first]
    number = np.bincount(pair, minlength=process.pairs)
    total = np.bincount(pair, evidence.final_returns(options.gamma)[first], process.pairs)
    visits = np.bincount(process.pair_state, number, process.states)
    value = np.bincount(process.pair_state, total, process.states)
    group = evidence.rollout_group
    rollouts = np.maximum(np.bincount(group, minlength=process.groups), 1)
    mean = np.bincount(group, evidence.episode_reward, process.groups) / rollouts
    shrunk = value + options.prior * mean[process.state_group]
    state_value = (shrunk / (visits + options.prior))[process.state]
    action_value = (total / number)[process.pair]
    credit = action_value - state_value
    step = credit / _group_std(process, credit) if options.norm == "std" else credit
    return StepCredit(state_value, action_value, credit, step, 0.0, options.w_s)


def _first_visits(process: EmpiricalProcess) -> Ints:
    """Visits whose (anchor, action) is new in their rollout, int64 (f,)."""
    several = np.flatnonzero(process.pair_visits[process.pair] > 1)
    several = several[np.argsort(process.pair[several], kind="stable")]
    pair, rollout = process.pair[several], process.rollout[several]
    again = np.zeros(len(process.pair), bool)
    again[several[1:]] = (pair[1:] == pair[:-1]) & (rollout[1:] == rollout[:-1])
    return np.flatnonzero(~again)


def _group_std(process: EmpiricalProcess, credit: Floats) -> Floats:
    """ddof-0 std of the rows of each visit's group; 1 where it is below 1e-8. float64 (n,)."""
    group, groups = process.visit_group, process.groups
    number = np.maximum(np.bincount(group, minlength=groups), 1)
    mean = np.bincount(group, credit, groups) / number
    std = np.sqrt(np.bincount(group, (credit - mean[group]) ** 2, groups) / number)
    return np.where(std > _SMALLEST_STD, std, 1.0)[group]


RTMC = Method(
    name="rtmc",
    kind="step",
    summary="first-visit Monte Carlo value of the action, against a shrunk state value",
    source="RTMC (arXiv 2604.11037); port alexngai/prime-rl-fork, algo/rtmc_sig.py",
    notes="No group advantage. States are the run's anchors, not the paper's cumulative "
    "signatures. The port divides by the group's std by default.",
    options=RtmcOptions,
    compute=rtmc,
    trajectory=lambda options, run: None,
)
