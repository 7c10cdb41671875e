"""Advantage estimators for training loops, on batches shaped as verl-agent and verl hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import trainer_batches as made
from trainer_batches import ROLLOUTS, STEPS, objects, tensor

import crbc_cli
from crbc_cli.trainers.online import (
    compute_crbc_advantage,
    compute_crbc_outcome_advantage,
    positions,
)

CREDIT = made.true_credit()
STEP_CREDIT = [CREDIT[r.group, r.place, s] for r, s in STEPS]


def verl_agent(order: Any = slice(None), **how: Any) -> dict[str, Any]:
    """Arguments of the estimator for rows of the batch, in this order."""
    batch = made.verl_agent_batch()
    mask = batch.batch["response_mask"]
    rewards = mask.float() * 0
    rewards[:, 0] = batch.non_tensor_batch["episode_rewards"]
    rows = {name: values[order] for name, values in batch.non_tensor_batch.items()}
    return {
        "token_level_rewards": rewards[order],
        "step_rewards": None,
        "response_mask": mask[order],
        "anchor_obs": rows["anchor_obs"],
        "index": rows["uid"],
        "traj_index": rows["traj_uid"],
        "text_actions": rows["text_actions"],
        "success_at": 10.0,
        "action_tag": "action",
        **how,
    }


def of_rows(advantages: Any, mask: Any) -> list[float]:
    """The number on each row's tokens."""
    assert advantages.dtype == np.float32
    assert advantages.shape == mask.shape
    assert not advantages[np.asarray(mask) == 0].any()
    return [float(values[kept == 1][0]) for values, kept in zip(advantages, mask, strict=True)]


def test_rows_of_verl_agent_get_their_credit() -> None:
    given = verl_agent()
    advantages, returns = compute_crbc_outcome_advantage(**given)
    assert of_rows(advantages, given["response_mask"]) == STEP_CREDIT
    assert np.array_equal(advantages, returns)


def test_it_takes_the_place_of_the_original_call() -> None:
    """The arguments that verl-agent's trainer passes, by name, and what they mean here."""
    stock: dict[str, Any] = {
        "step_advantage_w": 1.0,
        "mode": "mean_norm",
        "enable_similarity": False,
        "similarity_thresh": 0.95,
    }
    given = verl_agent(**stock)
    advantages, _ = compute_crbc_outcome_advantage(**given)
    table = crbc_cli.credit(made.canonical(), w_s=1.0, estimator="dr-grpo")
    expected = np.float32(table["advantage"].to_pylist()).tolist()
    assert of_rows(advantages, given["response_mask"]) == expected
    with pytest.raises(crbc_cli.CrbcError, match="use mean_std_norm or mean_norm"):
        compute_crbc_outcome_advantage(**verl_agent(mode="median"))


def test_copies_that_padding_appends_get_the_originals_credit() -> None:
    order = [*range(len(STEPS)), 3, 0, 8, 8, 1]
    given = verl_agent(order)
    place = positions(
        given["index"], given["traj_index"], given["anchor_obs"], given["text_actions"]
    )
    assert place == [STEPS[i][1] for i in order]
    advantages, _ = compute_crbc_outcome_advantage(**given)
    assert of_rows(advantages, given["response_mask"]) == [STEP_CREDIT[i] for i in order]


def test_numbered_rows_may_come_in_any_order() -> None:
    order = np.random.default_rng(3).permutation([*range(len(STEPS)), 2, 2, 16])
    place = [STEPS[i][1] for i in order]
    given = verl_agent(order, position=place)
    advantages, _ = compute_crbc_outcome_advantage(**given)
    assert of_rows(advantages, given["response_mask"]) == [STEP_CREDIT[i] for i in order]


def test_a_shuffled_batch_without_numbers_is_refused() -> None:
    order = [0, 5, 1, *range(2, 5), *range(6, len(STEPS))]
    with pytest.raises(crbc_cli.CrbcError, match="row 2 stands apart from rollout traj-0-0"):
        compute_crbc_outcome_advantage(**verl_agent(order))


def test_anchors_may_be_arrays_and_objects() -> None:
    texts = verl_agent()["anchor_obs"].tolist()
    codes = {text: number for number, text in enumerate(sorted(set(texts)))}
    pictures = objects([np.full((2, 2, 3), codes[t], np.uint8) for t in texts])
    dicts = objects([{"id": np.int64(codes[t]), "seen": None} for t in texts])
    for anchors in (pictures, dicts):
        given = verl_agent(anchor_obs=anchors)
        advantages, _ = compute_crbc_outcome_advantage(**given)
        assert of_rows(advantages, given["response_mask"]) == STEP_CREDIT


def test_other_methods_and_columns() -> None:
    given = verl_agent(method="gigpo", column="step_credit")
    advantages, _ = compute_crbc_outcome_advantage(**given)
    table = crbc_cli.credit(made.canonical(), method="gigpo")
    expected = np.float32(table["step_credit"].to_pylist()).tolist()
    assert of_rows(advantages, given["response_mask"]) == expected
    with pytest.raises(crbc_cli.CrbcError, match="column 'adv' is not in the credit table"):
        compute_crbc_outcome_advantage(**verl_agent(column="adv"))


