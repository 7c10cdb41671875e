"""Experiences that Trinity-RFT itself writes: JSON lines and the SQLite buffer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from conftest import credit
from dumps import columns_of, read_dump
from trinity.buffer.storage.file import FileStorage
from trinity.buffer.storage.sql import SQLExperienceStorage
from trinity.common.config import StorageConfig
from trinity.common.experience import EID, Experience

STEPS = (
    (0, 0, "hall", "go desk", 1.0, None),
    (0, 1, "desk", "take lamp", 1.0, None),
    (1, 0, "hall", "go sink", 0.0, None),
    (1, 1, "sink", "look", 0.0, "response_truncated"),
)
"""(run, step, state, action, final reward, truncation)"""


def experiences() -> list[Experience]:
    return [
        Experience(
            eid=EID(batch=4, task=11, run=run, step=step),
            tokens=torch.tensor([1, 2, 3]),
            logprobs=torch.tensor([-0.1, -0.2]),
            reward=reward,
            prompt_length=1,
            prompt_text=f"You see: {state}",
            response_text=action,
            info={"env_state_hash": state, "step_reward": 0.0},
            truncate_status=cut,
        )
        for run, step, state, action, reward, cut in STEPS
    ]


def as_lines(folder: Path) -> Path:
    path = folder / "experiences.jsonl"
    storage = FileStorage(StorageConfig(name="exp", path=str(path), wrap_in_ray=False))
    storage.acquire()
    storage.write(experiences())
    storage.release()
    return path


def as_database(folder: Path) -> Path:
    path = folder / "exp.db"
    config = StorageConfig(
        name="exp", path=f"sqlite:///{path}", schema_type="experience", wrap_in_ray=False
    )
    asyncio.run(SQLExperienceStorage(config).write(experiences()))
    return path


@pytest.mark.parametrize("write", [as_lines, as_database])
def test_experiences(write: object, tmp_path: Path) -> None:
    path = write(tmp_path)
    table, _ = read_dump(path)
    assert columns_of(
        table, "group_id", "rollout_id", "step", "observation", "action", "reward",
        "experience_reward", "done", "truncated",
    ) == [
        ("4/11", run, step, state, action, 0.0, reward, step == 1 and not cut, bool(cut))
        for run, step, state, action, reward, cut in STEPS
    ]  # fmt: skip
    made = credit(path, "--success-when", "experience_reward >= 1")
    assert set(made["group_status"]) == {"ok"}
    assert made["credit"].to_list()[0] == pytest.approx(-made["credit"].to_list()[2])
