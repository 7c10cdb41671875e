"""Episodes that verifiers itself writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import credit
from dumps import columns_of, read_dump, said
from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import EnvInfo, Episode, GroupInfo
from verifiers.v1.graph import MessageNode
from verifiers.v1.semantic import ParentLink
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, Reward, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage, UserMessage
from verifiers.v1.utils.trace_store import read_episodes, write_episode

TASK = TraceTask(type="Alf", data=WireTaskData(idx=0, prompt="hall"), key="t3")
GO = AssistantMessage(tool_calls=[ToolCall(id="c", name="go", arguments='{"to": "desk"}')])


def nodes() -> list[MessageNode]:
    return [
        MessageNode(message=UserMessage(content="hall")),
        MessageNode(parent=0, message=GO, sampled=True),
        MessageNode(parent=1, message=ToolMessage(tool_call_id="c", content="desk")),
        MessageNode(parent=2, message=AssistantMessage(content="take lamp"), sampled=True),
    ]


def trace(made: list[MessageNode], score: float, stop: str = "done", **more: Any) -> Trace:
    one = Trace(
        task=TASK, agent=AgentInfo(config=WireAgentConfig()), nodes=made, ok=True,
        rewards={"won": Reward(score=score), "fast": Reward(score=0.5, weight=0.1)}, **more,
    )  # fmt: skip
    one.stop(stop)
    return one


def written(folder: Path, *traces: Trace) -> Path:
    for one in traces:
        write_episode(
            folder,
            Episode(
                env=EnvInfo(id="alf"), task=TASK, group=GroupInfo(id="g9"), traces=[one], ok=True
            ),
        )
    return folder / "traces.jsonl"


def test_episodes(tmp_path: Path) -> None:
    crashed = trace(nodes(), 0.0)
    crashed.record_error(RuntimeError("sandbox"))
    log = [trace(nodes(), 1.0), trace(nodes(), 0.0, stop="max_turns"), crashed]
    path = written(tmp_path, *log)
    table, notes = read_dump(path)
    names = [episode.traces[0].id for episode in read_episodes(tmp_path, Trace)]
    assert columns_of(table, "group_id", "rollout_id", "step", "node", "observation", "action") == [
        ("g9", name, step, node, seen, done)
        for name in names[:2]
        for step, (node, seen, done) in enumerate(
            [(1, "hall", 'go({"to": "desk"})'), (3, "desk", "take lamp")]
        )
    ]
    rewards = [one.reward for one in log[:2]]
    assert table["reward"].to_list() == [0.0, rewards[0], 0.0, rewards[1]]
    assert [one.is_truncated for one in log[:2]] == [False, True]
    assert columns_of(table, "done", "truncated") == [
        (False, False), (True, False), (False, False), (False, True),
    ]  # fmt: skip
    assert "RuntimeError: 1" in said(notes)["crashed_rollouts"]
    assert set(credit(path, "--success-when", "reward_won >= 1")["group_status"]) == {"ok"}


def test_branches(tmp_path: Path) -> None:
    """As many rollouts as verifiers sees branches, and every sampled node once."""
    forked = [
        *nodes(),
        MessageNode(parent=2, message=AssistantMessage(content="look"), sampled=True),
    ]
    one = trace(forked, 1.0)
    table, _ = read_dump(written(tmp_path, one))
    assert table["rollout_id"].n_unique() == one.num_branches == 2
    assert table.height == one.num_turns == 3


def test_a_compacted_trace(tmp_path: Path) -> None:
    goes_on = [
        *nodes()[:2],
        MessageNode(message=UserMessage(content="so far: at the desk")),
        MessageNode(
            parent=2, message=AssistantMessage(content="take lamp"), sampled=True,
            semantic_parents=[ParentLink(node=1, type="compaction")],
        ),
    ]  # fmt: skip
    table, _ = read_dump(written(tmp_path, trace(goes_on, 1.0)))
    assert columns_of(table, "step", "observation") == [(0, "hall"), (1, "so far: at the desk")]
