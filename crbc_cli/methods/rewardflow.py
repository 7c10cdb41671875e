"""RewardFlow: rewards spread backwards over the graph by maximum (arXiv 2603.18859).

    V(s) ← max(own reward, γ · max over observed transitions s → x of V(x))    1000 sweeps at most
    r_t  = V(s_{t+1}) − V(s_t);  the last step keeps its environment reward
    A_S  = r_t − mean over the visits of the anchor, or that over (std + 1e-6)
    A    = w_g · A_G + w_s · A_S

A node's own reward is that of the step which led to it where it is first met (0 at a rollout's
start); all successes of a group end in one node; self-loops do not count; where a failure ended
is not a node. An extremum, like GraphGPO.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.method import Method, MethodOptions, StepCredit, same_mode, setting
from crbc_cli.methods.normalise import NORMS, standardised
from crbc_cli.process.distance import discounted_maximum
from crbc_cli.process.empirical import SUCCESS

__all__ = ["REWARDFLOW", "RewardflowOptions", "rewardflow"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RewardflowOptions(MethodOptions):
    """Defaults: the published code and its ALFWorld script."""

    gamma: float = setting(0.9, "Discount per transition.", low=0, high=1)
    sweeps: int = setting(1000, "Most sweeps of the backup.", low=1)
    edges: str = setting(
        "directed",
        "Rewards flow against observed transitions only, or both ways (an earlier published "
        "version).",
        choices=("directed", "both"),
    )
    last: str = setting(
        "reward",
        "A success's last step keeps its environment reward, or gets V(success) − V like others.",
        choices=("reward", "difference"),
    )
    norm: str = setting("mean", "Divide by the std of the anchor, or not.", choices=NORMS)
    w_g: float = setting(1.0, "Weight of the group advantage.")
    w_s: float = setting(1.0, "Weight of the step credit (step_advantage_w).")
    penalty: float | None = setting(
        None, "Taken off the step reward of invalid rows; by default what the run says.", low=0
    )


def rewardflow(
    evidence: Evidence, options: RewardflowOptions, group_advantage: Floats
) -> StepCredit:
    """Numbers of RewardFlow.

    `state_value` is V, `action_value` the step reward r_t, `credit` r_t less its mean at the
    anchor.
    """
    process = evidence.process
    reward = evidence.rewards.value[evidence.rewards.kept]
    success = process.successor == SUCCESS
    node = np.where(success, process.states + process.visit_group, process.successor)
    nodes = process.states + process.groups
    moved = np.flatnonzero((node >= 0) & (node != process.state))
    source, target = process.state[moved], node[moved]
    own = _own_rewards(evidence, reward, moved, target, nodes)
    if options.edges == "both":
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    value = discounted_maximum(source, target, own, options.gamma, options.sweeps)
    differs = (node >= 0) & (~success | (options.last == "difference"))
    step_reward = reward.copy()
    step_reward[differs] = value[node[differs]] - value[process.state[differs]]
    step_reward -= evidence.penalties(options.penalty)
    credit, scaled = standardised(step_reward, process.state, process.states)
    step = scaled if options.norm == "mean_std" else credit
    return StepCredit(value[process.state], step_reward, credit, step, options.w_g, options.w_s)


def _own_rewards(
    evidence: Evidence, reward: Floats, moved: Ints, target: Ints, nodes: int
) -> Floats:
    """Reward with which each node is first met, 0 for nodes on no transition; float64 (nodes,)."""
    process = evidence.process
    arrival = np.roll(reward, 1)
    arrival[evidence.first] = 0.0
    met = np.stack([process.state[moved], target], axis=1).ravel()
    worth = np.stack([arrival[moved], reward[moved]], axis=1).ravel()
    own = np.zeros(nodes)
    own[met[::-1]] = worth[::-1]
    return own


REWARDFLOW = Method(
    name="rewardflow",
    kind="step",
    summary="gain of the best observed discounted reward from step to step",
    source="RewardFlow (arXiv 2603.18859), tmlr-group/RewardFlow rewardflow/",
    notes="The code knows a success's final node only where the batch went on after it; with "
    "last=difference the last step then gets V(success) - V(s). Its first version let rewards "
    "flow both ways (edges=both).",
    options=RewardflowOptions,
    compute=rewardflow,
    trajectory=lambda options, run: same_mode(options.norm, run),
)
