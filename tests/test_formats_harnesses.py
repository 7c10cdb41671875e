"""Dumps of training libraries and evaluation harnesses whose rollouts are conversations.

The records are those that the writers make (see the modules' docstrings for projects and versions);
`tests/real/` has the real packages write them.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from conftest import crbc, credit
from dumps import columns_of, read_dump, said, write_document, write_lines

HALL = {"role": "user", "content": "hall"}
GO = {"role": "assistant", "content": "go desk"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "go", "arguments": '{"to": "desk"}'}}
    ],
}
DESK = {"role": "tool", "tool_call_id": "c1", "content": "desk, lamp"}
TAKE = {"role": "assistant", "content": "take lamp"}

_MAIN = ("group_id", "rollout_id", "step", "observation", "action", "reward", "done", "truncated")


def main_columns(table: pl.DataFrame) -> list[tuple[Any, ...]]:
    return columns_of(table, *_MAIN)


# --- verifiers v0 ---------------------------------------------------------------------------------


def result(**changed: Any) -> dict[str, Any]:
    record = {
        "example_id": 3, "prompt": [HALL], "completion": [GO], "reward": 1.0,
        "timing": {"total_ms": 12.0}, "is_completed": True, "is_truncated": False,
        "stop_condition": "done", "metrics": {"acc": 1.0}, "acc": 1.0, "answer": "", "info": {},
        "error": None, "token_usage": {},
    }  # fmt: skip
    return record | changed


def test_verifiers_results(tmp_path: Path) -> None:
    log = [
        result(),
        result(completion=[CALL, DESK, TAKE], reward=0.5),
        result(example_id=4, is_truncated=True, stop_condition="max_turns_reached"),
        result(error={"error": "InfraError", "error_chain_repr": "", "error_chain_str": ""}),
        result(error="ValueError('x')", completion=None),
    ]
    table, notes = read_dump(write_lines(tmp_path / "results.jsonl", log))
    assert main_columns(table) == [
        (3, 0, 0, "hall", "go desk", 1.0, True, False),
        (3, 1, 0, "hall", 'go({"to": "desk"})', 0.0, False, False),
        (3, 1, 1, "desk, lamp", "take lamp", 0.5, True, False),
        (4, 0, 0, "hall", "go desk", 1.0, False, True),
    ]
    assert table["metric_acc"].to_list() == [1.0] * 4
    assert "success" not in table.columns
    assert said(notes)["crashed_rollouts"].endswith(
        "2 rollouts crashed (InfraError: 1, ValueError: 1): left out"
    )
    assert "max_turns_reached: 1" in said(notes)["cut"]


def test_verifiers_results_of_completion_environments(tmp_path: Path) -> None:
    log = [result(prompt="hall", completion="go desk")]
    table, _ = read_dump(write_lines(tmp_path / "results.jsonl", log))
    assert main_columns(table) == [(3, 0, 0, "hall", "go desk", 1.0, True, False)]


def test_examples_in_a_prompt_are_no_steps(tmp_path: Path) -> None:
    log = [result(prompt=[HALL, GO, HALL | {"content": "kitchen"}], completion=[TAKE])]
    table, _ = read_dump(write_lines(tmp_path / "results.jsonl", log))
    assert columns_of(table, "observation", "action") == [("kitchen", "take lamp")]


# --- verifiers v1, prime-rl -----------------------------------------------------------------------


def node(message: dict[str, Any], parent: int | None = None, **more: Any) -> dict[str, Any]:
    made = {"message": message, "sampled": message["role"] == "assistant", **more}
    return made if parent is None else made | {"parent": parent}


def trace(name: str, nodes: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    made = {
        "version": 1, "id": name, "task": {"key": "t3"},
        "agent": {"name": "agent", "trainable": True, "config": {}}, "nodes": nodes, "calls": [],
        "rewards": {"acc": {"score": 1.0, "weight": 1.0}}, "metrics": {}, "is_completed": True,
        "ok": True, "stop_condition": "done", "errors": [], "timing": {},
    }  # fmt: skip
    return made | changed


def episode(*traces: dict[str, Any], **changed: Any) -> dict[str, Any]:
    made = {
        "id": "ep1", "env": {"id": "alf"},
        "task": {"type": "alf", "data": {"q": "hall"}, "key": "t3", "hash": "77aa"},
        "group": {"id": "g9"}, "ok": True, "errors": [], "traces": list(traces),
    }  # fmt: skip
    return made | changed


LINE = [node(HALL), node(GO, 0, token_ids=[5, 6], mask=[1, 1], logprobs=[-0.1, -0.2])]


def test_episodes(tmp_path: Path) -> None:
    log = [
        episode(trace("tr1", LINE)),
        episode(trace("tr2", LINE, stop_condition="max_turns")),
        episode(trace("tr3", LINE, ok=False, errors=[{"type": "SandboxError", "message": ""}])),
        episode(ok=False, errors=[{"type": "EnvError", "message": ""}]),
        episode(
            trace("tr4", LINE, rewards={"a": {"score": 2.0, "weight": 0.5}, "b": {"score": 1.0}})
        ),
        episode(trace("tr5", LINE, calls=[{"node": 1, "finish_reason": "length"}])),
    ]
    table, notes = read_dump(write_lines(tmp_path / "traces.jsonl", log))
    assert main_columns(table) == [
        ("g9", "tr1", 0, "hall", "go desk", 1.0, True, False),
        ("g9", "tr2", 0, "hall", "go desk", 1.0, False, True),
        ("g9", "tr4", 0, "hall", "go desk", 2.0, True, False),
        ("g9", "tr5", 0, "hall", "go desk", 1.0, False, True),
    ]
    assert columns_of(table, "trace_id", "node", "env") == [
        (name, 1, "alf") for name in ("tr1", "tr2", "tr4", "tr5")
    ]
    assert "EnvError: 1, SandboxError: 1" in said(notes)["crashed_rollouts"]
    assert "max_turns: 1, response at its length: 1" in said(notes)["cut"]


def test_branches_of_a_trace(tmp_path: Path) -> None:
    """Shared messages are one step; a branch is a rollout from where it forks."""
    nodes = [node(HALL), node(CALL, 0), node(DESK, 1), node(TAKE, 2), node(GO, 2)]
    table, notes = read_dump(write_lines(tmp_path / "t.jsonl", [episode(trace("tr", nodes))]))
    assert columns_of(table, "rollout_id", "step", "node", "observation", "reward") == [
        ("tr", 0, 1, "hall", 0.0),
        ("tr", 1, 3, "desk, lamp", 1.0),
        ("tr/1", 0, 4, "desk, lamp", 1.0),
    ]
    assert "1 trace with several branches" in said(notes)["branches"]


def test_a_compacted_trace_is_one_rollout(tmp_path: Path) -> None:
    summary = {"role": "user", "content": "summary"}
    nodes = [
        node(HALL), node(CALL, 0), node(summary),
        node(TAKE, 2, semantic_parents=[{"node": 1, "type": "compaction"}]),
    ]  # fmt: skip
    table, notes = read_dump(write_lines(tmp_path / "t.jsonl", [episode(trace("tr", nodes))]))
    assert columns_of(table, "rollout_id", "step", "observation", "done") == [
        ("tr", 0, "hall", False),
        ("tr", 1, "summary", True),
    ]
    assert "branches" not in said(notes)


def test_agents_of_an_episode_are_groups_of_their_own(tmp_path: Path) -> None:
    solver = trace("s", LINE, agent={"name": "solver", "trainable": True})
    critic = trace("c", LINE, agent={"name": "critic", "trainable": True})
    judge = trace("j", LINE, agent={"name": "judge", "trainable": False})
    log = [episode(solver, critic, judge, group=None)]
    table, notes = read_dump(write_lines(tmp_path / "t.jsonl", log))
    assert columns_of(table, "group_id", "rollout_id") == [("t3:solver", "s"), ("t3:critic", "c")]
    assert "1 trace of agents that are not trained left out" in said(notes)["other_agents"]
    assert "episodes without a group" in said(notes)["group_id"]


def test_folders_of_prime_rl(tmp_path: Path) -> None:
    """all/ and effective/ hold the same rollouts."""
    step = tmp_path / "rollouts" / "step_3"
    log = [episode(trace(name, LINE)) for name in ("a", "b")]
    write_lines(step / "train" / "all" / "traces.jsonl", log)
    write_lines(step / "train" / "effective" / "traces.jsonl", log[:1])
    table, notes = read_dump(step)
    assert columns_of(table, "rollout_id", "kind", "effective") == [
        ("a", "train", True),
        ("b", "train", False),
    ]
    assert "read once" in said(notes)["effective"]
    assert credit(tmp_path / "rollouts", "--success-when", "reward >= 1").height == 2


def test_streams_of_prime_rl(tmp_path: Path) -> None:
    folder = tmp_path / "monitors" / "file" / "traces"
    sealed = folder / "stream.0.jsonl.zst"
    write_lines(folder / "stream.1.jsonl", [episode(trace("b", LINE))])
    with pa.output_stream(str(sealed), compression="zstd") as out:
        out.write(json.dumps(episode(trace("a", LINE))).encode() + b"\n")
    write_lines(folder / "stream.index.jsonl", [{"offset": 0}])
    said_later = {"trace_id": "b", "nodes": [{}, {"advantages": [0.5, 1.5]}]}
    write_lines(folder / "annotations" / "orchestrator.jsonl", [said_later])
    write_lines(folder / "annotations" / "orchestrator.index.jsonl", [{"offset": 0}])
    table, notes = read_dump(folder)
    assert columns_of(table, "rollout_id", "logged_advantage") == [("a", None), ("b", 1.0)]
    assert "advantages of 1 step joined" in said(notes)["annotations"]


# --- NeMo -----------------------------------------------------------------------------------------


def gym_rollout(**changed: Any) -> dict[str, Any]:
    record = {
        "responses_create_params": {"input": [HALL], "tools": []},
        "response": {"model": "m", "output": [
            {"type": "function_call", "name": "go", "arguments": '{"to": "desk"}', "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": "desk, lamp"},
        ]},
        "reward": 1.0, "_ng_task_index": 0, "_ng_rollout_index": 1, "_ng_attempt_index": 0,
        "_ng_rollout_id": "r-1",
    }  # fmt: skip
    return record | changed


def test_nemo_gym(tmp_path: Path) -> None:
    talk = {"output": [
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "message", "role": "user", "content": "b"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
    ], "incomplete_details": {"reason": "max_output_tokens"}}  # fmt: skip
    path = write_lines(
        tmp_path / "rollouts.jsonl",
        [gym_rollout(), gym_rollout(response=talk, _ng_rollout_index=2)],
    )
    failed = gym_rollout(_ng_failure_class="timeout", _ng_rollout_index=3)
    write_lines(tmp_path / "rollouts_failures.jsonl", [failed])
    table, notes = read_dump(path)
    assert main_columns(table) == [
        (0, 1, 0, "hall", 'go({"to": "desk"})', 1.0, True, False),
        (0, 2, 0, "hall", "a", 0.0, False, False),
        (0, 2, 1, "b", "c", 1.0, False, True),
    ]
    assert table["next_observation"].to_list() == ["desk, lamp", "b", None]
    assert "timeout, in rollouts_failures.jsonl: 1" in said(notes)["crashed_rollouts"]
    assert "max_output_tokens: 1" in said(notes)["cut"]


def test_failures_beside_a_nemo_gym_log_are_no_rollouts(tmp_path: Path) -> None:
    write_lines(tmp_path / "r.jsonl", [gym_rollout(), gym_rollout(_ng_rollout_index=0, reward=0)])
    write_lines(tmp_path / "r_failures.jsonl", [gym_rollout(_ng_failure_class="timeout")])
    inputs = {k: v for k, v in gym_rollout().items() if k not in ("response", "reward")}
    write_lines(tmp_path / "r_materialized_inputs.jsonl", [inputs])
    assert credit(tmp_path, "--success-when", "reward >= 1")["rollout_id"].to_list() == [1, 0]


def test_nemo_rl_has_no_groups_and_steps(tmp_path: Path) -> None:
    record = {
        "content": ["hall", "go desk"], "rewards": [1.0], "input_lengths": [4],
        "token_ids": [[1, 2, 5, 6, 0, 0]], "token_loss_mask": [[0, 0, 1, 1, 0, 0]],
        "sample_loss_mask": [1.0], "advantages": [[0.0, 0.0, 0.5, 0.5, 0.0, 0.0]],
        "generation_logprobs": [[0.0, 0.0, -0.1, -0.2, 0.0, 0.0]],
        "prev_logprobs": [[0.0, 0.0, -0.1, -0.2, 0.0, 0.0]], "idx": 0,
    }  # fmt: skip
    log = [record, record | {"idx": 1, "rewards": [0.0]}]
    path = write_lines(tmp_path / "train_data_step1.jsonl", log)
    assert "a row is one token sequence" in crbc("check", path).refused()
    table, _ = read_dump(path, group_by=("prompt",))
    assert columns_of(table, "rollout_id", "reward", "prompt", "response", "logged_advantage") == [
        (0, 1.0, "hall", "go desk", 0.5),
        (1, 0.0, "hall", "go desk", 0.5),
    ]
    assert columns_of(table, "trained_tokens", "length", "trained") == [(2, 4, 1.0)] * 2
    made = credit(path, "--group-by", "prompt", "--success-when", "reward >= 1")
    assert made["group_advantage"].sum() == pytest.approx(0)
    assert made["group_advantage"][0] > 0


def test_list_wrapped_tensors() -> None:
    """Worked case: lists of length one are unwrapped and padding does not count."""
    case = Path(__file__).parent / "cases" / "list-wrapped-tensors.jsonl"
    table, _ = read_dump(case, group_by=("prompt",))
    assert columns_of(table, "prompt", "response", "reward") == [("Q: 2+2?", "A: 4", 1.0)]
    assert columns_of(table, "logged_advantage", "trained_tokens", "length") == [(0.5, 2, 6)]
    assert not any("token_ids" in name for name in table.columns)


# --- ART ------------------------------------------------------------------------------------------


def art_row(**changed: Any) -> dict[str, Any]:
    say = {"tool_calls": None, "tool_call_id": None}
    row = {
        "format_version": 2, "group_index": 0, "trajectory_index": 1, "group_json": "{}",
        "trajectory_json": '{"reward": 1.0}', "group_metadata": "{}", "group_metrics": "{}",
        "group_logs": [], "reward": 1.0, "metrics": '{"turns": 2}', "metadata": "{}", "tools": None,
        "logs": [],
        "messages": [
            {**HALL, **say, "trainable": False},
            {**GO, **say, "trainable": True},
        ],
    }  # fmt: skip
    return row | changed


def test_art(tmp_path: Path) -> None:
    calls = [{"role": "assistant", "content": None, "tool_call_id": None, "trainable": True,
              "tool_calls": json.dumps(CALL["tool_calls"])}]  # fmt: skip
    shown = {**TAKE, "tool_calls": None, "tool_call_id": None, "trainable": False}
    rows = [
        art_row(),
        art_row(trajectory_index=2, reward=0.0, messages=[shown, *art_row()["messages"], *calls]),
        art_row(group_index=1, trajectory_index=None, reward=None, messages=None),
    ]
    path = tmp_path / "0001.parquet"
    version = {"art.trajectory_parquet.version": "2"}
    pl.DataFrame(rows).write_parquet(path, metadata=version)
    table, _ = read_dump(path)
    assert main_columns(table) == [
        (0, 1, 0, "hall", "go desk", 1.0, True, False),
        (0, 2, 0, "hall", "go desk", 0.0, False, False),
        (0, 2, 1, "hall", 'go({"to": "desk"})', 0.0, True, False),
    ]
    assert table["metric_turns"].to_list() == [2, 2, 2]


def test_older_art_logs(tmp_path: Path) -> None:
    """One group per line, with messages or with the API's choices."""
    choice = {"finish_reason": "stop", "index": 0, "message": GO}
    group = {
        "trajectories": [
            {"messages": [HALL, GO], "reward": 1.0, "metrics": {}, "metadata": {}},
            {"messages_and_choices": [HALL, choice], "reward": 0.0},
        ]
    }
    table, _ = read_dump(write_lines(tmp_path / "0001.jsonl", [group]))
    assert main_columns(table) == [
        (0, 0, 0, "hall", "go desk", 1.0, True, False),
        (0, 1, 0, "hall", "go desk", 0.0, True, False),
    ]


