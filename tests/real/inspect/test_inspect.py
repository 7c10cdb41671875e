"""Logs that inspect_ai itself writes: an archive with zstd members, JSON, and samples in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import inspect_ai
import pytest
import tiktoken
from conftest import credit
from dumps import columns_of, read_dump, said
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.log._recorders.chunked import convert_eval_logs_to_chunked
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, includes, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import Tool, tool

LONG = "desk " + "with a very long text " * 10


class Words:
    """Stands in for a tokenizer, which would be downloaded."""

    def encode(self, text: str, **_: object) -> list[str]:
        return text.split()


@pytest.fixture(autouse=True)
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: Words())


@tool
def go() -> Tool:
    async def execute(to: str) -> str:
        """Go somewhere.

        Args:
          to: where.
        """
        return LONG

    return execute


@scorer(metrics=[accuracy()])
def success() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=int(state.epoch == 1))

    return score


def answers() -> Iterator[ModelOutput]:
    while True:
        yield ModelOutput.for_tool_call("mockllm/model", "go", {"to": "desk"})
        yield ModelOutput.from_content("mockllm/model", "take lamp")


def logs(folder: Path, container: str, **options: object) -> Path:
    task = inspect_ai.Task(
        dataset=[Sample(id="alf-17", input="hall"), Sample(id=2, input="hall")],
        solver=[use_tools(go()), generate()],
        scorer=[success(), includes()],
        **options,
    )
    inspect_ai.eval(
        task, model=get_model("mockllm/model", custom_outputs=answers()), epochs=2,
        log_format=container, log_dir=str(folder), display="none", max_samples=1,
    )  # fmt: skip
    [path] = folder.glob(f"*.{container}")
    return path


def expected(path: Path) -> set[tuple[object, ...]]:
    """What inspect_ai reads from its own log."""
    samples = read_eval_log(str(path)).samples or []
    assert len(samples) == 4
    return {
        (str(s.id), s.epoch, step, text, bool(s.scores["success"].value))
        for s in samples
        for step, text in enumerate((s.messages[0].text, s.messages[2].text))
    }


@pytest.mark.parametrize("container", ["eval", "json"])
def test_logs(container: str, tmp_path: Path) -> None:
    path = logs(tmp_path, container)
    table, notes = read_dump(path)
    seen = columns_of(table, "group_id", "rollout_id", "step", "observation")
    won = {(g, r): s for g, r, s in columns_of(
        table.filter(table["done"]), "group_id", "rollout_id", "success")}  # fmt: skip
    assert {(*row, won[row[:2]]) for row in seen} == expected(path)
    assert table["action"].to_list() == ['go({"to":"desk"})', "take lamp"] * 4
    assert columns_of(table, "done", "truncated", "reward")[:2] == [
        (False, False, 0.0),
        (True, False, 1.0),
    ]
    assert said(notes)["outcome"].endswith("success is score success: 1, C or true")
    assert set(credit(path)["group_status"]) == {"ok"}


def test_samples_in_chunks(tmp_path: Path) -> None:
    path = logs(tmp_path / "whole", "eval")
    convert_eval_logs_to_chunked(str(path), str(tmp_path / "chunked"), chunk_size=2)
    [chunked] = (tmp_path / "chunked").glob("*.eval")
    assert read_dump(chunked)[0].equals(read_dump(path)[0])


def test_limits(tmp_path: Path) -> None:
    """The answers are shared, so every other sample answers at once and ends by itself."""
    path = logs(tmp_path, "eval", message_limit=3)
    cut = {
        (str(s.id), s.epoch): s.limit is not None for s in read_eval_log(str(path)).samples or []
    }
    assert set(cut.values()) == {True, False}
    table, notes = read_dump(path)
    assert {
        (g, r): t for g, r, t in columns_of(table, "group_id", "rollout_id", "truncated")
    } == cut
    assert f"message: {sum(cut.values())}" in said(notes)["cut"]
