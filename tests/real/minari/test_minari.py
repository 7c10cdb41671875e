"""Data sets that Minari itself writes, in each of its backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import minari
import numpy as np
import pytest
from conftest import credit
from dumps import columns_of, read_dump, said

PLANS = ([1, 1], [0, 0, 0, 0], [0, 1, 1])


class Chain(gym.Env):
    """Two steps to the right succeed; four steps are the limit."""

    observation_space = gym.spaces.Box(0, 9, (2,), np.int64)
    action_space = gym.spaces.Discrete(2)

    def _seen(self) -> np.ndarray:
        return np.array([self.place, 5])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self._seen(), {"success": False}

    def step(self, action: int) -> Any:
        self.place += int(action)
        self.steps += 1
        done = self.place >= 2
        return self._seen(), float(done), done, self.steps >= 4, {"success": done}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def collected(backend: str, *, infos: bool) -> minari.MinariDataset:
    env = minari.DataCollector(Chain(), data_format=backend, record_infos=infos)
    for plan in PLANS:
        env.reset(seed=1)
        for action in plan:
            env.step(action)
    return env.create_dataset(dataset_id=f"chain/{backend}-v0", algorithm_name="plans")


def same_steps(table: Any, dataset: minari.MinariDataset) -> None:
    """Against the episodes that Minari reads back."""
    rows = columns_of(
        table, "rollout_id", "step", "observation", "action", "reward", "next_observation"
    )
    expected = [
        (e.id, t, e.observations[t].tolist(), int(e.actions[t]), float(e.rewards[t]),
         e.observations[t + 1].tolist())
        for e in dataset
        for t in range(len(e.actions))
    ]  # fmt: skip
    assert rows == expected
    ends = {r: (d, c) for r, d, c in columns_of(table, "rollout_id", "done", "truncated")}
    assert ends == {e.id: (bool(e.terminations[-1]), bool(e.truncations[-1])) for e in dataset}


@pytest.mark.parametrize("backend", ["arrow", "parquet", "hdf5"])
def test_data_sets(backend: str, root: Path) -> None:
    dataset = collected(backend, infos=False)
    folder = root / "chain" / f"{backend}-v0"
    table, notes = read_dump(folder)
    same_steps(table, dataset)
    assert "success" not in table.columns
    assert "truncated: 1" in said(notes)["cut"]
    made = credit(folder, "--success-when", "reward >= 1")
    assert made["state_value"][0] == made["state_value"][2]


@pytest.mark.parametrize("backend", ["arrow", "hdf5"])
def test_outcomes_in_infos(backend: str, root: Path) -> None:
    dataset = collected(backend, infos=True)
    table, _ = read_dump(root / "chain" / f"{backend}-v0")
    same_steps(table, dataset)
    won = dict(columns_of(table, "rollout_id", "success"))
    assert won == {0: True, 1: False, 2: True}


def test_an_hdf5_file_alone(root: Path) -> None:
    dataset = collected("hdf5", infos=False)
    same_steps(read_dump(root / "chain" / "hdf5-v0" / "data" / "main_data.hdf5")[0], dataset)


def test_flat_arrays_of_d4rl(tmp_path: Path) -> None:
    """As D4RL's HDF5 files have them."""
    path = tmp_path / "maze.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.array([[0.0], [1.0], [0.0]], np.float32)
        file["actions"] = np.ones((3, 1), np.float32)
        file["rewards"] = np.array([0.0, 1.0, 0.0], np.float32)
        file["terminals"] = np.array([False, True, False])
        file["timeouts"] = np.array([False, False, True])
    table, _ = read_dump(path)
    assert columns_of(table, "rollout_id", "step", "reward", "done", "truncated") == [
        (0, 0, 0.0, False, False),
        (0, 1, 1.0, True, False),
        (1, 0, 0.0, False, True),
    ]