# --- Tinker ---------------------------------------------------------------------------------------


def summary(**changed: Any) -> dict[str, Any]:
    record = {
        "schema_version": 1, "split": "train", "iteration": 4, "group_idx": 0, "traj_idx": 2,
        "tags": ["alf"], "sampling_client_step": 4, "total_reward": 1.0, "final_reward": 0.0,
        "trajectory_metrics": {}, "final_ob_len": 0,
        "steps": [{"step_idx": 0, "ob_len": 40, "ac_len": 6, "reward": 1.0, "episode_done": True,
                   "metrics": {}, "logs": {"anchor": "hall", "action": "go desk"}}],
    }  # fmt: skip
    return record | changed


def test_tinker_with_anchors(tmp_path: Path) -> None:
    step = summary()["steps"][0]
    cut = summary(traj_idx=3, steps=[step | {"reward": 0.0, "episode_done": False}])
    table, notes = read_dump(write_lines(tmp_path / "s.jsonl", [summary(), cut]))
    assert main_columns(table) == [
        (0, 2, 0, "hall", "go desk", 1.0, True, False),
        (0, 3, 0, "hall", "go desk", 0.0, False, True),
    ]
    assert "1 rollout cut" in said(notes)["cut"]


def test_tinker_without_anchors_is_refused(tmp_path: Path) -> None:
    bare = summary()["steps"][0] | {"logs": {}}
    log = [summary(steps=[bare]), summary(traj_idx=3, steps=[bare | {"reward": 0.0}])]
    path = write_lines(tmp_path / "s.jsonl", log)
    line = crbc("annotate", path).refused()
    assert "lengths instead of observations and actions" in line
    assert "crbc adapter tinker --hook" in line
    made = credit(path, "--group-by", "group_id", "--success-when", "reward >= 1")
    assert made["group_advantage"][0] > 0 > made["group_advantage"][1]


