"""HGPO: discounted returns compared between visits with the same recent history (arXiv 2602.22817).

R_t is that of GiGPO. For k = 1 … min(history + 1, t) a visit is compared with all visits of its
group whose last k anchors are the same, itself included:

    a_k = (R_t − mean)/(std + 1e-6)  (ddof 0)   or   R_t − mean      where two visits or more share
    A   = Σ_k w_k·a_k / (Σ_k w_k + 1e-6),  w_k = (k + 1)^α           over the a_k that are not 0

Leaving out exact zeros makes a visit's other comparisons count for more. There is no A_G, unless
`base_group` takes it in as the item k = 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.method import Method, MethodOptions, StepCredit, same_mode, setting
from crbc_cli.methods.normalise import EPS, NORMS, Classes, standardised

__all__ = ["HGPO", "HgpoOptions", "hgpo"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HgpoOptions(MethodOptions):
    """Defaults: the published recipe; γ as in GiGPO's."""

    gamma: float = setting(0.95, "Discount of step rewards.", low=0, high=1)
    history: int = setting(2, "Earlier anchors that may count (published: 2 or 4).", low=0)
    alpha: float = setting(
        1.0, "Growth of the weights with the length of history.", low=-10, high=10
    )
    norm: str = setting("mean_std", "Divide by the std of each comparison, or not.", choices=NORMS)
    base_group: bool = setting(False, "Take the group advantage in as history of length 0.")
    w_s: float = setting(1.0, "Weight of the step credit.")
    penalty: float | None = setting(
        None, "Taken off the return of invalid rows; by default what the run says.", low=0
    )


class _Items:
    """Weighted means over the items that are not exactly 0, one per visit."""

    def __init__(self, visits: int) -> None:
        self.total, self.credit, self.scaled = np.zeros((3, visits))

    def add(self, rows: Ints, credit: Floats, scaled: Floats, weight: float) -> None:
        self.total[rows] += np.where(scaled != 0, weight, 0.0)
        self.credit[rows] += weight * credit
        self.scaled[rows] += weight * scaled

    def mean(self, values: Floats) -> Floats:
        return values / (self.total + EPS)


def hgpo(evidence: Evidence, options: HgpoOptions, group_advantage: Floats) -> StepCredit:
    """Numbers of HGPO.

    `action_value` is R_t, `state_value` its mean at the anchor, `credit` the weighted mean of the
    undivided comparisons, `step_credit` that of the comparisons as `norm` says.
    """
    process = evidence.process
    returns = evidence.step_returns(options.gamma, options.penalty)
    step = np.arange(len(returns)) - evidence.first[process.rollout]
    items = _Items(len(returns))
    if options.base_group:
        everywhere, base = np.arange(len(returns)), np.nan_to_num(group_advantage)
        items.add(everywhere, base, base, 1.0)
    rows, context, members = np.arange(len(returns)), process.state, process.state_visits
    for k in range(1, options.history + 2):
        if k > 1:
            far = step[rows] >= k - 1
            rows, context = rows[far], context[far]
            code = context * process.states + process.state[rows - k + 1]
            classes = Classes.build(code)
            context, members = classes.of, classes.count
        shared = members[context] > 1
        rows, context = rows[shared], context[shared]
        if not len(rows):
            break
        credit, scaled = standardised(returns[rows], context, len(members), ddof=0)
        items.add(rows, credit, scaled, (k + 1.0) ** options.alpha)
    credit, scaled = items.mean(items.credit), items.mean(items.scaled)
    mean = process.state_mean(returns)[process.state]
    chosen = scaled if options.norm == "mean_std" else credit
    return StepCredit(mean, returns, credit, chosen, 0.0, options.w_s)


HGPO = Method(
    name="hgpo",
    kind="step",
    summary="own discounted return against visits with the same recent history",
    source="HGPO (arXiv 2602.22817), verl-agent recipe/hgpo/core_hgpo.py",
    notes="No group advantage unless base_group. Comparisons that give exactly 0 do not count in "
    "the weighted mean.",
    options=HgpoOptions,
    compute=hgpo,
    trajectory=lambda options, run: same_mode(options.norm, run) if options.base_group else None,
)