def test_the_outcome_is_never_guessed() -> None:
    with pytest.raises(crbc_cli.CrbcError, match="does not say which rollouts succeeded"):
        compute_crbc_outcome_advantage(**verl_agent(success_at=None))
    won = [r.success for r, _ in STEPS]
    given = verl_agent(success_at=None, success=won)
    advantages, _ = compute_crbc_outcome_advantage(**given)
    assert of_rows(advantages, given["response_mask"]) == STEP_CREDIT


# --- verl ----------------------------------------------------------------------------------------


def verl(order: Any = slice(None), **columns: Any) -> dict[str, Any]:
    batch = made.verl_batch()
    identities = {
        "uid": batch.non_tensor_batch["uid"],
        "anchor_obs": objects([[o for o, _ in r.turns] for r in ROLLOUTS]),
        "text_actions": objects([[a for _, a in r.turns] for r in ROLLOUTS]),
        **columns,
    }
    identities = {name: values[order] for name, values in identities.items()}
    return {
        "token_level_rewards": batch.batch["token_level_scores"][order],
        "response_mask": batch.batch["response_mask"][order],
        "config": {"crbc": {"success_at": 1.0}},
        "index": identities.pop("uid"),
        "non_tensor_batch": identities,
    }


def by_turn(advantages: Any, mask: Any) -> list[list[float]]:
    found = []
    for values, kept in zip(np.asarray(advantages), np.asarray(mask), strict=True):
        runs = np.flatnonzero(np.diff(kept, prepend=0, append=0)).reshape(-1, 2)
        assert not values[kept == 0].any()
        assert all(len(set(values[a:b])) == 1 for a, b in runs)
        found.append([float(values[a]) for a, _ in runs])
    return found


TURNS = [[CREDIT[r.group, r.place, s] for s in range(len(r.turns))] for r in ROLLOUTS]


def test_turns_of_a_conversation_get_their_own_credit() -> None:
    given = verl([6, 0, 3, 1, 2, 7, 5, 4])
    advantages, returns = compute_crbc_advantage(**given)
    expected = [TURNS[i] for i in (6, 0, 3, 1, 2, 7, 5, 4)]
    assert by_turn(advantages, given["response_mask"]) == expected
    assert np.array_equal(advantages, returns)


def test_copies_and_padding_rows_of_verl() -> None:
    keys = objects([f"{r.group}_{r.place}_0" for r in ROLLOUTS])
    order = [*range(len(ROLLOUTS)), 2, 2, 5]
    given = verl(order, crbc_key=keys)
    advantages, _ = compute_crbc_advantage(**given)
    assert by_turn(advantages, given["response_mask"]) == [TURNS[i] for i in order]
    given["non_tensor_batch"]["anchor_obs"][-1] = None  # padding: no part, no credit
    advantages, _ = compute_crbc_advantage(**given)
    assert by_turn(advantages[:-1], given["response_mask"][:-1]) == [TURNS[i] for i in order[:-1]]
    assert not advantages[-1].any()


def test_rows_that_are_single_steps() -> None:
    masks = made.padded([[1] * len(made.encode(r.turns[s][1])) for r, s in STEPS])
    batch = {
        "anchor_obs": objects([r.turns[s][0] for r, s in STEPS]),
        "text_actions": objects([r.turns[s][1] for r, s in STEPS]),
        "traj_uid": objects([r.place for r, _ in STEPS]),
        "crbc_position": objects([s for _, s in STEPS]),
        "success": objects([r.success for r, _ in STEPS]),
    }
    given: dict[str, Any] = {
        "token_level_rewards": masks.float() * 0,
        "response_mask": masks,
        "index": [r.group for r, _ in STEPS],
    }
    advantages, _ = compute_crbc_advantage(**given, non_tensor_batch=batch)
    assert of_rows(advantages, masks) == STEP_CREDIT
    del batch["crbc_position"]
    with pytest.raises(crbc_cli.CrbcError, match="non_tensor_batch has no crbc_position"):
        compute_crbc_advantage(**given, non_tensor_batch=batch)


def test_what_the_batch_lacks_is_named() -> None:
    given = verl()
    with pytest.raises(crbc_cli.CrbcError, match="non_tensor_batch has no anchor_obs"):
        compute_crbc_advantage(**{**given, "non_tensor_batch": {}})
    with pytest.raises(crbc_cli.CrbcError, match="does not say which rollouts succeeded"):
        compute_crbc_advantage(**{**given, "config": None})
    given["response_mask"] = tensor(np.ones_like(given["response_mask"]))
    with pytest.raises(crbc_cli.CrbcError, match="row 0 has 1 runs of response tokens, 2 obs"):
        compute_crbc_advantage(**given)
