"""Dumps of trainers: each example record to the right groups, rollouts, steps, rewards, endings."""

from __future__ import annotations

import json
import pickle
import sqlite3
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import crbc, credit
from dumps import columns_of, read_dump, said, write_document, write_lines

from crbc_cli.logs.formats.registry import FORMATS
from crbc_cli.trainers.adapters import HOOKS

Row = dict[str, Any]
IDENTITY = ("group_id", "rollout_id", "step")
SEEN = (*IDENTITY, "observation", "action", "reward")


def each(record: Row, *changes: Row) -> list[Row]:
    """The record as it is and once with each of several changes."""
    return [record, *(record | change for change in changes)]


# --- verl-agent -----------------------------------------------------------------------------------

AGENT: Row = {
    "uid": "g-19",
    "traj_uid": "t-3",
    "anchor_obs": "You are in the hall.",
    "text_actions": "<think>desk</think><action>go to desk 1</action>",
    "rewards": 0.0,
    "active_masks": True,
    "is_action_valid": True,
    "episode_rewards": 10.0,
    "episode_lengths": 2.0,
}


def agent_rows() -> list[Row]:
    """Two steps of a success, one of a failure, a copy that fills the batch, an inactive row."""
    return each(
        AGENT,
        {"anchor_obs": "On desk 1 you see a lamp.", "rewards": [10.0]},
        {"traj_uid": "t-4", "rewards": 0.0, "episode_rewards": 0.0, "episode_lengths": 1.0},
        {},
        {"traj_uid": "t-4", "active_masks": False},
    )


def check_agent(table: pl.DataFrame) -> None:
    assert columns_of(table, *SEEN[:4], "reward") == [
        ("g-19", "t-3", 0, "You are in the hall.", 0.0),
        ("g-19", "t-3", 1, "On desk 1 you see a lamp.", 10.0),
        ("g-19", "t-4", 0, "You are in the hall.", 0.0),
    ]


def test_verl_agent_rows(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "hook.jsonl", agent_rows())
    table, notes = read_dump(path)
    check_agent(table)
    assert "success" not in table.columns
    assert "1 inactive row left out" in said(notes)["padding"]
    assert "1 row left out as copies" in said(notes)["copies"]
    assert "position inside traj_uid" in said(notes)["step"]
    assert "--success-when" in crbc("annotate", path).refused()
    how = ("--success-when", "episode_rewards >= 10", "--action-tag", "action")
    assert credit(path, *how)["group_status"].to_list() == ["ok"] * 3


class DataProto:
    """Pickles as verl's class does: bytes of the tensors, object arrays, meta."""

    def __init__(self, rows: list[Row]) -> None:
        self.non_tensor_batch = {}
        for name in rows[0]:
            column = np.empty(len(rows), dtype=object)
            column[:] = [row[name] for row in rows]
            self.non_tensor_batch[name] = column

    def __getstate__(self) -> Any:
        return b"tensors", self.non_tensor_batch, {}

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("was unpickled")


