"""Classic reinforcement learning: Minari, RLDS, D4RL and LeRobot. `tests/real/` has Minari and
LeRobot write their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from conftest import crbc, credit
from dumps import columns_of, read_dump, said, write_lines

_MAIN = ("rollout_id", "step", "action", "reward", "done", "truncated")


def main_columns(table: pl.DataFrame) -> list[tuple[Any, ...]]:
    return columns_of(table, *_MAIN)


# --- Minari ---------------------------------------------------------------------------------------


def minari_rows() -> list[dict[str, Any]]:
    """Two episodes as the arrow backend pads them: one more observation than actions."""
    rows = []
    for episode, states, ends in ((0, [0, 1, 2], "terminations"), (1, [0, 0], "truncations")):
        for t, state in enumerate(states):
            row = {"episode_id": episode, "observations": [0.5, state], "actions": 0,
                   "rewards": 0.0, "terminations": False, "truncations": False,
                   "infos": {"success": False}}  # fmt: skip
            if t + 1 < len(states):
                row["actions"] = 1 - episode
            if t + 2 == len(states):
                row[ends] = True
                row["rewards"] = float(ends == "terminations")
            row["infos"] = {"success": ends == "terminations" and t + 1 == len(states)}
            rows.append(row)
    return rows


EXPECTED = [
    (0, 0, 1, 0.0, False, False),
    (0, 1, 1, 1.0, True, False),
    (1, 0, 0, 0.0, False, True),
]


def minari_folder(root: Path, suffix: str) -> Path:
    data = root / "data"
    data.mkdir(parents=True)
    about = {"total_episodes": 2, "total_steps": 3, "data_format": suffix, "dataset_id": "x/y-v0"}
    (data / "metadata.json").write_text(json.dumps(about))
    for number in (0, 1):
        folder = data / str(number)
        folder.mkdir()
        (folder / "metadata.json").write_text(json.dumps({"id": number, "seed": 7 + number}))
        own = [row for row in minari_rows() if row["episode_id"] == number]
        columns = {name: [row[name] for row in own] for name in own[0] if name != "episode_id"}
        fixed = pa.array(columns.pop("observations"), pa.list_(pa.float32(), 2))
        table = pa.table({"observations": fixed, **columns})
        if suffix == "parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, folder / "part-0.parquet")
        else:
            with pa.ipc.new_file(folder / "part-0.arrow", table.schema) as file:
                file.write_table(table)
    return root


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_minari_folders(suffix: str, tmp_path: Path) -> None:
    folder = minari_folder(tmp_path / "set", suffix)
    table, notes = read_dump(folder)
    assert main_columns(table) == EXPECTED
    assert table["group_id"].unique().to_list() == ["x/y-v0"]
    assert table["success"].to_list() == [True, True, False]
    assert table["observation"].to_list() == [[0.5, 0.0], [0.5, 1.0], [0.5, 0.0]]
    assert table["next_observation"].to_list()[2] == [0.5, 0.0]
    assert "--key seed" in said(notes)["group_id"]
    made = credit(folder)
    assert made["anchor"].to_list() == [0, 1, 0]
    assert set(credit(folder, "--key", "seed")["group_status"]) == {"singleton"}


def test_minari_rows(tmp_path: Path) -> None:
    """The padding row of each episode holds nothing but the last observation."""
    table, _ = read_dump(write_lines(tmp_path / "rows.jsonl", minari_rows()))
    assert main_columns(table) == EXPECTED
    lone = {"episode_id": 0, "observations": [0.1, 0.2], "actions": 1, "rewards": 0.0,
            "terminations": False, "truncations": False, "infos": {}}  # fmt: skip
    table, notes = read_dump(write_lines(tmp_path / "lone.jsonl", [lone]))
    assert main_columns(table) == [(0, 0, 1, 0.0, False, True)]
    assert "data ends: 1" in said(notes)["cut"]


def test_hdf5_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    path = tmp_path / "main_data.hdf5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    line = crbc("check", path).refused()
    assert line.endswith("is an HDF5 file, which needs h5py; pip install 'crbc-cli[hdf5]'")


# --- RLDS, D4RL -----------------------------------------------------------------------------------


def rlds(states: list[int], terminal: bool) -> list[dict[str, Any]]:
    return [
        {"observation": [0.5, state], "action": 1, "reward": float(t + 2 == len(states)),
         "discount": 1.0, "is_first": t == 0, "is_last": t + 1 == len(states),
         "is_terminal": terminal and t + 1 == len(states)}
        for t, state in enumerate(states)
    ]  # fmt: skip


@pytest.mark.parametrize("nested", [False, True])
def test_rlds(nested: bool, tmp_path: Path) -> None:
    """The last step's action and reward are none; is_last alone is a cut."""
    episodes = [rlds([0, 1, 2], True), rlds([0, 1], False)]
    log = [{"steps": e} for e in episodes] if nested else [step for e in episodes for step in e]
    table, notes = read_dump(write_lines(tmp_path / "steps.jsonl", log))
    assert main_columns(table) == [
        (0, 0, 1, 0.0, False, False),
        (0, 1, 1, 1.0, True, False),
        (1, 0, 1, 1.0, False, True),
    ]
    assert table["next_observation"].to_list() == [[0.5, 1], [0.5, 2], [0.5, 1]]
    assert "truncated: 1" in said(notes)["cut"]