def test_a_tinker_step_without_its_anchor(tmp_path: Path) -> None:
    bare = summary()["steps"][0] | {"logs": {}}
    path = write_lines(tmp_path / "s.jsonl", [summary(), summary(steps=[bare])])
    assert "s.jsonl:2: step 0 has no anchor" in crbc("check", path).refused()


# --- Harbor ---------------------------------------------------------------------------------------


def trajectory(*steps: dict[str, Any], **changed: Any) -> dict[str, Any]:
    numbered = [{"step_id": n, **step} for n, step in enumerate(steps, 1)]
    document = {
        "schema_version": "ATIF-v1.8", "session_id": "s1", "trajectory_id": "t1",
        "agent": {"name": "terminus", "version": "2", "model_name": "m"}, "steps": numbered,
        "final_metrics": {"total_steps": len(steps)},
    }  # fmt: skip
    return document | changed


LIST = {"source": "user", "message": "list files"}
BASH = {
    "source": "agent", "message": "",
    "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "ls"}}],
    "observation": {"results": [{"source_call_id": "c1", "content": "a.txt"}]},
}  # fmt: skip


def trial(folder: Path, name: str, *steps: dict[str, Any], **changed: Any) -> Path:
    outcome = {"task_name": "files", "trial_name": name, "exception_info": None,
               "verifier_result": {"rewards": {"reward": 1.0}}}  # fmt: skip
    write_document(folder / name / "result.json", outcome | changed)
    write_document(folder / name / "agent" / "trajectory.json", trajectory(*steps))
    return folder / name


