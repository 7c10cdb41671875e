"""The trainer's own parts: sampling, the log it writes, clipped steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pipe import annotate, log_of
from policy import Optimiser, Policy, Rollouts, sample, update
from rooms import ACTIONS, Rooms

SIZE = 4


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return Rooms.draw(4, seed=11)


@pytest.fixture
def policy() -> Policy:
    return Policy(16, torch.Generator().manual_seed(3))


@pytest.fixture
def rollouts(rooms: Rooms, policy: Policy) -> Rollouts:
    return sample(policy, rooms, np.array([2, 0]), SIZE, np.random.default_rng(4))


def test_rollouts_follow_the_table_of_successors(rooms: Rooms, rollouts: Rollouts) -> None:
    assert (rollouts.after == rooms.successor[rollouts.state, rollouts.action]).all()
    for number in range(2 * SIZE):
        own = rollouts.rollout == number
        assert rollouts.step[own].tolist() == list(range(own.sum()))
        assert rollouts.state[own][0] == rooms.start[rollouts.room[number // SIZE]]
        assert (rollouts.state[own][1:] == rollouts.after[own][:-1]).all()
        assert rollouts.success[number] == rooms.is_goal[rollouts.after[own][-1]]
        assert rollouts.success[number] or own.sum() == 15
        assert not rooms.is_goal[rollouts.state[own]].any()


def test_sampled_success_is_the_exact_one(rooms: Rooms, policy: Policy) -> None:
    exact = rooms.success(policy.chances(rooms.planes))
    many = sample(policy, rooms, np.arange(4), 2000, np.random.default_rng(5))
    found = many.success.reshape(4, 2000).mean(axis=1)
    assert np.abs(found - exact).max() < 4 * 0.5 / 2000**0.5
    assert many.log_chance == pytest.approx(
        np.log(policy.chances(rooms.planes[many.state])[np.arange(len(many.state)), many.action])
    )


def test_the_log_goes_through_annotate(rooms: Rooms, rollouts: Rollouts) -> None:
    log = log_of(rooms, rollouts)
    credit = annotate(log, "rloo")
    outcome = rollouts.success.reshape(2, SIZE).astype(float)
    others = (outcome.sum(axis=1, keepdims=True) - outcome) / (SIZE - 1)
    expected = (outcome - others).ravel()[rollouts.rollout]
    assert credit.advantage == pytest.approx(expected, abs=1e-12)
    assert credit.start > credit.credit > 0
    with pytest.raises(RuntimeError, match="no-such-method"):
        annotate(log, "no-such-method")


def test_the_first_step_is_along_the_policy_gradient(
    rooms: Rooms, policy: Policy, rollouts: Rollouts
) -> None:
    """One plain descent step against the gradient of Σ weight · advantage · log π."""
    advantage = np.random.default_rng(6).normal(size=len(rollouts.state))
    planes = rooms.planes[rollouts.state]
    group = rollouts.rollout // SIZE
    share = torch.from_numpy(1 / np.bincount(group)[group] / 2).float()
    chosen = policy(torch.from_numpy(planes))[range(len(group)), rollouts.action]
    gain = (share * torch.from_numpy(advantage).float() * chosen).sum()
    gradient = torch.autograd.grad(gain, list(policy.parameters()))
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    plain = torch.optim.SGD(policy.parameters(), lr=1e-2)
    once = Optimiser(epochs=1, batches=1)
    update(policy, plain, planes, rollouts, advantage, once, np.random.default_rng(7))
    for old, new, slope in zip(before, policy.parameters(), gradient, strict=True):
        assert torch.allclose(new - old, 1e-2 * slope, atol=1e-6)


def test_clipping_stops_what_went_far_enough(
    rooms: Rooms, policy: Policy, rollouts: Rollouts
) -> None:
    """With one action praised everywhere, its ratio does not run away from 1.2."""
    planes = rooms.planes[rollouts.state]
    praised = (rollouts.action == 0).astype(float)
    fast = torch.optim.SGD(policy.parameters(), lr=0.5)
    many = Optimiser(epochs=200, batches=1)
    update(policy, fast, planes, rollouts, praised, many, np.random.default_rng(8))
    now = np.log(policy.chances(planes)[np.arange(len(planes)), rollouts.action])
    ratio = np.exp(now - rollouts.log_chance)[rollouts.action == 0]
    assert 1.15 < np.median(ratio) < 1.5
    assert len(ACTIONS) == 4
