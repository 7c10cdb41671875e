"""G2PO: the value of the next node, compared at the node and over the graph (arXiv 2606.22995).

    v_{i,t} = γ^(T−t+1)·R_i ;   V(s) = mean of v over the visits of s
    A_NC    = (V(x) − mean)/(std + 1e-6)   over the visits of the node
    A_EC    = (δ − mean)/(std + 1e-6),  δ = V(x) − V(s),   over the whole group
    A_S     = node · A_NC + edge · A_EC ;   A = w_g · A_G + w_s · A_S

V is the visit-local value of CRBC up to scale, so evidence reaches one transition further. The
terminal node is worth the success reward if the rollout's reward is exactly that, else 0 (code);
or the rollout's reward (paper). The penalty is taken off V(x) in A_NC only, as in the code.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.method import Method, MethodOptions, StepCredit, same_mode, setting
from crbc_cli.methods.normalise import NORMS, distinct_transitions, standardised

__all__ = ["G2PO", "G2poOptions", "g2po"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class G2poOptions(MethodOptions):
    """Defaults: the published code (which fixes γ) and its ALFWorld script."""

    variant: str = setting(
        "reference",
        "What `variant` stands for below: reference = exact, visits; paper = reward, transitions.",
        choices=("reference", "paper"),
    )
    gamma: float = setting(0.95, "Discount per step.", low=0, high=1)
    terminal: str = setting(
        "variant",
        "Worth of the terminal node: the success reward if the rollout's reward is exactly that "
        "(else 0), or the rollout's reward.",
        choices=("variant", "exact", "reward"),
    )
    statistics: str = setting(
        "variant",
        "What has one vote in mean and std over the group.",
        choices=("variant", "visits", "transitions"),
    )
    node: float = setting(1.0, "Weight of the node-centric term A_NC.")
    edge: float = setting(1.0, "Weight of the edge-centric term A_EC.")
    norm: str = setting("mean_std", "Divide both terms by their std, or neither.", choices=NORMS)
    w_g: float = setting(1.0, "Weight of the group advantage.")
    w_s: float = setting(1.0, "Weight of the step credit (step_advantage_w).")
    penalty: float | None = setting(
        None, "Taken off the next value of invalid rows; by default what the run says.", low=0
    )

    def resolved(self, name: str) -> str:
        """Value of terminal or statistics once `variant` is filled in."""
        value: str = getattr(self, name)
        return _VARIANTS[self.variant][name] if value == "variant" else value


_VARIANTS = {
    "reference": {"terminal": "exact", "statistics": "visits"},
    "paper": {"terminal": "reward", "statistics": "transitions"},
}


def g2po(evidence: Evidence, options: G2poOptions, group_advantage: Floats) -> StepCredit:
    """Numbers of G2PO.

    `state_value` is V of the node, `action_value` V of the node the visit leads to, `credit` the
    two terms undivided, `step_credit` A_S. Where the published A_EC is NaN (a group of one row)
    it is 0.
    """
    process = evidence.process
    value = process.state_mean(options.gamma * evidence.final_returns(options.gamma))
    here, following = value[process.state], _following(evidence, value, options)
    node, node_scaled = standardised(
        following - evidence.penalties(options.penalty), process.state, process.states
    )
    by = None
    if options.resolved("statistics") == "transitions":
        by = distinct_transitions(process, process.successor)
    edge, edge_scaled = standardised(following - here, process.visit_group, process.groups, by=by)
    credit = options.node * node + options.edge * edge
    scaled = options.node * node_scaled + options.edge * edge_scaled
    step = scaled if options.norm == "mean_std" else credit
    return StepCredit(here, following, credit, step, options.w_g, options.w_s)


def _following(evidence: Evidence, value: Floats, options: G2poOptions) -> Floats:
    """V of the node after each visit, float64 (n,)."""
    process, worth = evidence.process, evidence.episode_reward
    if options.resolved("terminal") == "exact":
        worth = np.where(worth == evidence.success_reward, worth, 0.0)
    inner = process.successor >= 0
    following = worth[process.rollout]
    following[inner] = value[process.successor[inner]]
    return following


G2PO = Method(
    name="g2po",
    kind="step",
    summary="visit-local value of the next anchor, against the anchor's and the group's",
    source="G2PO (arXiv 2606.22995), Nala-YN/G2PO g2po/core_g2po.py",
    notes="The code fixes gamma at 0.95, sees a graded reward as failure at the end, and averages "
    "rows; the paper averages the edges of the graph. Published runs use norm=mean on WebShop.",
    options=G2poOptions,
    compute=g2po,
    trajectory=lambda options, run: same_mode(options.norm, run),
)