def test_a_harbor_trial(tmp_path: Path) -> None:
    talk = {"source": "agent", "message": "done"}
    table, _ = read_dump(trial(tmp_path, "files__1", LIST, BASH, talk))
    assert main_columns(table) == [
        ("files", "files__1", 0, "list files", 'bash({"cmd":"ls"})', 0.0, False, False),
        ("files", "files__1", 1, "a.txt", "done", 1.0, True, False),
    ]
    assert table["step_id"].to_list() == [2, 3]
    assert table["next_observation"].to_list() == ["a.txt", None]


def test_a_harbor_job(tmp_path: Path) -> None:
    """Its trials of one task are a group; a timeout is a cut, a crash no failure."""
    trial(tmp_path, "files__1", LIST, BASH)
    late = {"exception_info": {"exception_type": "AgentTimeoutError"}}
    trial(tmp_path, "files__2", LIST, BASH, verifier_result={"rewards": {"reward": 0.0}}, **late)
    broken = {"exception_info": {"exception_type": "SandboxBuildFailedError"}}
    trial(tmp_path, "files__3", LIST, BASH, verifier_result=None, **broken)
    table, notes = read_dump(tmp_path)
    assert columns_of(table, "group_id", "rollout_id", "reward", "truncated") == [
        ("files", "files__1", 1.0, False),
        ("files", "files__2", 0.0, True),
    ]
    assert "SandboxBuildFailedError: 1" in said(notes)["crashed_rollouts"]
    assert "AgentTimeoutError: 1" in said(notes)["cut"]