def torch_archive(path: Path, value: Any) -> Path:
    """What torch.save writes for an object without tensors."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, 2))
        archive.writestr("archive/version", "3\n")
    return path


def test_verl_agent_batches(tmp_path: Path) -> None:
    """A pickled DataProto and torch.save(DataProto.__dict__), without verl or torch."""
    proto = DataProto(agent_rows())
    (tmp_path / "batch.pkl").write_bytes(pickle.dumps(proto))
    torch_archive(tmp_path / "batch.pth", proto.__dict__)
    for name in ("batch.pkl", "batch.pth"):
        table, _ = read_dump(tmp_path / name)
        check_agent(table)


def test_verl_agent_structured_observations(tmp_path: Path) -> None:
    """Arrays, objects and nothing in one column."""
    observations = [np.arange(4).reshape(2, 2), {"room": "hall"}, None, "text"]
    rows = [AGENT | {"anchor_obs": o, "traj_uid": i} for i, o in enumerate(observations)]
    (tmp_path / "batch.pkl").write_bytes(pickle.dumps(DataProto(rows)))
    table, _ = read_dump(tmp_path / "batch.pkl")
    assert table["observation"].to_list() == ["[[0,1],[2,3]]", '{"room":"hall"}', None, '"text"']


def test_graphgpo_marks_success_in_next_obs(tmp_path: Path) -> None:
    rows = [row | {"next_obs": "On desk 1 you see a lamp."} for row in agent_rows()[:3]]
    rows[1]["next_obs"] = "success"
    table, notes = read_dump(write_lines(tmp_path / "hook.jsonl", rows))
    assert table["success"].to_list() == [False, True, False]
    assert table["next_observation"].to_list()[1] is None
    assert 'next_obs of "success"' in said(notes)["outcome"]


TRANSITION: Row = {
    "schema_version": "wm_transition_v1",
    "global_step": 150,
    "split": "train",
    "row_idx": 4,
    "uid": "g-19",
    "traj_uid": "t-3",
    "wm_step_idx": 1,
    "wm_prev_obs_text": "You are in the hall.",
    "wm_action_text": "go to desk 1",
    "wm_next_obs_text": "On desk 1 you see a lamp.",
    "wm_done_after_action": False,
    "rewards": 0.0,
    "is_action_valid": True,
    "active_masks": True,
    "episode_rewards": 10.0,
    "episode_lengths": 6.0,
    "episode_success": True,
}


def test_verl_agent_transitions(tmp_path: Path) -> None:
    rows = each(TRANSITION, {"wm_step_idx": 2, "wm_done_after_action": True, "rewards": 10.0})
    table, _ = read_dump(write_lines(tmp_path / "150.wm_transitions.jsonl", rows))
    assert columns_of(table, *SEEN)[0] == (
        *("g-19", "t-3", 1, "You are in the hall.", "go to desk 1", 0.0),
    )
    assert columns_of(table, "done", "success", "global_step") == [
        (False, False, 150),
        (True, True, 150),
    ]
    assert table["next_observation"][0] == "On desk 1 you see a lamp."


def test_verl_agent_wandb_table(tmp_path: Path) -> None:
    rows = [
        ["10", 0, 0, "g", "t", True, 1.0, True, "hall", "<action>go</action>", "go", True, "{}"],
    ]
    columns = "global_step rollout_step env_index uid traj_uid active reward done prompt"
    columns += " llm_output projected_action is_action_valid info_json"
    path = write_document(tmp_path / "steps.table.json", {"columns": columns.split(), "data": rows})
    table, _ = read_dump(path)
    assert columns_of(table, *SEEN) == [("g", "t", 0, "hall", "go", 1.0)]
    assert table["done"].to_list() == [True]


def test_verl_agent_validation_needs_groups(tmp_path: Path) -> None:
    steps = [
        {"turn_index": 1, "input": "hall\ndesk", "output": "take lamp", "score": 1.0},
        {"turn_index": 0, "input": "hall", "output": "go desk", "score": 0.0},
    ]
    record = {"step": 5, "traj_uid": "t", "data_source": "alf", "score": 1.0}
    record |= {"episode_reward": 10.0, "episode_length": 2, "tool_callings": 0, "steps": steps}
    path = write_lines(tmp_path / "5.jsonl", each(record, {"traj_uid": "u"}))
    assert "name no groups: no uid" in crbc("annotate", path).refused()
    table, _ = read_dump(path, group_by=("prompt",))
    assert columns_of(table, "rollout_id", "step", "observation")[:2] == [
        ("t", 0, "hall"),
        ("t", 1, "hall\ndesk"),
    ]
    how = ("--group-by", "prompt", "--success-when", "episode_reward >= 10")
    assert credit(path, *how)["anchor"].to_list() == [0, 1, 0, 1]


# --- verl -----------------------------------------------------------------------------------------

TEXT: Row = {
    "input": "user\nFind the apple.\nassistant\n",
    "output": "go north",
    "gts": None,
    "score": 0.0,
    "step": 12,
}


def test_verl_composite_uid(tmp_path: Path) -> None:
    rows = [
        {**TEXT, "uid": "5f_1c2e_3_1", "score": 1.0},
        {**TEXT, "uid": "5f_1c2e_3_0"},
        {**TEXT, "uid": "5f_1c2e_10_0"},
        {**TEXT, "uid": "padding"},
    ]
    table, notes = read_dump(write_lines(tmp_path / "12.jsonl", rows))
    assert columns_of(table, *IDENTITY, "score", "global_step") == [
        ("5f_1c2e", 3, 1, 1.0, 12),
        ("5f_1c2e", 3, 0, 0.0, 12),
        ("5f_1c2e", 10, 0, 0.0, 12),
    ]
    assert "1 row left out as padding" in said(notes)["padding"]
    assert table["uid"][0] == "5f_1c2e_3_1"


def test_verl_legacy_says_what_is_missing(tmp_path: Path) -> None:
    """The case missing-ids: `step` is the training step, the prompt rule gives sizes 2 and 1."""
    rows = [
        TEXT | {"input": "yellow", "score": 1.0},
        TEXT | {"input": "yellow"},
        TEXT | {"input": "red"},
    ]
    path = write_lines(tmp_path / "12.jsonl", rows)
    line = crbc("annotate", path).refused()
    assert "cannot carry a closure: input, output and score of whole rollouts" in line
    assert "--group-by prompt or --group-stride N; crbc adapter verl --hook" in line
    how = (path, "--group-by", "prompt", "--success-when", "score >= 1", "--method", "grpo")
    line = crbc("annotate", *how).refused()
    assert "--group-by prompt gives 2 groups: 1 of size 1, 1 of size 2" in line
    table = credit(*how, "--allow-uneven")
    assert table["group_advantage"].to_list() == pytest.approx([0.7071058, -0.7071058, 0], abs=1e-7)
    assert "--method grpo needs no anchors" in crbc("annotate", *how[:-2]).refused()


def test_verl_agent_text_dump(tmp_path: Path) -> None:
    rows = [{k: v for k, v in TEXT.items() if k != "gts"}]
    line = crbc("check", write_lines(tmp_path / "150.jsonl", rows)).refused()
    assert "one row per environment step, shuffled and with copies" in line
    assert "crbc adapter verl-agent --hook" in line


# --- rLLM -----------------------------------------------------------------------------------------


def episode(name: str, *, correct: bool, reason: str, steps: int = 1) -> Row:
    step = {
        "observation": "You are in the hall.",
        "thought": "",
        "action": "go to desk 1",
        "reward": 0.0,
        "done": False,
        "model_response": "<action>go to desk 1</action>",
        "chat_completions": [{"role": "user", "content": "You are in the hall."}],
        "timing": {},
    }
    made = [step] * (steps - 1) + [step | {"reward": 1.0 * correct, "done": True}]
    trajectory = {"name": "agent", "uid": "3d2f", "reward": 1.0, "num_steps": steps, "timing": {}}
    return {
        "training_step": 3,
        "epoch": 0,
        "episode_id": name,
        "session_id": "s-9",
        "task": {"game": "alf-17"},
        "task_hash": "9c01aa77",
        "is_correct": correct,
        "termination_reason": reason,
        "metrics": {"acc": 1.0},
        "metadata": {},
        "timing": {},
        "trajectories": [trajectory | {"steps": made if steps else []}],
    }


def rllm_folder(folder: Path) -> Path:
    for record in (
        episode("alf-17:10", correct=False, reason="max_turns_exceeded"),
        episode("alf-17:2", correct=True, reason="env_done", steps=2),
        episode("alf-17:3", correct=False, reason="error", steps=0),
    ):
        name = record["episode_id"].replace(":", "_")
        write_document(folder / f"episode_hash9c01aa77_id{name}.json", record)
    write_document(folder / "batch_summary.json", {"episodes": 3})
    return folder


def test_rllm_folder_is_one_log(tmp_path: Path) -> None:
    """`done` is true on the last step of an episode that ran into the turn limit."""
    folder = rllm_folder(tmp_path / "episodes" / "train_step_3_epoch_0")
    table, notes = read_dump(folder)
    assert columns_of(table, *IDENTITY, "done", "success", "truncated") == [
        ("alf-17:agent", "2", 0, False, False, False),
        ("alf-17:agent", "2", 1, True, True, False),
        ("alf-17:agent", "10", 0, False, False, True),
    ]
    assert table["episode_id"].to_list() == ["alf-17:2"] * 2 + ["alf-17:10"]
    assert "1 trajectory without steps" in said(notes)["empty_rollouts"]
    rllm_folder(tmp_path / "episodes" / "train_step_12_epoch_0")
    ended = crbc("annotate", tmp_path / "episodes", "-o", "-", "--to", "jsonl")
    assert [row["source_file"] for row in ended.rows] == [
        str(tmp_path / "episodes" / f"train_step_{n}_epoch_0") for n in (3, 3, 3, 12, 12, 12)
    ]
    assert ended.rows[0]["group_status"] == "ok"
    assert crbc("annotate", folder).code == 0
    assert (tmp_path / "episodes" / "train_step_3_epoch_0.credit.parquet").exists()


def test_one_rllm_episode_has_no_siblings(tmp_path: Path) -> None:
    folder = rllm_folder(tmp_path / "train_step_3_epoch_0")
    _, notes = read_dump(folder / "episode_hash9c01aa77_idalf-17_2.json")
    assert "name their folder" in said(notes)["one_episode"]


# --- slime ----------------------------------------------------------------------------------------


def sample(index: int, rollout: int | None, reward: Any, **changes: Any) -> Row:
    made = {
        "group_index": 0,
        "index": index,
        "rollout_id": rollout,
        "prompt": "hall",
        "tokens": [5, 6, 7],
        "response": "go desk",
        "response_length": 2,
        "reward": reward,
        "loss_mask": [1, 1],
        "status": "completed",
        "metadata": {},
    }
    return made | changes


def slime_steps() -> list[Row]:
    def step(index: int, t: int, obs: str, reward: float) -> Row:
        told = {"anchor_obs": obs, "traj_uid": "t0", "turn_index": t}
        return sample(index, 0, 1.0, metadata=told | {"step_immediate_reward": reward})

    return [step(1, 1, "desk", 1.0), step(0, 0, "hall", 0.0), sample(2, 1, 0.0, status="pending")]


def test_slime_steps_of_gigpo_ports(tmp_path: Path) -> None:
    """In a torch file, in JSON and in JSON lines, which say the same."""
    whole = {"rollout_id": 3, "samples": slime_steps()}
    paths = [
        torch_archive(tmp_path / "3.pt", whole),
        write_document(tmp_path / "3.json", whole),
        write_lines(tmp_path / "3.jsonl", slime_steps()),
    ]
    for path in paths:
        table, notes = read_dump(path)
        assert columns_of(table, *SEEN, "sample_index") == [
            (0, "t0", 1, "desk", "go desk", 1.0, 1),
            (0, "t0", 0, "hall", "go desk", 0.0, 0),
        ]
        assert table["done"].to_list() == [True, False]
        assert "1 sample with status pending left out" in said(notes)["unfinished"]


def compacted(*rewards: float) -> list[Row]:
    """The case rollout-in-several-rows."""
    rows = [(0, "completed"), (0, "completed"), (0, "completed"), (1, "truncated")]
    return [
        {"group_index": 0, "index": i, "rollout_id": r, "reward": reward, "status": status}
        for i, ((r, status), reward) in enumerate(zip(rows, rewards, strict=True))
    ]


def test_a_rollout_in_several_rows_counts_once(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "3.jsonl", compacted(1, 1, 1, 0))
    half = 0.5**0.5
    for rule in (("--success-when", "reward >= 1"), ("--success-when", "sample_reward >= 1")):
        plain = credit(path, *rule, "--estimator", "dr-grpo")
        assert plain["group_advantage"].to_list() == [0.5, 0.5, 0.5, -0.5]
        scaled = credit(path, *rule)["group_advantage"].to_list()
        assert scaled == pytest.approx([half, half, half, -half], abs=2e-6)
    last = credit(path, *rule, "--reward", "last", "--estimator", "dr-grpo")
    assert last["group_advantage"].to_list() == [0.5, 0.5, 0.5, -0.5]
    assert plain["reason"].to_list() == ["no_anchor"] * 4
    odd = write_lines(tmp_path / "odd.jsonl", compacted(1, 0, 1, 0))
    assert f"{odd}:1 and {odd}:2: samples of rollout 0 have rewards 1" in (
        crbc("check", odd).refused()
    )


def test_slime_graded_rewards(tmp_path: Path) -> None:
    rows = [sample(0, None, {"acc": 1.0, "format": 0.5}), sample(1, None, {"acc": 0.0})]
    table, notes = read_dump(write_lines(tmp_path / "3.jsonl", rows))
    assert columns_of(table, "rollout_id", "reward.acc", "reward.format") == [
        (0, 1.0, 0.5),
        (1, 0.0, None),
    ]
    assert '--success-when "reward.acc >= 1"' in said(notes)["outcome"]


def test_slime_hooks_of_other_classes(tmp_path: Path) -> None:
    """Statuses pickled as members of slime's own enumeration."""
    import enum

    class Status(enum.Enum):
        TRUNCATED = "truncated"

    globals()["Status"] = Status
    Status.__qualname__ = "Status"
    try:
        whole = {"rollout_id": 3, "samples": [sample(0, 0, 1.0, status=Status.TRUNCATED)]}
        path = torch_archive(tmp_path / "3.pt", whole)
    finally:
        del globals()["Status"]
    table, _ = read_dump(path)
    assert columns_of(table, "status", "truncated") == [("truncated", True)]


