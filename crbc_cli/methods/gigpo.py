"""GiGPO: discounted returns compared between visits to one anchor (arXiv 2505.10978).

    R_t = Σ_{k≥t} γ^(k−t) r_k                        (eq. 5; the last step is not discounted)
    R_t ← R_t − penalty · 1{invalid}                 (after discounting, not carried back)
    A_S = (R_t − mean)/(std + 1e-6)   or   R_t − mean   over the visits of the anchor   (eqs. 6-7)
    A   = w_g · A_G + w_s · A_S                      (eq. 8; A_G is scaled iff A_S is)

Visits are compared, not actions: two visits with the same action get different credits, and one
action with different outcomes is credited. A lone visit gets 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.errors import OptionError
from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.method import Method, MethodOptions, StepCredit, same_mode, setting
from crbc_cli.methods.normalise import NORMS, standardised
from crbc_cli.methods.similarity import RULES, merged_anchors

__all__ = ["GIGPO", "GigpoOptions", "gigpo"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GigpoOptions(MethodOptions):
    """Defaults: the published launch scripts and the baseline of the CRBC paper."""

    gamma: float = setting(0.95, "Discount of step rewards.", low=0, high=1)
    norm: str = setting(
        "mean_std", "Divide by the std of the anchor's returns, or not.", choices=NORMS
    )
    w_g: float = setting(1.0, "Weight of the group advantage.")
    w_s: float = setting(1.0, "Weight of the step credit (step_advantage_w).")
    penalty: float | None = setting(
        None, "Taken off the return of invalid rows; by default what the run says.", low=0
    )
    similarity: str = setting(
        "none",
        "Merge anchors whose texts are alike: order-free, or first-fit as published.",
        choices=("none", *RULES),
    )
    threshold: float = setting(0.95, "Smallest similarity of texts that are merged.", low=0, high=1)


def gigpo(evidence: Evidence, options: GigpoOptions, group_advantage: Floats) -> StepCredit:
    """Numbers of GiGPO.

    `action_value` is R_t of the visit itself, `state_value` its mean at the anchor, `credit` their
    difference, `step_credit` A_S.

    Raises:
      OptionError: similarity without anchor texts.
    """
    process = evidence.process
    returns = evidence.step_returns(options.gamma, options.penalty)
    anchor = process.state
    if options.similarity != "none":
        if evidence.anchor_texts is None:
            raise OptionError(
                f"gigpo:similarity={options.similarity} compares texts, and these anchors are none",
                todo="use an anchor that is one text column",
            )
        merged = merged_anchors(
            evidence.anchor_texts, process.state_group, options.similarity, options.threshold
        )
        anchor = merged[anchor]
    credit, scaled = standardised(returns, anchor, process.states)
    step = scaled if options.norm == "mean_std" else credit
    return StepCredit(returns - credit, returns, credit, step, options.w_g, options.w_s)


GIGPO = Method(
    name="gigpo",
    kind="step",
    summary="own discounted return against the other visits of the anchor",
    source="GiGPO (arXiv 2505.10978), verl-agent gigpo/core_gigpo.py",
    notes="The published similarity mode (first-fit) depends on row order and on the direction "
    "of comparison; order-free does not. Published runs use norm=mean on WebShop and Sokoban, "
    "mean_std on ALFWorld and Search.",
    options=GigpoOptions,
    compute=gigpo,
    trajectory=lambda options, run: same_mode(options.norm, run),
    needs=lambda options: frozenset(["texts"] if options.similarity != "none" else []),
)