def test_a_continued_harbor_trajectory(tmp_path: Path) -> None:
    folder = trial(tmp_path, "files__1", LIST, BASH) / "agent"
    first = trajectory(LIST, BASH, continued_trajectory_ref="trajectory.cont-1.json")
    write_document(folder / "trajectory.json", first)
    copied = [step | {"is_copied_context": True} for step in (LIST, BASH)]
    last = {"source": "agent", "message": "done"}
    write_document(folder / "trajectory.cont-1.json", trajectory(*copied, last))
    table, notes = read_dump(tmp_path / "files__1")
    assert table["action"].to_list() == ['bash({"cmd":"ls"})', "done"]
    assert table["step_id"].to_list() == [2, 3]
    assert "2 steps of copied context" in said(notes)["copied_context"]


def test_a_trajectory_without_its_trial(tmp_path: Path) -> None:
    path = write_document(tmp_path / "trajectory.json", trajectory(LIST, BASH))
    assert "task and reward are in result.json" in crbc("check", path).refused()
    table, _ = read_dump(path, group_stride=1)
    assert columns_of(table, "rollout_id", "observation", "action") == [
        ("t1", "list files", 'bash({"cmd":"ls"})')
    ]


# --- Inspect --------------------------------------------------------------------------------------


def sample(**changed: Any) -> dict[str, Any]:
    record = {
        "id": "alf-17", "epoch": 2, "input": "hall", "target": "", "messages": [HALL, GO],
        "scores": {"success": {"value": 1}}, "metadata": {}, "limit": None, "error": None,
        "uuid": "u1",
    }  # fmt: skip
    return record | changed