# --- Trinity-RFT ----------------------------------------------------------------------------------


def experience(task: int, run: int, step: int, **changes: Any) -> Row:
    return {
        "eid": {"batch": 4, "task": task, "run": run, "step": step, "suffix": f"a{run}{step}"},
        "type": "single_turn",
        "prompt_length": 40,
        "response_length": 6,
        "info": {"env_state_hash": f"h{step}", "step_reward": 0.5 * step},
        "metrics": {},
        "prompt_text": "hall",
        "response_text": "go desk",
        "reward": 1.0,
        **changes,
    }


EXPERIENCES = [
    experience(11, 2, 0),
    experience(11, 2, 1, truncate_status="response_truncated"),
    experience(11, 0, 0),
]


def check_experiences(table: pl.DataFrame) -> None:
    assert columns_of(table, *SEEN) == [
        ("4/11", 2, 0, "h0", "go desk", 0.0),
        ("4/11", 2, 1, "h1", "go desk", 0.5),
        ("4/11", 0, 0, "h0", "go desk", 0.0),
    ]
    assert columns_of(table, "done", "truncated") == [
        (False, False),
        (False, True),
        (True, False),
    ]


def test_trinity_lines(tmp_path: Path) -> None:
    table, _ = read_dump(write_lines(tmp_path / "input.jsonl", EXPERIENCES))
    check_experiences(table)


