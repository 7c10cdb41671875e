"""Transcripts: chats with glued rewards, benchmark results, flat texts; and the public logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import ROOT, credit
from dumps import columns_of, read_dump, said, write_document, write_lines

SHARED = ROOT.parent / "shared" / "data"
needs_logs = pytest.mark.skipif(not SHARED.is_dir(), reason="the public logs are not here")
SEEN = ("group_id", "rollout_id", "step", "observation", "action", "reward")


def said_by(*contents: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]


# --- RAGEN ----------------------------------------------------------------------------------------


def test_ragen_rewards_glued_onto_observations(tmp_path: Path) -> None:
    """The same board after different rewards is one anchor; the last reward is the rest."""
    chats = [
        said_by("board A", "up", "board B (reward: -0.1)", "right"),
        said_by("board A", "left", "board B (reward: 0.25)", "right", "board C", "down"),
    ]
    totals = (0.9, 1.25)
    records = [
        {
            "custom_id": f"traj_{i}",
            "messages": chat,
            "metadata": {
                "env_id": i,
                "group_id": 0,
                "num_turns": len(chat) // 2,
                "total_reward": total,
                "success": i == 0,
            },
        }
        for i, (chat, total) in enumerate(zip(chats, totals, strict=True))
    ]
    path = write_lines(tmp_path / "val_rollouts_1.jsonl", records)
    table, notes = read_dump(path)
    assert table["reward"].to_list() == pytest.approx([-0.1, 1.0, 0.25, 0, 1.0])
    assert columns_of(table, *SEEN[:5])[:3] == [
        (0, 0, 0, "board A", "up"),
        (0, 0, 1, "board B", "right"),
        (0, 1, 0, "board A", "left"),
    ]
    assert table["success"].to_list() == [False, True, False, False, False]
    assert "2 rewards glued onto user messages split off" in said(notes)["glued_rewards"]
    assert credit(path)["anchor"].to_list() == [0, 1, 0, 1, 2]


def test_ragen_cache(tmp_path: Path) -> None:
    """The last entry is a state alone; penalties are no part of the rewards."""
    history = [
        {"state": "A", "actions": ["up", "up"], "reward": 0.0, "info": {"success": False},
         "llm_response": "<answer>up || up</answer>", "actions_left": 3},
        {"state": "B", "actions": ["left"], "reward": 1.0, "info": {"success": True},
         "llm_response": "<answer>left</answer>", "actions_left": 2},
        {"state": "C"},
    ]  # fmt: skip
    record = {"env_id": 4, "group_id": 1, "tag": "sokoban", "penalty": -0.1, "history": history}
    table, notes = read_dump(write_lines(tmp_path / "cache.jsonl", [record]))
    assert columns_of(table, *SEEN, "success") == [
        (1, 4, 0, "A", "up || up", 0.0, False),
        (1, 4, 1, "B", "left", 1.0, True),
    ]
    assert table["next_observation"].to_list() == [None, "C"]
    assert "1 rollout with a penalty" in said(notes)["penalty"]


# --- tau-bench ------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"id":1}'}}


def test_tau_bench(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "policy"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "{}"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "###STOP###"},
    ]
    records = [
        {"task_id": 3, "reward": 1.0, "info": {}, "traj": messages, "trial": 0},
        {"task_id": 3, "reward": 0.5, "info": {}, "traj": messages, "trial": 1},
        {"task_id": 3, "reward": 0.0, "info": {"error": "x"}, "traj": [], "trial": 2},
    ]
    table, notes = read_dump(write_document(tmp_path / "gpt.json", records))
    assert columns_of(table, *SEEN)[:2] == [
        (3, 0, 0, "hi", 'look({"id":1})', 0.0),
        (3, 0, 1, "{}", "done", 1.0),
    ]
    assert table["success"].to_list() == [False, True, False, False]
    assert "1 trial without an agent message left out" in said(notes)["empty_rollouts"]


def test_tau2_bench(tmp_path: Path) -> None:
    """The simulated user's own tool calls are no observation; max_steps is a cut."""
    messages = [
        {"role": "assistant", "content": "Hello", "turn_idx": 0},
        {"role": "user", "content": "hi", "turn_idx": 1},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "name": "look", "arguments": {"id": 1}, "requestor": "assistant"}]},
        {"role": "tool", "id": "c1", "content": "found", "requestor": "assistant"},
        {"role": "assistant", "content": "Restart it"},
        {"role": "user", "content": None, "tool_calls": [
            {"id": "u1", "name": "restart", "arguments": {}, "requestor": "user"}]},
        {"role": "tool", "id": "u1", "content": "restarted", "requestor": "user"},
        {"role": "user", "content": "I did"},
        {"role": "assistant", "content": "Good"},
    ]  # fmt: skip
    simulation = {"id": "s", "task_id": "t1", "trial": 0, "messages": messages}
    simulation |= {"termination_reason": "user_stop", "reward_info": {"reward": 1.0}}
    cut = simulation | {"trial": 1, "termination_reason": "max_steps", "reward_info": None}
    document = {"timestamp": "x", "info": {}, "tasks": [], "simulations": [simulation, cut]}
    table, notes = read_dump(write_document(tmp_path / "results.json", document))
    assert table["observation"].to_list() == [None, "hi", "found", "I did"] * 2
    assert table["action"].to_list()[1] == 'look({"id":1})'
    assert columns_of(table, "done", "truncated")[3::4] == [(True, False), (False, True)]
    assert table["success"].to_list()[3::4] == [True, None]
    assert "1 simulation ended by max_steps" in said(notes)["cut"]


