"""A data set that LeRobot itself writes."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from conftest import credit
from dumps import columns_of, read_dump, said


class Pictures(ModuleType):
    """Stands in for torchvision, which fits no torch that installs here and serves pictures
    alone: the data set has none."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock if name[0].isupper() else MagicMock()


for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
    module = sys.modules.setdefault(name, Pictures(name))
    module.__spec__, module.__path__ = ModuleSpec(name, None), []

from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402

FEATURES = {
    "observation.state": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    "action": {"dtype": "float32", "shape": (1,), "names": ["a"]},
    "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
    "next.done": {"dtype": "bool", "shape": (1,), "names": None},
    "next.success": {"dtype": "bool", "shape": (1,), "names": None},
}
EPISODES = (([0, 1, 2], "pick"), ([0, 0, 1], "pick"), ([0, 1, 2], "place"))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    made = LeRobotDataset.create("a/b", fps=10, root=root, use_videos=False, features=FEATURES)
    for number, (states, task) in enumerate(EPISODES):
        for t, state in enumerate(states):
            won = np.array([t == 2 and number == 0])
            made.add_frame(
                {
                    "observation.state": np.array([0.5, state], np.float32),
                    "action": np.array([number], np.float32),
                    "next.reward": won.astype(np.float32),
                    "next.done": won,
                    "next.success": won,
                    "task": task,
                }
            )
        made.save_episode()
    made.finalize()
    return root


def test_a_data_set(dataset: Path) -> None:
    table, notes = read_dump(dataset)
    won = {0: True, 1: False, 2: False}
    assert columns_of(
        table, "group_id", "rollout_id", "step", "observation", "action", "reward", "done",
        "truncated", "prompt",
    ) == [
        (int(task == "place"), number, t, [0.5, state], float(number),
         float(won[number] and t == 2), won[number] and t == 2, not won[number] and t == 2, task)
        for number, (states, task) in enumerate(EPISODES)
        for t, state in enumerate(states)
    ]  # fmt: skip
    assert table["success"].to_list()[2::3] == list(won.values())
    assert "2 rollouts cut" in said(notes)["cut"]
    assert credit(dataset)["group_status"].to_list()[::3] == ["ok", "ok", "singleton"]


def test_one_of_its_files(dataset: Path) -> None:
    [path] = (dataset / "data").rglob("*.parquet")
    assert read_dump(path)[0].equals(read_dump(dataset)[0].drop("prompt"))