def trinity_blob(item: Row) -> bytes:
    meta = pickle.dumps({"version": 1, "num_items": 1, "items": [item]}, 5)
    return struct.pack("<4sBQQ", b"TRXP", 1, len(meta), 8) + meta + bytes(8)


class LegacyExperience:
    pass


def test_trinity_buffers(tmp_path: Path) -> None:
    """Split tables, and older ones with a pickled object."""
    path = tmp_path / "buffer.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE out (id INTEGER PRIMARY KEY, reward REAL)")
        database.execute("CREATE TABLE out_blob (id INTEGER PRIMARY KEY, experience_bytes BLOB)")
        blobs = [(i, trinity_blob(item)) for i, item in enumerate(EXPERIENCES)]
        database.executemany("INSERT INTO out_blob VALUES (?, ?)", blobs)
    database.close()
    check_experiences(read_dump(path)[0])
    old = tmp_path / "old.db"
    with sqlite3.connect(old) as database:
        database.execute("CREATE TABLE out (id INTEGER PRIMARY KEY, experience_bytes BLOB)")
        for i, item in enumerate(EXPERIENCES):
            legacy, eid = LegacyExperience(), LegacyExperience()
            eid.__dict__, legacy.__dict__ = item["eid"], dict(item)
            legacy.eid = eid  # type: ignore[attr-defined]
            database.execute("INSERT INTO out VALUES (?, ?)", (i, pickle.dumps(legacy)))
    database.close()
    check_experiences(read_dump(old)[0])
    path.write_bytes(path.read_bytes()[:5000])
    assert "SQLite" in crbc("check", path).refused()


