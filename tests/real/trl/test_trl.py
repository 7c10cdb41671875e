"""TRL trains on per-step credit that `crbc` wrote: its own trainer, two optimiser steps.

The model is a tiny random one made from a config. Each completion is two turns of the model with a
reply in between that depends on the first action, as a tool loop would leave it in `tool_mask`.
The printed hook logs the turns, `crbc annotate --emit trl` writes credit, and the printed loader
puts it on tokens, all inside `_generate_and_score_completions`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from conftest import crbc
from datasets import Dataset
from test_adapters import per_step, printed
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

GENERATIONS, LENGTH = 4, 8
FIRST, REPLY, SECOND = slice(0, 2), slice(2, 4), slice(4, 8)
WORDS = ["<pad>", "<eos>", "find", "the", "apple", "door", "open", "shut"]


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    plain = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))
    plain.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


class StepCreditTrainer(GRPOTrainer):  # type: ignore[misc]
    """What a user's subclass does, and a record of what the loss was given."""

    folder: Path

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        ids = output["completion_ids"]
        closed = ids[:, 0] % 2 == 0
        ids[:, REPLY] = torch.where(
            closed[:, None], torch.tensor([WORDS.index("door"), WORDS.index("shut")]), 6
        )
        output["tool_mask"] = torch.ones_like(ids)
        output["tool_mask"][:, REPLY] = 0
        output["completion_mask"] = torch.ones_like(ids)
        scores = ((ids[:, 4] + ids[:, 5]) % 2 == 0).float().tolist()
        step, log = self.state.global_step, self.folder / "log"
        written = printed("trl", "--hook")["log_turns"](
            output, str(log), step, GENERATIONS, scores, self.processing_class.decode
        )
        written.result()
        file = f"turns_{step:05d}.parquet"
        credit = self.folder / f"credit_{step}.parquet"
        done = crbc(
            *("annotate", log / file, "--emit", "trl", "-o", credit),
            *("--success-when", "score >= 1"),
        )
        assert done.code == 0, done.stderr
        output["advantages"] = printed("trl")["load_advantages"](str(credit), file, output)
        self.made = {step: output} | getattr(self, "made", {})
        return output

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        self.given = [*getattr(self, "given", []), (inputs, loss.detach().clone())]
        return loss


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> StepCreditTrainer:
    """After two optimiser steps."""
    folder = tmp_path_factory.mktemp("trl")
    (folder / "log").mkdir()
    arguments = GRPOConfig(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=2 * GENERATIONS,
        num_generations=GENERATIONS,
        max_completion_length=LENGTH,
        generation_kwargs={"min_new_tokens": LENGTH},
        max_steps=2,
        learning_rate=0.05,
        lr_scheduler_type="constant",
        loss_type="bnpo",
        beta=0.0,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        seed=1,
    )
    made = StepCreditTrainer(
        model=model(),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["find the apple", "find the door"] * 4}),
        processing_class=tokenizer(),
    )
    made.folder = folder
    made.start = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    made.train()
    return made


def test_two_optimiser_steps_were_made(trainer: StepCreditTrainer) -> None:
    assert trainer.state.global_step == 2
    moved = [not torch.equal(p, trainer.start[n]) for n, p in trainer.model.named_parameters()]
    assert all(moved)


def test_the_loss_is_given_the_credit_that_crbc_wrote(trainer: StepCreditTrainer) -> None:
    """Whatever order TRL shuffles a batch into, each completion has its own turns' credit."""
    assert len(trainer.given) == 2
    for step, (inputs, _) in enumerate(trainer.given):
        table = pl.read_parquet(trainer.folder / f"credit_{step}.parquet").sort("row", "step")
        log = pl.read_parquet(trainer.folder / "log" / f"turns_{step:05d}.parquet")
        assert log["step"].to_list() == [0, 1] * 2 * GENERATIONS
        assert log["observation"].unique().len() > 2  # prompts, and replies of the environment
        completions = map(tuple, trainer.made[step]["completion_ids"].tolist())
        turns = table["advantage"].to_numpy().reshape(-1, 2).tolist()
        credit = dict(zip(completions, turns, strict=True))
        found = per_step(inputs["advantages"].numpy(), inputs["tool_mask"].numpy())
        given = [credit[tuple(ids)] for ids in inputs["completion_ids"].tolist()]
        assert found == given
        assert any(first != second for first, second in found)


def gradient(loss: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    """All parameters' gradients as one vector."""
    parts = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([part.flatten() for part in parts])


def log_probabilities(model: Any, inputs: Any) -> torch.Tensor:
    """Of each completion token, by the model alone."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -LENGTH - 1 : -1]
    picked = inputs["completion_ids"][..., None]
    return logits.float().log_softmax(-1).gather(-1, picked)[..., 0]


def test_trls_loss_weights_each_token_by_its_credit(trainer: StepCreditTrainer) -> None:
    """Its gradient is that of -mean over the model's tokens of credit * log-probability."""
    inputs, loss = trainer.given[-1]
    credit, mask = inputs["advantages"], inputs["tool_mask"].float()
    assert torch.isclose(loss, -(credit * mask).sum() / mask.sum(), atol=1e-6)
    trainer.model.train()
    own = -(credit * mask * log_probabilities(trainer.model, inputs)).sum() / mask.sum()
    theirs = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    expected = gradient(own, trainer.model)
    assert expected.norm() > 1e-3
    assert torch.allclose(gradient(theirs, trainer.model), expected, atol=1e-6, rtol=1e-4)
    flat = {**inputs, "advantages": (credit * mask).sum(1) / mask.sum(1)}
    averaged = GRPOTrainer._compute_loss(trainer, trainer.model, flat)
    distance = (gradient(averaged, trainer.model) - expected).norm() / expected.norm()
    assert distance > 0.05  # one number per completion trains something else


def test_each_turns_credit_moves_its_own_tokens_only(trainer: StepCreditTrainer) -> None:
    inputs, _ = trainer.given[-1]
    whole = inputs["advantages"]
    gradients = []
    for span in (FIRST, SECOND):
        part = torch.zeros_like(whole)
        part[:, span] = whole[:, span]
        loss = GRPOTrainer._compute_loss(trainer, trainer.model, {**inputs, "advantages": part})
        gradients.append(gradient(loss, trainer.model))
    loss = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    assert torch.allclose(sum(gradients), gradient(loss, trainer.model), atol=1e-6, rtol=1e-4)
    assert np.isfinite([float(g.norm()) for g in gradients]).all()
    assert all(g.norm() > 0 for g in gradients)
