"""GraphGPO: the shortest observed way to success after an action (arXiv 2605.26684).

    d(success) = 0;  d(s) = 1 + min over observed transitions s → x of d(x)
    unreachable: one more than the group's largest finite distance
    return(s, a, x) = success_reward · ω^(d(x) + 1)    paper, eq. 4
                    = success_reward · ω^d(x)          code
    A_S = (return − mean)/(std + 1e-6) over the transitions (paper) or visits (code) of the anchor
    A   = w_g · A_G + w_s · A_S

An extremum: one lucky continuation outranks a reliable longer one. A rollout that fails ends in
the observation it really ended in, so that its last action inherits that state's distance.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.method import Method, MethodOptions, StepCredit, same_mode, setting
from crbc_cli.methods.normalise import NORMS, distinct_transitions, standardised
from crbc_cli.process.distance import success_distance
from crbc_cli.process.empirical import FAILURE, SUCCESS

__all__ = ["GRAPHGPO", "GraphgpoOptions", "graphgpo"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GraphgpoOptions(MethodOptions):
    """Defaults: the published code, and its ω for ALFWorld (0.2 on WebShop, 0.8 on Sokoban)."""

    variant: str = setting(
        "reference",
        "What `variant` stands for below: reference = next, visits, reward; "
        "paper = transition, transitions, outcome.",
        choices=("reference", "paper"),
    )
    omega: float = setting(0.1, "Discount per step of distance.", low=0, high=1)
    exponent: str = setting(
        "variant",
        "Distance from the next state, or from the transition (its own cost of 1 included).",
        choices=("variant", "next", "transition"),
    )
    statistics: str = setting(
        "variant",
        "What has one vote in mean and std of an anchor.",
        choices=("variant", "visits", "transitions"),
    )
    success: str = setting(
        "variant",
        "A rollout reaches the success node if its reward is positive, or by its outcome.",
        choices=("variant", "reward", "outcome"),
    )
    failed_ends: str = setting(
        "observation",
        "Where a failure's last transition leads: its last observation, or nowhere.",
        choices=("observation", "nowhere"),
    )
    unreachable: str = setting(
        "beyond",
        "States without a way to success: one step beyond the farthest, or a return of 0.",
        choices=("beyond", "zero"),
    )
    normalize_distance: bool = setting(False, "Exponent d(x) − d(s) + 1 instead (code only).")
    norm: str = setting("mean_std", "Divide by the std of the anchor, or not.", choices=NORMS)
    w_g: float = setting(1.0, "Weight of the group advantage.")
    w_s: float = setting(1.0, "Weight of the step credit.")
    penalty: float | None = setting(
        None, "Taken off the return of invalid rows; by default what the run says.", low=0
    )

    def resolved(self, name: str) -> str:
        """Value of exponent, statistics or success once `variant` is filled in."""
        value: str = getattr(self, name)
        return _VARIANTS[self.variant][name] if value == "variant" else value


_VARIANTS = {
    "reference": {"exponent": "next", "statistics": "visits", "success": "reward"},
    "paper": {"exponent": "transition", "statistics": "transitions", "success": "outcome"},
}


def graphgpo(evidence: Evidence, options: GraphgpoOptions, group_advantage: Floats) -> StepCredit:
    """Numbers of GraphGPO.

    `action_value` is the return of the visit's transition, `state_value` its mean at the anchor,
    `credit` their difference, `step_credit` A_S.
    """
    process = evidence.process
    successor = _graph(evidence, options)
    distance, following = _distances(evidence, successor, options.unreachable)
    exponent = following + float(options.resolved("exponent") == "transition")
    if options.normalize_distance:
        with np.errstate(invalid="ignore"):  # inf − inf: nothing reaches success from either
            exponent = following - distance[process.state] + 1
    returns = evidence.success_reward * _powers(options.omega, exponent)
    returns = returns - evidence.penalties(options.penalty)
    by = None
    if options.resolved("statistics") == "transitions":
        by = distinct_transitions(process, successor)
    credit, scaled = standardised(returns, process.state, process.states, by=by)
    step = scaled if options.norm == "mean_std" else credit
    return StepCredit(returns - credit, returns, credit, step, options.w_g, options.w_s)


def _graph(evidence: Evidence, options: GraphgpoOptions) -> Ints:
    """Node after each visit: a state, SUCCESS, FAILURE (nowhere), or an unvisited observation."""
    process, last = evidence.process, evidence.last
    by_reward = options.resolved("success") == "reward"
    reached = evidence.episode_reward > 0 if by_reward else process.rollout_success
    ended = process.successor[last]
    if options.failed_ends == "observation":
        seen = evidence.terminal_state
        ended = np.where((ended < 0) & (seen >= 0), seen, ended)
    successor = process.successor.copy()
    successor[last] = np.where(reached, SUCCESS, np.where(ended == SUCCESS, FAILURE, ended))
    return successor


def _distances(evidence: Evidence, successor: Ints, unreachable: str) -> tuple[Floats, Floats]:
    """(d of each state, d of the node after each visit); inf where `unreachable` is zero."""
    process = evidence.process
    nodes = max(process.states, int(successor.max(initial=0)) + 1)
    found = success_distance(process.state, successor, nodes)[: process.states]
    farthest = np.zeros(process.groups, np.int64)
    np.maximum.at(farthest, process.state_group, found)
    beyond = np.full(process.groups, np.inf)
    if unreachable == "beyond":
        beyond = farthest + 1.0
    distance: Floats = np.where(found < 0, beyond[process.state_group], found).astype(np.float64)
    following = beyond[process.visit_group]
    visited = (successor >= 0) & (successor < process.states)
    following[visited] = distance[successor[visited]]
    following[successor == SUCCESS] = 0.0
    return distance, following


def _powers(omega: float, exponent: Floats) -> Floats:
    """ω^exponent of whole numbers; 0 where the exponent is not finite."""
    finite = np.isfinite(exponent)
    whole = np.where(finite, exponent, 0.0).astype(np.int64)
    table = omega ** np.arange(int(whole.max(initial=0)) + 1)
    return np.where(finite, table[whole], 0.0)


GRAPHGPO = Method(
    name="graphgpo",
    kind="step",
    summary="discounted length of the shortest observed way to success after the action",
    source="GraphGPO (arXiv 2605.26684), recipe/GraphGPO/core_graph.py",
    notes="In the code the exponent leaves out the cost of the step itself, a rollout succeeds if "
    "its reward is positive, and rows, not transitions, are averaged. Published omegas: 0.1 "
    "ALFWorld, 0.2 WebShop, 0.8 Sokoban.",
    options=GraphgpoOptions,
    compute=graphgpo,
    trajectory=lambda options, run: same_mode(options.norm, run),
    needs=lambda options: frozenset(["terminal"] if options.failed_ends == "observation" else []),
)