def test_trinity_workflows_that_set_no_run(tmp_path: Path) -> None:
    rows = [experience(11, 0, 0), experience(11, 0, 0), experience(12, 0, 0)]
    table, notes = read_dump(write_lines(tmp_path / "input.jsonl", rows))
    assert columns_of(table, *IDENTITY) == [("4/11", 0, 0), ("4/11", 1, 0), ("4/12", 0, 0)]
    assert "run and step are 0 throughout 1 task" in said(notes)["run_unset"]


# --- Agent-R1, VAGEN ------------------------------------------------------------------------------

AGENT_R1: Row = {
    "trajectory_uid": "t-1",
    "input": "hall",
    "output": "take lamp",
    "gts": None,
    "score": 1.0,
    "step": 40,
    "num_steps": 2,
    "steps": [
        {"step_index": 0, "input": "hall", "output": "go desk", "gts": None, "score": 0.0},
        {"step_index": 1, "input": "hall\ndesk", "output": "take lamp", "gts": None, "score": 1.0},
    ],
}


def test_agent_r1(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "40.jsonl", each(AGENT_R1, {"trajectory_uid": "t-2"}))
    assert "name no groups" in crbc("coverage", path).refused()
    table, _ = read_dump(path, group_by=("prompt",))
    assert columns_of(table, *SEEN[1:], "prompt", "done")[:2] == [
        (0, 0, "hall", "go desk", 0.0, "hall", False),
        (0, 1, "hall\ndesk", "take lamp", 1.0, "hall", True),
    ]
    how = ("--group-by", "prompt", "--success-when", "trajectory_score >= 1")
    assert credit(path, *how)["group_status"].to_list() == ["all_success"] * 4


