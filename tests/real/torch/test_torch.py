"""Vectors that torch and safetensors load, and loaders and estimators on torch tensors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import test_adapters
import torch
import trainer_batches as made
from conftest import GOLDEN, crbc, golden_rows, jsonl
from trainer_batches import ROLLOUTS

from crbc_cli.trainers.online import compute_crbc_advantage, compute_crbc_outcome_advantage

CREDIT = made.true_credit()
TURNS = [[CREDIT[r.group, r.place, s] for s in range(len(r.turns))] for r in ROLLOUTS]
STEP_CREDIT = [value for turns in TURNS for value in turns]


def true_vector() -> torch.Tensor:
    table = crbc("annotate", GOLDEN, "-o", "-", "--to", "arrow").table
    return torch.tensor(table["advantage"].to_pylist(), dtype=torch.float32)


def test_pt_loads_with_weights_only(tmp_path: Path) -> None:
    path = tmp_path / "credit.pt"
    assert crbc("annotate", GOLDEN, "--emit", "pt", "-o", path).code == 0
    loaded = torch.load(path, weights_only=True)
    assert torch.equal(loaded["advantage"], true_vector())
    assert torch.equal(loaded["source_row"], torch.arange(9))
    assert '"target": "pt"' in loaded["crbc"]


def test_safetensors_loads(tmp_path: Path) -> None:
    path = tmp_path / "credit.safetensors"
    assert crbc("annotate", GOLDEN, "--emit", "safetensors", "-o", path).code == 0
    loaded = safetensors.torch.load_file(path)
    assert torch.equal(loaded["advantage"], true_vector())
    assert torch.equal(loaded["source_row"], torch.arange(9))
    assert safetensors.numpy.load_file(path)["advantage"].dtype == np.float32
    with safetensors.safe_open(path, "pt") as opened:
        assert '"command": "annotate"' in opened.metadata()["crbc"]


def test_vectors_without_rows(tmp_path: Path) -> None:
    rows = [row | {"success": None} for row in golden_rows()]
    for name in ("pt", "safetensors"):
        path = tmp_path / f"credit.{name}"
        ended = crbc("annotate", "-", "--emit", name, "-o", path, stdin=jsonl(rows))
        assert ended.code == 0, ended.stderr
    assert torch.load(tmp_path / "credit.pt", weights_only=True)["advantage"].shape == (0,)
    assert safetensors.torch.load_file(tmp_path / "credit.safetensors")["advantage"].shape == (0,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


@pytest.fixture(autouse=True)
def torch_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are made of torch tensors."""

    def tensor(values: Any, dtype: Any = np.int64) -> torch.Tensor:
        return torch.from_numpy(np.asarray(values, dtype))

    for module in (made, test_adapters):
        monkeypatch.setattr(module, "tensor", tensor)


def loaded(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """(advantages, mask), through the printed hook and loader."""
    batch, written = test_adapters.run_hook(name, folder, monkeypatch)
    written.result()
    options = test_adapters.OUTCOME.get(name, test_adapters.SCORE)
    path = test_adapters.emitted(name, folder, folder.parent, *options)
    loader = test_adapters.printed(name)
    match name:
        case "verl-agent":
            mask = batch.batch["response_mask"]
            return loader["load_advantages"](path, batch.non_tensor_batch, mask)[0], mask
        case "verl":
            mask = batch.batch["response_mask"]
            keys = batch.non_tensor_batch["crbc_key"]
            return loader["load_advantages"](path, keys, mask)[0], mask
        case "trl":
            advantages = loader["load_advantages"](path, "turns_00007.parquet", batch)
            return advantages, batch["tool_mask"]
        case "skyrl":
            mask = made.padded([[1] * len(ids) for ids in batch["response_ids"]], left=True)
            ids = batch["trajectory_ids"]
            return loader["load_advantages"](path, ids, mask)[0], mask
        case _:
            monkeypatch.setenv("CRBC_CREDIT", path)
            masks = [made.tensor(sample.loss_mask) for sample in batch]
            data = {"sample_indices": [sample.index for sample in batch], "loss_masks": masks}
            loader["crbc_advantages"](SimpleNamespace(), data)
            pad = torch.nn.utils.rnn.pad_sequence
            return pad(data["advantages"], True), pad(masks, True)


@pytest.mark.parametrize("name", ["verl-agent", "verl", "trl", "skyrl", "slime"])
def test_loaders_put_credit_on_torch_tokens(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advantages, mask = loaded(name, folder, monkeypatch)
    assert advantages.dtype == torch.float32
    assert advantages.shape == mask.shape
    found = test_adapters.per_step(advantages.numpy(), mask.numpy())
    expected = [[value] for value in STEP_CREDIT] if name in ("verl-agent", "skyrl") else TURNS
    assert found == expected


def test_estimators_give_torch_tensors_on_the_masks_device() -> None:
    batch = made.verl_agent_batch()
    rows, mask = batch.non_tensor_batch, batch.batch["response_mask"]
    rewards = mask.float() * 0
    rewards[:, 0] = torch.tensor(rows["episode_rewards"].tolist())
    advantages, returns = compute_crbc_outcome_advantage(
        rewards,
        None,
        mask,
        rows["anchor_obs"],
        rows["uid"],
        rows["traj_uid"],
        text_actions=rows["text_actions"],
        success_at=10.0,
        action_tag="action",
    )
    assert advantages.dtype == torch.float32
    assert advantages.device == mask.device
    assert torch.equal(advantages, returns)
    found = test_adapters.per_step(advantages.numpy(), mask.numpy())
    assert found == [[value] for value in STEP_CREDIT]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16])
def test_masks_of_any_type(dtype: Any) -> None:
    batch = made.verl_batch()
    mask = batch.batch["response_mask"].to(dtype)
    identities = {
        "anchor_obs": made.objects([[o for o, _ in r.turns] for r in ROLLOUTS]),
        "text_actions": made.objects([[a for _, a in r.turns] for r in ROLLOUTS]),
    }
    advantages, _ = compute_crbc_advantage(
        batch.batch["token_level_scores"],
        mask,
        {"crbc": {"success_at": 1.0}},
        batch.non_tensor_batch["uid"],
        identities,
    )
    assert advantages.dtype == torch.float32
    assert test_adapters.per_step(advantages.numpy(), mask.to(torch.int64).numpy()) == TURNS
