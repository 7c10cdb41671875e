"""Trajectories that OpenPipe ART itself writes (0.5.23 needs a newer Python than 3.11)."""

from __future__ import annotations

from pathlib import Path

from art.trajectories import Trajectory, TrajectoryGroup
from art.utils.trajectory_logging import write_trajectory_groups_parquet
from conftest import credit
from dumps import columns_of, read_dump
from openai.types.chat import ChatCompletionMessage
from openai.types.chat.chat_completion import Choice


def choice(text: str | None, **more: object) -> Choice:
    message = ChatCompletionMessage(role="assistant", content=text, **more)
    return Choice(finish_reason="stop", index=0, message=message)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def groups() -> list[TrajectoryGroup]:
    call = {"id": "c", "type": "function", "function": {"name": "go", "arguments": '{"to": 1}'}}
    shown = {"role": "assistant", "content": "an example"}
    tool = {"role": "tool", "tool_call_id": "c", "content": "desk"}
    won = Trajectory(
        messages_and_choices=[user("hall"), choice("go desk"), user("desk"), choice("take lamp")],
        reward=1.0, metrics={"turns": 2}, metadata={"game": "alf-17"},
    )  # fmt: skip
    lost = Trajectory(
        messages_and_choices=[shown, user("hall"), choice(None, tool_calls=[call]), tool],
        reward=0.0,
    )
    return [TrajectoryGroup([won, lost]), TrajectoryGroup([]), TrajectoryGroup([won])]


def test_trajectories(tmp_path: Path) -> None:
    path = tmp_path / "0001.parquet"
    write_trajectory_groups_parquet(groups(), path)
    table, _ = read_dump(path)
    won = [(0, "hall", "go desk", 0.0, False), (1, "desk", "take lamp", 1.0, True)]
    assert columns_of(
        table, "group_id", "rollout_id", "step", "observation", "action", "reward", "done"
    ) == [
        *((0, 0, *row) for row in won),
        (0, 1, 0, "hall", 'go({"to": 1})', 0.0, True),
        *((2, 0, *row) for row in won),
    ]
    assert table["next_observation"].to_list()[2] == "desk"
    assert table["metadata_game"].to_list() == ["alf-17", "alf-17", None, "alf-17", "alf-17"]
    statuses = dict(
        columns_of(credit(path, "--success-when", "reward >= 1"), "group_id", "group_status")
    )
    assert statuses == {0: "ok", 2: "singleton"}