# --- flat transcripts -----------------------------------------------------------------------------

TEXT = (
    "You are in a room.\nYour task is to: look.\n"
    "> think: desk\nOK.\n> go to desk 1\n\n> use lamp 1\n"
)


def test_flat_transcripts(tmp_path: Path) -> None:
    """An integer 0 is an early abort, an empty text a crash before the first action."""
    records = [
        {"name": "look-1", "result": True, "traj": f"{TEXT}You turn it on.\n"},
        {"name": "look-1", "result": 0, "traj": TEXT},
        {"name": "look-1", "result": 0, "traj": ""},
        {"name": "look-2", "result": False, "traj": TEXT},
    ]
    table, notes = read_dump(write_lines(tmp_path / "D0.jsonl", records))
    assert columns_of(table, *SEEN[:5], "next_observation")[:3] == [
        ("look-1", 0, 0, "You are in a room.\nYour task is to: look.", "think: desk", None),
        ("look-1", 0, 1, "OK.", "go to desk 1", None),
        ("look-1", 0, 2, "", "use lamp 1", "You turn it on."),
    ]
    assert columns_of(table, "group_id", "rollout_id", "success")[2::3] == [
        ("look-1", 0, True),
        ("look-1", 1, False),
        ("look-2", 0, False),
    ]
    assert "1 rollout without an action left out" in said(notes)["empty_rollouts"]
    assert "1 rollout with result 0" in said(notes)["aborted"]


# --- the public logs ------------------------------------------------------------------------------


@needs_logs
def test_tau_airline_agrees_with_its_step_table() -> None:
    """The dump holds tasks 0-19 of the table."""
    dump, _ = read_dump(SHARED / "raw" / "tau-bench-airline.json")
    table = pl.read_parquet(SHARED / "tau-airline.parquet").filter(
        pl.col("group_id").str.strip_prefix("task").cast(pl.Int64) < 20
    )
    ours = dump.select(
        pl.format("task{}", "group_id").alias("group_id"),
        pl.format("gpt-4o#trial{}", "rollout_id").alias("rollout_id"),
        *("step", "observation", "action", "reward", "done", "truncated"),
        pl.col("success").any().over("group_id", "rollout_id"),
    ).sort("group_id", "rollout_id", "step")
    assert ours.equals(table.select(ours.columns).sort("group_id", "rollout_id", "step"))
    assert ours.height == 1093


@needs_logs
def test_knowagent_agrees_with_its_step_table() -> None:
    dump, notes = read_dump(SHARED / "raw" / "knowagent-D0.jsonl")
    table = pl.read_parquet(SHARED / "alfworld-knowagent.parquet").filter(
        pl.col("rollout_id") == "D0"
    )
    names = ["group_id", "step", "observation", "action", "done", "success", "truncated"]
    ours = dump.with_columns(pl.col("success").any().over("group_id")).select(
        *names, pl.col("next_observation").alias("final_observation")
    )
    theirs = table.select(ours.columns)
    assert ours.sort("group_id", "step").equals(theirs.sort("group_id", "step"))
    assert (ours.height, ours["group_id"].n_unique()) == (11258, 278)
    assert "74 rollouts with result 0" in said(notes)["aborted"]
