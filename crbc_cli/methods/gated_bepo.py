"""Gated-BEPO: Bellman residuals summed along the rollout, behind a gate (arXiv 2608.06861).

This is a member of the family described in the abstract and summaries of the paper, not a
reproduction of it: γ, λ, the mixing rule, the scope of the standardisation, the value of success,
the mean of the backup and the solver are unknown, and each is an option.

    V(s)   = mean over the visits of s of r + γ·V(x)          (fixed point)
    δ_t    = r_t + γ·V(x_t) − V(s_t)
    A^B_t  = Σ_{l≥0} (γλ)^l δ_{t+l}                           to the end of the rollout
    gate   = 1 where s has two distinct observed successors or more
    A      = A_G where the gate is 0, else (1 − α)·A_G + α·Ã^B,  Ã^B standardised

With the boundary convention V is the closure of CRBC. The gates differ: two actions that always
lead to the same place are gated out here and have credit 0 there; one action with two successors
passes here and is gated out there.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.method import Method, MethodOptions, StepCredit, setting
from crbc_cli.methods.normalise import distinct_transitions, standardised
from crbc_cli.process.closure import Values, exact_values, swept
from crbc_cli.process.empirical import EmpiricalProcess, Rewards

__all__ = ["GATED_BEPO", "GatedBepoOptions", "bellman_residual_sums", "gated_bepo"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class GatedBepoOptions(MethodOptions):
    """Every unknown of the paper."""

    gamma: float = setting(0.98, "Discount per step.", low=0, high=1)
    lambda_: float = setting(0.95, "λ of the sum along the rollout (GAE).", low=0, high=1)
    alpha: float = setting(0.5, "Share of the step credit where the gate is open.", low=0, high=1)
    scope: str = setting(
        "group",
        "Over which rows A^B is standardised (batch: the whole log; none: not at all).",
        choices=("group", "anchor", "batch", "none"),
    )
    success: str = setting(
        "boundary",
        "A success is a boundary of value 1, discounted once, or a reward of 1 on the last step.",
        choices=("boundary", "reward"),
    )
    successors: str = setting(
        "all", "Whether the boundaries count as successors in the gate.", choices=("all", "anchors")
    )
    backup: str = setting(
        "visits",
        "Mean of the backup over visits or distinct transitions.",
        choices=("visits", "transitions"),
    )
    sweeps: int = setting(0, "Backups from V = 0; 0 solves exactly.", low=0)
    penalty: float | None = setting(
        None, "Taken off A^B of invalid rows; by default what the run says.", low=0
    )


def gated_bepo(
    evidence: Evidence, options: GatedBepoOptions, group_advantage: Floats
) -> StepCredit:
    """Numbers of this member of the Gated-BEPO family.

    `state_value` and `action_value` are V and the backup averaged per (anchor, action), `credit`
    is A^B, `step_credit` the gated Ã^B.
    """
    process = evidence.process
    value, backup = _values(process, options)
    sums = bellman_residual_sums(process, value, backup, options.gamma * options.lambda_)
    signal = sums - evidence.penalties(options.penalty) / evidence.success_reward
    keys = {
        "group": (process.visit_group, process.groups),
        "anchor": (process.state, process.states),
        "batch": (np.zeros(len(signal), np.int64), 1),
    }
    scaled = signal
    if options.scope != "none":
        _, scaled = standardised(signal, *keys[options.scope])
    opened = _gate(process, options.successors)[process.state]
    return StepCredit(
        value[process.state],
        process.pair_mean(backup)[process.pair],
        sums,
        np.where(opened, scaled, 0.0),
        np.where(opened, 1.0 - options.alpha, 1.0),
        options.alpha,
    )


def bellman_residual_sums(
    process: EmpiricalProcess, value: Floats, backup: Floats, decay: float
) -> Floats:
    """A^B of each visit, Σ_{l≥0} decay^l (backup − V)_{t+l}, float64 (n,).

    Args:
      process: merged groups.
      value: float64 (states,), V.
      backup: float64 (n,), r + γ·V(x) of each visit.
      decay: γλ. At 0 its mean over (s,a) is Q − V of the values; at γ (λ = 1) it is the visit's
        own suffix return less V.
    """
    residual = backup - value[process.state]
    everything = np.ones(len(residual), bool)
    return Rewards(residual, process.rollout, everything).suffix_sums(decay)


def _values(process: EmpiricalProcess, options: GatedBepoOptions) -> tuple[Floats, Floats]:
    """(V of each state, r + γ·V(x) of each visit)."""
    if options.success == "reward":
        received = process.exit_value if process.reward is None else process.reward
        if process.reward is not None:
            received = received + process.exit_value
        process = _with_rewards(process, received, np.zeros_like(received))
    merged = process if options.backup == "visits" else _one_visit_each(process)
    if options.sweeps:
        nothing = Values(np.zeros(process.states), np.zeros(process.pairs))
        value = swept(merged, nothing, options.gamma, options.sweeps).state
    else:
        value = exact_values(merged, options.gamma)
    inner = process.successor >= 0
    backup = options.gamma * process.exit_value
    backup[inner] += options.gamma * value[process.successor[inner]]
    return value, backup if process.reward is None else process.reward + backup


def _with_rewards(
    process: EmpiricalProcess, reward: Floats, exit_value: Floats
) -> EmpiricalProcess:
    everything = np.ones(len(reward), bool)
    return replace(
        process, exit_value=exit_value, rewards=Rewards(reward, process.rollout, everything)
    )


def _one_visit_each(process: EmpiricalProcess) -> EmpiricalProcess:
    """The process in which each distinct transition occurred once, each in its own rollout."""
    once = distinct_transitions(process, process.successor)
    first, origin = once.first, process.rollout[once.first]
    merged = replace(
        process,
        state=process.state[first],
        pair=process.pair[first],
        successor=process.successor[first],
        exit_value=np.bincount(once.of, process.exit_value) / once.count,
        rewards=None,
        invalid=process.invalid[first],
        rollout=np.arange(len(first)),
        rollout_success=process.rollout_success[origin],
        rollout_boundary=process.rollout_boundary[origin],
        visit_group=process.visit_group[first],
    )
    if process.reward is None:
        return merged
    reward = np.bincount(once.of, process.reward) / once.count
    return _with_rewards(merged, reward, merged.exit_value)


def _gate(process: EmpiricalProcess, successors: str) -> Bools:
    """States after which two distinct successors or more were observed, bool (states,)."""
    counted = np.arange(len(process.state))
    if successors == "anchors":
        counted = np.flatnonzero(process.successor >= 0)
    state, successor = process.state[counted], process.successor[counted]
    one = np.empty(process.states, np.int64)
    one[state] = successor
    several = np.zeros(process.states, bool)
    several[state[successor != one[state]]] = True
    return several


GATED_BEPO = Method(
    name="gated-bepo",
    kind="step",
    summary="Bellman residuals along the rollout, where an anchor has several successors",
    source="Gated-BEPO (arXiv 2608.06861), abstract and summaries only",
    notes="A member of the family, not a reproduction: each unknown is an option, and the "
    "adaptive mixing rule of the paper is not known.",
    options=GatedBepoOptions,
    compute=gated_bepo,
    trajectory=lambda options, run: run,
    needs=lambda options: frozenset(["log"] if options.scope == "batch" else []),
)
