"""Evidence for the methods, from rollouts written as paths or drawn at random."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_cli.anchors.ids import dense_ids
from crbc_cli.methods.evidence import Evidence, terminal_states
from crbc_cli.methods.method import StepCredit
from crbc_cli.methods.registry import parse_method
from crbc_cli.methods.trajectory import Episodes, group_advantage
from crbc_cli.options import GroupAdvantageOptions
from crbc_cli.process.empirical import Rewards, Visits, build_process

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rollout:
    """One rollout; `Rollout("S-a M-p", True)` visits S with action a, then M with p, and succeeds.

    Attributes:
      path: "ANCHOR-ACTION …".
      success: its outcome.
      then: observation after the last action, if logged.
      invalid: steps the environment refused.
      rewards: environment reward of each step, if it is not the outcome.
      group: of which group; groups come in increasing order.
    """

    path: str
    success: bool
    then: str = ""
    invalid: Sequence[int] = ()
    rewards: Sequence[float] = ()
    group: int = 0
    visits: list[list[str]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "visits", [visit.split("-") for visit in self.path.split()])


GOLDEN = [
    Rollout("S-a M-p", True),
    Rollout("S-a M-q", False),
    Rollout("S-b N-c M-p", True),
    Rollout("S-b N-d", False),
]
"""The golden group: V(M) = 0.98·2/3, V(N) = 0.98·V(M)/2, V(S) = 0.98·(V(M) + V(N))/2 at β 0.98."""


def merged(
    rollouts: Sequence[Rollout], *, success_reward: float = 10.0, penalty: float = 0.0
) -> Evidence:
    """All rollouts merged; the reward is `success_reward` times the outcome unless they say."""
    steps = [(number, r, t) for number, r in enumerate(rollouts) for t in range(len(r.visits))]
    keys = [[_key(r.visits[t][part]) for _, r, t in steps] for part in (0, 1)]
    success = np.array([r.success for r in rollouts])
    nothing = np.zeros(len(rollouts), bool)
    visits = Visits(
        np.array([r.group for _, r, _ in steps]),
        np.array([number for number, _, _ in steps]),
        np.array(keys[0], np.uint64),
        np.array(keys[1], np.uint64),
        success,
        success.astype(np.float64),
        nothing,
        np.zeros(len(rollouts), np.uint64),
        nothing,
        None,
        np.array([t in r.invalid for _, r, t in steps]),
    )
    process, _ = build_process(visits, dense_ids)
    terminal = terminal_states(
        process,
        visits.anchor_key,
        np.array([_key(r.then) for r in rollouts], np.uint64),
        np.array([bool(r.then) for r in rollouts]),
        dense_ids,
    )
    first = np.flatnonzero(np.diff(np.maximum.accumulate(process.state), prepend=-1))
    evidence = Evidence.from_outcomes(
        process,
        success_reward=success_reward,
        step_penalty=penalty,
        terminal_state=terminal,
        anchor_texts=[steps[i][1].visits[steps[i][2]][0] for i in first],
    )
    if not any(r.rewards for r in rollouts):
        return evidence
    rewards = np.array([r.rewards[t] for _, r, t in steps])
    return Evidence(
        process,
        Rewards(rewards, process.rollout, np.ones(len(rewards), bool)),
        np.array([sum(r.rewards) for r in rollouts]),
        success_reward,
        penalty,
        terminal,
        evidence.anchor_texts,
    )


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


ROWS = {"episode_stats": "rows", "singleton": "raw", "success_reward": 10.0}
"""Statistics of the published code: every row has a vote."""


def numbers(
    evidence: Evidence, spec: str, run: Mapping[str, Any] | None = None
) -> tuple[StepCredit, Floats]:
    """(numbers of one method, its A_G at each visit: zeros where it has none)."""
    options = GroupAdvantageOptions(**(run or {}))
    chosen = parse_method(spec, group_advantage=options)
    process = evidence.process
    rule = chosen.trajectory(options)
    term = np.zeros(len(process.state))
    if rule is not None:
        episodes = Episodes(
            process.rollout,
            evidence.rollout_group,
            process.groups,
            evidence.episode_reward,
            np.ones(len(evidence.episode_reward), bool),
            process.invalid,
        )
        term = group_advantage(episodes, rule)
    return chosen.compute(evidence, term), term


def step_credit(evidence: Evidence, spec: str) -> Floats:
    """A_S of one method."""
    return numbers(evidence, spec)[0].step_credit


def random_rollouts(
    seed: int, *, groups: int = 3, most: int = 6, steps: int = 8, shaped: bool = False
) -> list[Rollout]:
    """Walks over five anchors with up to three actions each, so that anchors and cycles recur.

    Args:
      seed: same seed, same rollouts.
      groups, most, steps: number of groups, most rollouts of one, most steps of one.
      shaped: give every step a reward of its own, a multiple of 1/4.
    """
    rng = np.random.default_rng(seed)
    rollouts = []
    for group in range(groups):
        for _ in range(rng.integers(1, most + 1)):
            length = int(rng.integers(1, steps + 1))
            path = " ".join(f"{rng.choice(list('ABCDE'))}-{rng.choice(list('xyz'))}"
                            for _ in range(length))  # fmt: skip
            rollouts.append(
                Rollout(
                    path,
                    bool(rng.random() < 0.5),
                    then=str(rng.choice([*"ABCDEF", ""])),
                    invalid=np.flatnonzero(rng.random(length) < 0.2).tolist(),
                    rewards=(rng.integers(-2, 5, length) / 4).tolist() if shaped else (),
                    group=group,
                )
            )
    return rollouts
