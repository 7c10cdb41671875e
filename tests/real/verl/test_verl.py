"""verl's own batch type, registry, dispatch and GRPO against this package's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import trainer_batches as made
from conftest import crbc
from omegaconf import OmegaConf
from test_adapters import per_step, printed
from trainer_batches import ROLLOUTS, decode, objects
from verl import DataProto
from verl.protocol import pad_dataproto_to_divisor
from verl.trainer.ppo import core_algos, ray_trainer

import crbc_cli
from crbc_cli.trainers import verl_plugin
from crbc_cli.trainers.online import compute_crbc_advantage

CREDIT = made.true_credit()
TURNS = [[CREDIT[r.group, r.place, s] for s in range(len(r.turns))] for r in ROLLOUTS]


def data(**columns: Any) -> DataProto:
    """The rollouts as verl holds them, one conversation a row."""
    batch = made.verl_batch()
    tensors = {name: torch.from_numpy(np.asarray(value)) for name, value in batch.batch.items()}
    tensors["token_level_rewards"] = tensors["token_level_scores"]
    columns = {
        "anchor_obs": objects([[o for o, _ in r.turns] for r in ROLLOUTS]),
        "text_actions": objects([[a for _, a in r.turns] for r in ROLLOUTS]),
        **columns,
    }
    return DataProto.from_dict(tensors, non_tensors={**batch.non_tensor_batch, **columns})


CONFIG = OmegaConf.create({"adv_estimator": "crbc", "crbc": {"success_at": 1.0}})


@pytest.mark.parametrize("by_std", [True, False])
@pytest.mark.parametrize("graded", [False, True])
def test_grpo_of_verl_is_the_group_advantage_under_its_conventions(
    by_std: bool, graded: bool
) -> None:
    """Groups of several sizes, one of them a single rollout, constant ones among them."""
    random = np.random.default_rng(0)
    uid = np.repeat(np.arange(40), random.integers(1, 9, 40))
    rewards = random.random(len(uid)) if graded else random.integers(0, 2, len(uid)).astype(float)
    tokens = torch.zeros(len(uid), 5, dtype=torch.float64)
    tokens[:, 3] = torch.from_numpy(rewards)
    mask = torch.ones(len(uid), 5, dtype=torch.int64)
    theirs, _ = core_algos.compute_grpo_outcome_advantage(
        tokens.float(), mask, objects([f"g{u}" for u in uid]), norm_adv_by_std_in_grpo=by_std
    )
    table = pl.DataFrame(
        {
            "group_id": uid,
            "rollout_id": np.arange(len(uid)),
            "step": 0,
            "observation": "start",
            "action": "answer",
            "reward": rewards,
            "success": rewards > 0.5,
        }
    )
    ours = crbc_cli.credit(
        table.to_arrow(),
        like="verl",
        estimator="grpo" if by_std else "dr-grpo",
        reward="last" if graded else "outcome",
    )["group_advantage"]
    assert np.allclose(theirs[:, 0].numpy(), ours.to_pylist(), atol=2e-6)
    assert np.ptp(ours.to_numpy()) > 1


def test_the_estimator_is_in_verls_registry() -> None:
    assert core_algos.get_adv_estimator_fn("crbc") is compute_crbc_advantage
    assert verl_plugin.NAME == "crbc"


def test_verls_own_dispatch_gives_each_turn_its_credit() -> None:
    batch = ray_trainer.compute_advantage(data(), "crbc", config=CONFIG)
    advantages, mask = batch.batch["advantages"], batch.batch["response_mask"]
    assert advantages.dtype == torch.float32
    assert advantages.shape == mask.shape
    assert per_step(advantages.numpy(), mask.numpy()) == TURNS
    assert torch.equal(advantages, batch.batch["returns"])


def test_reordered_and_padded_batches() -> None:
    batch = data(crbc_key=objects([f"{r.group}_{r.place}_0" for r in ROLLOUTS]))
    order = torch.tensor([5, 0, 7, 2, 1, 3, 6, 4])
    batch.reorder(order)
    padded, size = pad_dataproto_to_divisor(batch, 5)
    assert size == 2
    padded = ray_trainer.compute_advantage(padded, "crbc", config=CONFIG)
    found = per_step(padded.batch["advantages"].numpy(), padded.batch["response_mask"].numpy())
    assert found == [TURNS[i] for i in [*order, *order[:2]]]


def test_other_estimators_go_through_the_plugin_unchanged() -> None:
    batch = ray_trainer.compute_advantage(data(), core_algos.AdvantageEstimator.GRPO, config=CONFIG)
    theirs, _ = core_algos.compute_grpo_outcome_advantage(
        data().batch["token_level_rewards"],
        data().batch["response_mask"],
        data().non_tensor_batch["uid"],
    )
    assert torch.equal(batch.batch["advantages"], theirs)
    batch = ray_trainer.compute_advantage(data(), "rloo", config=CONFIG)
    assert batch.batch["advantages"].abs().sum() > 0


def test_what_is_missing_is_an_error_of_ours() -> None:
    batch = data()
    del batch.non_tensor_batch["anchor_obs"]
    with pytest.raises(crbc_cli.CrbcError, match="non_tensor_batch has no anchor_obs"):
        ray_trainer.compute_advantage(batch, "crbc", config=CONFIG)


def test_hook_and_loader_on_verls_batch(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    batch = data()
    hook = printed("verl", "--hook")["log_turns"]
    hook(batch, str(tmp_path / "log"), 3, decode).result()
    path = tmp_path / "credit.parquet"
    done = crbc(
        *("annotate", tmp_path / "log", "--emit", "verl", "-o", path),
        *("--success-when", "score >= 1"),
    )
    assert done.code == 0, done.stderr
    batch.reorder(torch.tensor([5, 0, 7, 2, 1, 3, 6, 4]))
    keys, mask = batch.non_tensor_batch["crbc_key"], batch.batch["response_mask"]
    advantages, kept = printed("verl")["load_advantages"](str(path), keys, mask)
    batch.batch["advantages"] = batch.batch["returns"] = advantages
    assert per_step(advantages.numpy(), mask.numpy()) == [
        TURNS[i] for i in [5, 0, 7, 2, 1, 3, 6, 4]
    ]
    assert torch.equal(kept, mask.float())


def test_verl_loads_the_plugin_by_its_environment_variable() -> None:
    """In a process that never names this package."""
    code = (
        "from verl.trainer.ppo.core_algos import get_adv_estimator_fn as get\n"
        "import verl.trainer.ppo.ray_trainer as trainer\n"
        "print(get('crbc').__name__, hasattr(trainer.compute_advantage, '__wrapped__'))"
    )
    env = os.environ | {"VERL_USE_EXTERNAL_MODULES": "crbc_cli.trainers.verl_plugin"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["compute_crbc_advantage", "True"], done.stderr[-2000:]