def test_agent_r1_restarted_counter_and_validation(tmp_path: Path) -> None:
    again = AGENT_R1 | {"steps": [step | {"step_index": 0} for step in AGENT_R1["steps"]]}
    path = write_lines(tmp_path / "40.jsonl", [again, AGENT_R1])
    table, notes = read_dump(path, group_by=("trajectory_uid",))
    assert table["step"].to_list() == [0, 1, 0, 1]
    assert "starts again inside 1 trajectory" in said(notes)["restarted_counter"]
    assert "--group-by trajectory_uid" in said(notes)["trajectory_uid"]


def test_vagen_turns(tmp_path: Path) -> None:
    row = {"group_idx": 0, "traj_idx": 1, "turn_idx": 0, "last_turn": False, "prompt": "board A"}
    row |= {"response": "right", "reward": 0.0, "traj_success": True}
    rows = each(row, {"turn_idx": 1, "last_turn": True, "prompt": "board B", "reward": 1.0})
    (tmp_path / "turns.pkl").write_bytes(pickle.dumps(DataProto(rows)))
    for path in (tmp_path / "turns.pkl", write_lines(tmp_path / "turns.jsonl", rows)):
        table, _ = read_dump(path)
        assert columns_of(table, *SEEN, "done", "success") == [
            (0, 1, 0, "board A", "right", 0.0, False, True),
            (0, 1, 1, "board B", "right", 1.0, True, True),
        ]


# --- what carries no closure ----------------------------------------------------------------------

TRL_ROWS = [
    {"step": 10, "prompt": "Q1", "completion": "a", "acc": 1.0, "advantage": 0.7},
    {"step": 10, "prompt": "Q1", "completion": "b", "acc": 0.0, "advantage": -0.7},
    {"step": 20, "prompt": "Q2", "completion": "c", "acc": 1.0, "advantage": 0.0},
]


def test_trl_completions(tmp_path: Path) -> None:
    """The case partial-batch: step 20 has one row, half of those of step 10."""
    path = tmp_path / "completions_00010.parquet"
    pl.DataFrame(TRL_ROWS).write_parquet(path)
    assert "last generation batch" in crbc("check", path).refused()
    rules = ("--group-by", "prompt", "--allow-uneven", "--success-when", "acc >= 1")
    checked = crbc("check", path, *rules, "--key", "global_step", "--json")
    assert checked.code == 1
    batches = [(b["training_step"], b["rows"], b["groups"]) for b in checked.json["batches"]]
    assert [(str(step), rows, groups) for step, rows, groups in batches] == [
        ("10", 2, 1),
        ("20", 1, 1),
    ]
    assert "singleton_groups" in {finding["code"] for finding in checked.json["findings"]}
    audited = crbc("compare", path, *rules, "--audit", "advantage", "--like", "trl", "--json",
                   "--tolerance", "0.01")  # fmt: skip
    assert audited.json["audit"]["passed"] is True