def test_an_rlds_step_alone(tmp_path: Path) -> None:
    step = {"observation": [0.1, 0.2], "action": 1, "reward": 0.0, "discount": 1.0,
            "is_first": True, "is_last": False, "is_terminal": False}  # fmt: skip
    table, _ = read_dump(write_lines(tmp_path / "steps.jsonl", [step]))
    assert main_columns(table) == [(0, 0, 1, 0.0, False, True)]


def test_rlds_in_parquet_with_episode_ids(tmp_path: Path) -> None:
    steps = [step | {"episode_id": f"e{n}"} for n in (1, 2) for step in rlds([0, 1], True)]
    path = tmp_path / "steps.parquet"
    pl.DataFrame(steps).write_parquet(path)
    table, _ = read_dump(path)
    assert table["rollout_id"].to_list() == ["e1", "e2"]


def test_flat_tables(tmp_path: Path) -> None:
    """An episode ends at terminals or timeouts."""
    frame = pl.DataFrame({
        "observations": [[0.0], [1.0], [0.0], [1.0], [0.0]],
        "actions": [[1.0]] * 5,
        "rewards": [0.0, 1.0, 0.0, 0.0, 0.0],
        "terminals": [False, True, False, False, False],
        "timeouts": [False, False, False, True, False],
    })  # fmt: skip
    path = tmp_path / "flat.parquet"
    frame.write_parquet(path)
    table, notes = read_dump(path)
    assert columns_of(table, "rollout_id", "step", "done", "truncated") == [
        (0, 0, False, False),
        (0, 1, True, False),
        (1, 0, False, False),
        (1, 1, False, True),
        (2, 0, False, True),
    ]
    assert table["next_observation"].to_list() == [[1.0], None, [1.0], None, None]
    assert "data ends: 1, truncated: 1" in said(notes)["cut"]


# --- LeRobot --------------------------------------------------------------------------------------


def frames(**more: Any) -> pl.DataFrame:
    columns = {
        "timestamp": [0.0, 0.1, 0.0], "frame_index": [0, 1, 0], "episode_index": [0, 0, 1],
        "index": [0, 1, 2], "task_index": [0, 0, 0],
        "observation.state": [[0.1, 0.2], [0.3, 0.2], [0.1, 0.2]], "action": [[1.0]] * 3,
        "next.reward": [0.0, 1.0, 0.0], "next.done": [False, True, False],
    }  # fmt: skip
    return pl.DataFrame(columns | more)


def test_lerobot(tmp_path: Path) -> None:
    data, meta = tmp_path / "data" / "chunk-000", tmp_path / "meta"
    data.mkdir(parents=True)
    meta.mkdir()
    (meta / "info.json").write_text(json.dumps({"codebase_version": "v3.0"}))
    pl.DataFrame({"task_index": [0], "task": ["pick"]}).write_parquet(meta / "tasks.parquet")
    won = [False, True, False]
    frames(**{"next.success": won}).write_parquet(data / "file-000.parquet")
    table, notes = read_dump(tmp_path)
    assert main_columns(table) == [
        (0, 0, [1.0], 0.0, False, False),
        (0, 1, [1.0], 1.0, True, False),
        (1, 0, [1.0], 0.0, False, True),
    ]
    assert columns_of(table, "group_id", "prompt", "success") == [(0, "pick", s) for s in won]
    assert table["observation"].to_list() == [[0.1, 0.2], [0.3, 0.2], [0.1, 0.2]]
    assert "1 rollout cut" in said(notes)["cut"]
    assert credit(tmp_path)["anchor"].to_list() == [0, 1, 0]


def test_lerobot_frames(tmp_path: Path) -> None:
    """One file of a data set; several observations are one value; pictures are none of it."""
    picture = [{"bytes": b"", "path": None}] * 3
    path = tmp_path / "file-000.parquet"
    frames(**{"observation.env": [1, 2, 1], "observation.cam": picture}).write_parquet(path)
    table, notes = read_dump(path)
    assert table["observation"].to_list()[1] == {"state": [0.3, 0.2], "env": 2}
    assert "observation.cam left out" in said(notes)["images"]


def test_a_lerobot_record(tmp_path: Path) -> None:
    record = {"timestamp": 0.0, "frame_index": 0, "episode_index": 0, "index": 0, "task_index": 0,
              "observation.state": [0.1, 0.2], "action": [1.0], "next.reward": 0.0,
              "next.done": False}  # fmt: skip
    table, _ = read_dump(write_lines(tmp_path / "frames.jsonl", [record]))
    assert main_columns(table) == [(0, 0, [1.0], 0.0, False, True)]


def test_a_parquet_file_without_rows(tmp_path: Path) -> None:
    """Its columns look like many formats; none takes it."""
    path = tmp_path / "empty.parquet"
    names = "messages traces env task steps group_idx traj_idx samples eval plan conversations"
    names += " item_id task_id trajectories eid episode_id trajectory_uid group_index reward"
    pl.DataFrame(schema=dict.fromkeys(names.split(), pl.String)).write_parquet(path)
    assert "has no columns group_id" in crbc("check", path).refused()
