"""A small policy on the board, its rollouts, and clipped policy-gradient steps.

The gradient is PPO's clipped objective (arXiv 1707.06347, eq. 7) with a given advantage per step
and no critic. Groups weigh the same, and inside a group its steps (CRBC, arXiv 2609.35082, eq. 15).
Adam is used without gradient clipping, weight decay or entropy bonus, so that multiplying all
advantages by a number changes almost nothing: methods differ in direction, not in step size.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from rooms import ACTIONS, FEATURES, STEP_LIMIT, Bools, Floats, Ints, Rooms
from torch import Tensor, nn


@dataclass(frozen=True)
class Rollouts:
    """Finished rollouts of some groups, one entry per step, sorted by rollout and step.

    Attributes:
      room: int64 (groups,), room of each group.
      rollout: int64 (n,), rollout of each step; group g has rollouts g*size to (g+1)*size - 1.
      step: int64 (n,), from 0.
      state, action, after: int64 (n,), state, index in ACTIONS, next state.
      log_chance: float64 (n,), log-probability of the action under the policy that acted.
      success: bool (rollouts,).
      size: rollouts of a group.
    """

    room: Ints
    rollout: Ints
    step: Ints
    state: Ints
    action: Ints
    after: Ints
    log_chance: Floats
    success: Bools
    size: int


class Policy(nn.Module):
    """Two hidden layers on the planes of a board; the last layer starts near zero."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        sizes = (FEATURES, width, width, len(ACTIONS))
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layer = nn.Linear(inputs, outputs)
            scale = 0.01 if outputs == len(ACTIONS) else 2**0.5
            nn.init.orthogonal_(layer.weight, scale, generator=generator)
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, planes: Tensor) -> Tensor:
        """Log-probabilities, (n, 4)."""
        return torch.log_softmax(self.layers(planes), dim=-1)

    @torch.no_grad()
    def chances(self, planes: NDArray[np.float32]) -> Floats:
        """Action probabilities, float64 (n, 4)."""
        chances: Floats = self(torch.from_numpy(planes)).double().exp().numpy()
        return chances


def sample(
    policy: Policy, rooms: Rooms, room: Ints, size: int, rng: np.random.Generator
) -> Rollouts:
    """`size` rollouts from the start of each of `room`, all stepped together."""
    state = np.repeat(rooms.start[room], size)
    running = np.arange(len(state))
    success = np.zeros(len(state), bool)
    parts = []
    for step in range(STEP_LIMIT):
        at = state[running]
        chance = policy.chances(rooms.planes[at])
        draw = rng.random(len(at))[:, None] * chance.sum(axis=1, keepdims=True)
        action = np.minimum((chance.cumsum(axis=1) <= draw).sum(axis=1), len(ACTIONS) - 1)
        after = rooms.successor[at, action]
        log_chance = np.log(chance[np.arange(len(at)), action])
        parts.append((running, np.full(len(at), step), at, action, after, log_chance))
        state[running] = after
        success[running] = rooms.is_goal[after]
        running = running[~rooms.is_goal[after]]
        if not len(running):
            break
    rollout, *rest = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(rollout, kind="stable")
    step, at, action, after, log_chance = (column[order] for column in rest)
    return Rollouts(room, rollout[order], step, at, action, after, log_chance, success, size)


@dataclass(frozen=True)
class Optimiser:
    """How a batch is used.

    Attributes:
      rate: Adam's learning rate.
      epochs: passes over the batch.
      batches: steps of Adam per pass.
      clip: PPO's clipping range of the probability ratio.
    """

    rate: float = 1e-3
    epochs: int = 4
    batches: int = 4
    clip: float = 0.2


def update(
    policy: Policy,
    adam: torch.optim.Adam,
    planes: NDArray[np.float32],
    rollouts: Rollouts,
    advantage: Floats,
    options: Optimiser,
    rng: np.random.Generator,
) -> None:
    """Clipped policy-gradient steps.

    Args:
      policy, adam: changed.
      planes: float32 (n, FEATURES), the board of each step.
      rollouts: the steps.
      advantage: float64 (n,), credit of each step; 0 where a step has none.
      options: see there.
      rng: order of the steps.
    """
    group = rollouts.rollout // rollouts.size
    share = 1.0 / np.bincount(group)[group]
    weight = torch.from_numpy(share / share.mean()).float()
    board = torch.from_numpy(planes)
    action = torch.from_numpy(rollouts.action)[:, None]
    before = torch.from_numpy(rollouts.log_chance).float()
    credit = torch.from_numpy(advantage).float()
    for _ in range(options.epochs):
        for part in np.array_split(rng.permutation(len(group)), options.batches):
            index = torch.from_numpy(part)
            now = policy(board[index]).gather(1, action[index])[:, 0]
            ratio = (now - before[index]).exp()
            clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
            gain = torch.minimum(ratio * credit[index], clipped * credit[index])
            loss = -(gain * weight[index]).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