def archive(path: Path, members: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {"header.json": {"version": 2}, **members}.items():
            file.writestr(name, json.dumps(content))
    return path


def test_inspect_samples(tmp_path: Path) -> None:
    log = [
        sample(),
        sample(epoch=1, scores={"success": {"value": 0}}, limit={"type": "message", "limit": 2}),
        sample(epoch=3, error={"message": "x", "traceback": "", "traceback_ansi": ""}),
        sample(epoch=4, messages=[HALL]),
    ]
    table, notes = read_dump(write_lines(tmp_path / "samples.jsonl", log))
    assert main_columns(table) == [
        ("alf-17", 2, 0, "hall", "go desk", 1.0, True, False),
        ("alf-17", 1, 0, "hall", "go desk", 0.0, False, True),
    ]
    assert table["success"].to_list() == [True, False]
    assert said(notes).keys() >= {"outcome", "cut", "crashed_rollouts", "empty_rollouts"}


@pytest.mark.parametrize(
    ("scores", "success"),
    [
        ({"includes": {"value": "C"}}, True),
        ({"includes": {"value": "I"}}, False),
        ({"includes": {"value": True}}, True),
        ({"judge": {"value": 0.7}}, None),
        ({"includes": {"value": "C"}, "judge": {"value": 0}}, None),
        ({"includes": {"value": "I"}, "success": {"value": "C"}}, True),
        ({"both": {"value": {"success": 1, "speed": 0.5}}}, None),
        (None, None),
    ],
)
def test_inspect_outcomes(scores: Any, success: bool | None, tmp_path: Path) -> None:
    table, _ = read_dump(write_lines(tmp_path / "samples.jsonl", [sample(scores=scores)]))
    found = table["success"][0] if "success" in table.columns else None
    assert found is success


def test_inspect_logs(tmp_path: Path) -> None:
    """A JSON log, an archive with whole samples, and one with samples in chunks."""
    image = {"type": "image", "image": "attachment://k"}
    seen = {"role": "user", "content": ["attachment", image]}
    talk = [HALL, CALL, seen, TAKE]
    kept = sample(messages=talk, attachments={"k": "data:,"})
    document = {"version": 2, "eval": {}, "plan": {}, "samples": [kept]}
    as_json = write_document(tmp_path / "log.json", document)
    whole = archive(tmp_path / "whole.eval", {"samples/alf-17_epoch_2.json": kept})
    numbered = {"role": "user", "content": ["attachment", image | {"image": "attachment://1"}]}
    prefix = "samples/alf-17_epoch_2"
    shell = {k: v for k, v in sample().items() if k != "messages"}
    chunked = archive(
        tmp_path / "chunked.eval",
        {
            f"{prefix}/sample.json": shell | {"message_refs": [[1, 3], [4, 6]]},
            f"{prefix}/messages/0.json": [GO, HALL],
            f"{prefix}/messages/2.json": [CALL, GO, numbered, TAKE],
            f"{prefix}/events/stats.json": {},
            f"{prefix}/attachments/0.json": ["other", "data:,"],
        },
    )
    tables = [read_dump(path)[0] for path in (as_json, whole, chunked)]
    assert tables[0].equals(tables[1])
    assert tables[1].equals(tables[2])
    assert tables[0]["action"].to_list() == ['go({"to": "desk"})', "take lamp"]
    assert "data:," in str(tables[0]["observation"][1])


def test_a_damaged_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "log.eval", {"samples/a_epoch_1.json": sample(id="a" * 4000)})
    content = path.read_bytes()
    place = content.index(b"samples/a_epoch_1.json") + 60
    path.write_bytes(content[:place] + bytes(8) + content[place + 8 :])
    assert "is damaged" in crbc("check", path).refused()