def test_ms_swift_lists(tmp_path: Path) -> None:
    record = {
        "step": ["5", "5"],
        "prompt": ["Q", "Q"],
        "completion": ["a", "b"],
        "accuracy": [1.0, 0.0],
        "advantages": [0.7, -0.7],
        "num_turns": [2, 3],
    }
    path = write_lines(tmp_path / "completions.jsonl", each(record, {"prompt": ["R", "R"]}))
    table, _ = read_dump(path, group_stride=2)
    assert columns_of(table, "rollout_id", "prompt", "action", "accuracy", "source_record") == [
        (0, "Q", "a", 1.0, 0),
        (1, "Q", "b", 0.0, 0),
        (2, "R", "a", 1.0, 1),
        (3, "R", "b", 0.0, 1),
    ]
    how = ("--group-stride", "2", "--success-when", "accuracy >= 1", "--method", "grpo")
    assert credit(path, *how)["group_id"].to_list() == [0, 0, 1, 1]
    uneven = write_lines(tmp_path / "uneven.jsonl", [record | {"accuracy": [1.0]}])
    assert "lists of different length" in crbc("check", uneven, *how[:2]).refused()


def test_skyrl_and_areal(tmp_path: Path) -> None:
    skyrl = {
        "input_prompt": "user: sort [3,1]",
        "output_response": "[1,3]",
        "score": 1.0,
        "stop_reason": "stop",
        "env_class": "sortenv",
        "env_extras": {"answer": "[1,3]"},
        "data_source": "toy",
    }
    path = write_lines(tmp_path / "toy.jsonl", [skyrl])
    assert "crbc adapter skyrl --hook" in crbc("check", path).refused()
    table, _ = read_dump(path, group_by=("prompt",))
    assert columns_of(table, "prompt", "action", "score") == [("user: sort [3,1]", "[1,3]", 1.0)]
    areal = {"task_id": 7, "sample_idx": 0, "seqlen": 10, "prompt_len": 6, "head_version": 2}
    areal |= {"tail_version": 2, "reward": 1.0, "prompt": "hall", "completion": "go desk"}
    path = write_lines(tmp_path / "7.jsonl", each(areal, {"sample_idx": 1, "reward": 0.0}))
    assert "without steps or states" in crbc("check", path).refused()
    how = ("--group-by", "task_id", "--success-when", "reward >= 1", "--method", "dr-grpo")
    assert credit(path, *how)["group_advantage"].to_list() == [0.5, -0.5]


def test_step_rows_under_other_names(tmp_path: Path) -> None:
    rows = [
        {"group_id": "g", "rollout_id": 0, "step_idx": 1, "observation": "B", "action": "b"},
        {"group_id": "g", "rollout_id": 0, "step_idx": 0, "observation": "A", "action": "a"},
    ]
    for path in (
        write_lines(tmp_path / "log.jsonl", rows),
        write_document(tmp_path / "log.json", rows),
    ):
        table, _ = read_dump(path)
        assert table["step"].to_list() == [1, 0]


# --- all ------------------------------------------------------------------------------------------


def test_hooks_that_are_named_exist() -> None:
    for known in FORMATS.values():
        assert not known.hook or known.hook in HOOKS, known.name
        assert known.lacks or not known.only_groups


@pytest.mark.parametrize("record", [{}, [], {"uid": 1}, {"steps": 1}, {"metadata": 1}, None, 3])
def test_odd_records_are_nobodys(record: Any, tmp_path: Path) -> None:
    """Recognising never raises."""
    names = [
        *("uid traj_uid anchor_obs task_id trajectories eid trajectory_uid steps episode_id"),
        *("samples rollout_id prompt completion traj name messages metadata history simulations"),
    ]
    odd = dict.fromkeys("".join(names).split(), record)
    path = write_lines(tmp_path / "odd.jsonl", [odd])
    ended = crbc("check", path)
    assert ended.code in (1, 2)
    assert "internal error" not in ended.stderr
    for container in ("odd.json", "odd.pkl"):
        path = tmp_path / container
        document = json.dumps([odd], indent=1).encode()
        path.write_bytes(document if container == "odd.json" else pickle.dumps([odd]))
        assert "internal error" not in crbc("check", path).stderr
