"""CRBC step credit (arXiv 2609.35082, section 4.3, eqs. 13-15)."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.method import Method, StepCredit
from crbc_cli.options import CreditOptions
from crbc_cli.process.closure import Values, solve_values
from crbc_cli.process.empirical import EmpiricalProcess

__all__ = ["CRBC", "crbc", "gate", "sigma"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def crbc(
    process: EmpiricalProcess, options: CreditOptions, step_penalty: float = 0.0
) -> StepCredit:
    """A_S(s,a) = 1{≥ 2 actions at s} · A(s,a)/max(σ(s), floor), with A = Q^(K) − V^(K).

    σ(s)² = Σ_a μ(a|s) A(s,a)² is the ddof-0 variance of the credit over the visits of s.

    Args:
      process: merged groups.
      options: depth, discount, floor, gate, and whether σ is that of A^(K) or of the closure.
      step_penalty: size of the invalid-action penalty on the 0/1 scale. It is taken off the
        credit of invalid visits and centred at the anchor; it enters A_S only.
    Returns:
      StepCredit.
    Source: CRBC, eqs. 13-14.
    """
    values = solve_values(process, options.discount, options.depth)
    credit = values.credit(process)
    penalised = _penalised(process, credit, step_penalty)
    reference = penalised
    if options.sigma == "closure" and options.depth != math.inf:
        closure = solve_values(process, options.discount, math.inf)
        reference = _penalised(process, closure.credit(process), step_penalty)
    spread = np.maximum(sigma(process, reference), options.floor)
    state = process.pair_state
    scaled = np.where(gate(process, options.gate)[state], penalised / spread[state], 0.0)
    return _per_visit(process, values, credit, scaled)


def sigma(process: EmpiricalProcess, credit: Floats) -> Floats:
    """σ(s) = sqrt(Σ_a μ(a|s) A(s,a)²), float64 (states,), from credit per pair (eq. 13)."""
    return np.sqrt(process.state_mean((credit**2)[process.pair]))


def gate(process: EmpiricalProcess, rule: str) -> Bools:
    """States whose visits can be told apart, bool (states,): two actions, two successors, all."""
    if rule == "none":
        return np.ones(process.states, bool)
    return (process.state_actions if rule == "actions" else process.state_successors) >= 2


def _penalised(process: EmpiricalProcess, credit: Floats, penalty: float) -> Floats:
    if not penalty or not process.invalid.any():
        return credit
    invalid = process.invalid.astype(np.float64)
    excess = process.pair_mean(invalid) - process.state_mean(invalid)[process.pair_state]
    return credit - penalty * excess


def _per_visit(
    process: EmpiricalProcess, values: Values, credit: Floats, step_credit: Floats
) -> StepCredit:
    pair = process.pair
    return StepCredit(
        values.state[process.state], values.pair[pair], credit[pair], step_credit[pair]
    )


def _compute(evidence: Evidence, options: CreditOptions, group_advantage: Floats) -> StepCredit:
    step = crbc(evidence.process, options, evidence.step_penalty / evidence.success_reward)
    return replace(step, trajectory_weight=options.w_g, step_weight=options.w_s)


CRBC = Method(
    name="crbc",
    kind="step",
    summary="closure action value less state value, over the anchor's sigma",
    source="CRBC (arXiv 2609.35082), eqs. 4-15",
    notes="No public code is known. depth=0 is the visit-local estimate, depth=inf the closure.",
    options=CreditOptions,
    compute=_compute,
    trajectory=lambda options, run: run,
    per_run=frozenset(["intermediate_rewards"]),
)