# --- chat, AgentGym, OpenRLHF ---------------------------------------------------------------------


def test_chat_needs_a_grouping(tmp_path: Path) -> None:
    log = [
        {"messages": [HALL, CALL, DESK], "tools": [], "reward": 1.0},
        {"messages": [HALL, GO], "tools": [], "reward": 0.0},
    ]
    path = write_lines(tmp_path / "chat.jsonl", log)
    assert "nothing says which conversations had the same task" in crbc("check", path).refused()
    table, _ = read_dump(path, group_by=("prompt",))
    assert columns_of(table, "rollout_id", "step", "observation", "action", "next_observation") == [
        (0, 0, "hall", 'go({"to": "desk"})', "desk, lamp"),
        (1, 0, "hall", "go desk", None),
    ]
    made = credit(path, "--group-by", "prompt", "--success-when", "reward >= 1")
    assert made["state_value"].to_list() == pytest.approx([0.49, 0.49])


def test_chat_keeps_what_a_grouping_may_need(tmp_path: Path) -> None:
    log = [{"messages": [HALL, GO], "task": "t", "success": won} for won in (True, False)]
    path = write_lines(tmp_path / "chat.jsonl", log)
    made = credit(path, "--group-by", "task")
    assert made["group_id"].to_list() == ["t", "t"]
    assert made["group_status"].to_list() == ["ok", "ok"]


@pytest.mark.parametrize("container", ["json", "jsonl"])
def test_agentgym(container: str, tmp_path: Path) -> None:
    rules = [
        {"from": "human", "value": "rules", "loss": None},
        {"from": "gpt", "value": "OK", "loss": False},
    ]
    own = [
        {"from": "human", "value": "hall", "loss": None},
        {"from": "gpt", "value": "go desk", "loss": True},
    ]
    log = [
        {"item_id": "alf_3", "conversations": rules + own},
        {"item_id": "alf_3", "conversations": own},
        {"item_id": "alf_4", "conversations": rules},
    ]
    path = tmp_path / f"log.{container}"
    _ = write_document(path, log) if container == "json" else write_lines(path, log)
    table, notes = read_dump(path)
    assert columns_of(table, "group_id", "rollout_id", "step", "observation", "action") == [
        ("alf_3", 0, 0, "hall", "go desk"),
        ("alf_3", 1, 0, "hall", "go desk"),
    ]
    assert "1 rollout without steps" in said(notes)["empty_rollouts"]


def test_agentgym_rl(tmp_path: Path) -> None:
    log = [{"item_id": "alf_3", "conversations": [HALL, GO], "reward": 1.0}]
    table, _ = read_dump(write_document(tmp_path / "step1" / "0.json", log))
    assert main_columns(table) == [("alf_3", 0, 0, "hall", "go desk", 1.0, True, False)]


def test_openrlhf_is_told_what_it_lacks(tmp_path: Path) -> None:
    record = {
        "index": 5, "prompts": "hall", "labels": "", "rewards": 1.0, "truncated": False,
        "sequences": [1, 2, 5, 6], "action_mask": [0, 1, 1], "advantages": [0.0, 0.5, 0.5],
        "returns": [0.0, 0.5, 0.5], "info": {"reward": 1.0, "response_length": 2},
    }  # fmt: skip
    path = write_lines(tmp_path / "experience.jsonl", [record])
    assert "a row is one token sequence" in crbc("check", path).refused()
    table, _ = read_dump(path, group_stride=1)
    assert columns_of(table, "rollout_id", "reward", "logged_advantage") == [(5, 1.0, 0.5)]
