"""Printed loaders and hooks, run on batches shaped as the trainers hold them.

Each round starts from the same rollouts: the hook logs the batch, `crbc annotate --emit` writes
credit, and the printed loader puts it on tokens. What arrives must be the credit of the rollouts.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import trainer_batches as made
from conftest import crbc
from trainer_batches import ROLLOUTS, STEPS, decode, tensor

from crbc_cli.trainers.adapters import HOOKS, LOADERS
from crbc_cli.trainers.targets import TARGETS

CREDIT = made.true_credit()


def printed(*arguments: str) -> dict[str, Any]:
    """Names that the printed file defines when it is run on its own."""
    ended = crbc("adapter", *arguments)
    assert ended.code == 0, ended.stderr
    names: dict[str, Any] = {"__name__": "dropped_in"}
    exec(compile(ended.text, "printed", "exec"), names)
    return names


def emitted(target: str, log: Path, folder: Path, *options: str) -> str:
    """Path of the credit that `crbc annotate --emit` writes for a log."""
    path = folder / f"{target}.parquet"
    ended = crbc("annotate", log, "--emit", target, "-o", path, *options)
    assert ended.code == 0, ended.stderr
    return str(path)


def log_of(written: Any, folder: Path) -> pl.DataFrame:
    written.result()
    [path] = folder.glob("*.parquet")
    return pl.read_parquet(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


# --- hooks ---------------------------------------------------------------------------------------


def run_hook(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """(batch, what the hook returned or its future)."""
    hook = printed(name, "--hook")
    monkeypatch.setenv("CRBC_LOG", str(folder))
    match name:
        case "verl-agent":
            batch: Any = made.verl_agent_batch()
            return batch, hook["log_steps"](batch, str(folder), 7)
        case "verl":
            batch = made.verl_batch()
            return batch, hook["log_turns"](batch, str(folder), 7, decode)
        case "trl":
            batch = made.trl_output()
            scores = [float(r.success) for r in ROLLOUTS]
            return batch, hook["log_turns"](batch, str(folder), 7, 4, scores, decode)
        case "slime":
            batch = made.slime_samples()
            args = SimpleNamespace(reward_key=None)
            assert hook["log_turns"](7, args, batch, None, 1.0, decode=decode) is False
            return batch, hook["_written"][0]
        case "rllm":
            batch = made.rllm_episodes()
            return batch, hook["log_steps"](batch, str(folder), 7)
        case "skyrl":
            batch = made.skyrl_output()
            return batch, hook["log_steps"](batch, str(folder), 7, decode)
        case "tinker":
            batch = made.tinker_groups()
            return batch, hook["log_steps"](batch, str(folder), 7, decode)
        case "areal":
            batch = made.areal_batch()
            return batch, hook["log_turns"](batch, str(folder), 7, decode)
        case "nemo-rl":
            batch = {
                "message_log": [made.messages(r) for r in ROLLOUTS],
                "total_reward": tensor([float(r.success) for r in ROLLOUTS], np.float32),
                "truncated": [False] * len(ROLLOUTS),
            }
            return batch, hook["log_turns"](batch, str(folder), 7, 4)
        case _:
            monkeypatch.setenv("CRBC_GENERATIONS", "4")
            monkeypatch.setenv("CRBC_SCORE", "solved")
            batch = [made.messages(r) for r in ROLLOUTS]
            reward = hook["LogTurns"]()
            solved = [r.success for r in ROLLOUTS]
            last = [m[-1]["content"] for m in batch]
            assert reward(last, messages=batch, solved=solved, trainer_state=None) == [0.0] * 8
            return batch, reward.written


OUTCOME = {
    "verl-agent": ["--success-when", "episode_rewards >= 10", "--action-tag", "action"],
    "rllm": [],
}
SCORE = ["--success-when", "score >= 1"]


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_log_the_steps(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, written = run_hook(name, folder, monkeypatch)
    log = log_of(written, folder)
    assert [path.suffix for path in folder.iterdir()] == [".parquet"]
    assert log["step"].to_list() == [s for _, s in STEPS]
    assert log["observation"].to_list() == [r.turns[s][0] for r, s in STEPS]
    actions = [r.turns[s][1] for r, s in STEPS]
    assert log["action"].str.replace_all("</?action>", "").to_list() == actions
    groups = log.select("group_id").to_series().rle_id().to_list()
    assert groups == [r.group for r, _ in STEPS]
    rollouts = log.select(pl.struct("group_id", "rollout_id").rle_id()).to_series()
    assert rollouts.to_list() == [ROLLOUTS.index(r) for r, _ in STEPS]
    ended = crbc("annotate", folder, "-o", tmp_path / "c.parquet", *OUTCOME.get(name, SCORE))
    assert ended.code == 0, ended.stderr
    credit = pl.read_parquet(tmp_path / "c.parquet")["advantage"]
    expected = [CREDIT[r.group, r.place, s] for r, s in STEPS]
    assert np.array_equal(np.float32(credit), np.float32(expected))


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_write_off_the_calling_thread(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    real = pq.write_table

    def watched(*arguments: Any, **how: Any) -> None:
        threads.append(threading.current_thread())
        real(*arguments, **how)

    monkeypatch.setattr(pq, "write_table", watched)
    _, written = run_hook(name, folder, monkeypatch)
    written.result()
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_report_a_file_that_cannot_be_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, written = run_hook(name, tmp_path / "absent", monkeypatch)
    with pytest.raises(OSError, match="absent"):
        written.result()


@pytest.mark.parametrize("kind", ["loader", "hook"])
def test_printed_files_stand_alone_and_are_short(kind: str) -> None:
    for name in LOADERS if kind == "loader" else HOOKS:
        text = crbc("adapter", name, *(["--hook"] if kind == "hook" else [])).text
        assert "crbc_cli" not in text
        code = text.split('"""', 2)[2]
        assert 15 <= sum(bool(line.strip()) for line in code.splitlines()) <= 45, name


def test_the_list_names_every_trainer() -> None:
    lines = crbc("adapter").text.splitlines()
    assert {line.split()[0] for line in lines} == {*LOADERS, *HOOKS}
    assert set(LOADERS) == set(TARGETS)
    assert "areal has no loader" in crbc("adapter", "areal").refused()
    assert "prime-rl has no hook" in crbc("adapter", "prime-rl", "--hook").refused()
    assert "'grpo' is not known; use one of verl-agent, " in crbc("adapter", "grpo").refused()


# --- loaders: what arrives is the credit ---------------------------------------------------------


def per_step(advantages: Any, mask: Any) -> list[list[float]]:
    """Values of each row, one per run of equal masked tokens."""
    found = []
    for values, kept in zip(np.asarray(advantages), np.asarray(mask), strict=True):
        assert not values[kept == 0].any()
        edges = np.flatnonzero(np.diff(kept, prepend=0, append=0)).reshape(-1, 2)
        runs = [np.unique(values[start:stop]) for start, stop in edges]
        assert all(len(run) == 1 for run in runs)
        found.append([float(run[0]) for run in runs])
    return found


def expected_by_rollout() -> list[list[float]]:
    return [[CREDIT[r.group, r.place, s] for s in range(len(r.turns))] for r in ROLLOUTS]


def test_verl_agent(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, written = run_hook("verl-agent", folder, monkeypatch)
    written.result()
    path = emitted("verl-agent", folder, tmp_path, *OUTCOME["verl-agent"])
    order = np.random.default_rng(0).permutation([*range(len(STEPS)), 3, 3, 8])  # with copies
    rows = {name: values[order] for name, values in batch.non_tensor_batch.items()}
    mask = batch.batch["response_mask"][order]
    advantages, kept = printed("verl-agent")["load_advantages"](path, rows, mask)
    assert advantages.dtype == np.float32
    assert np.array_equal(kept, mask)
    found = [value for [value] in per_step(advantages, mask)]
    assert found == [CREDIT[STEPS[i][0].group, STEPS[i][0].place, STEPS[i][1]] for i in order]


def test_verl(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, written = run_hook("verl", folder, monkeypatch)
    written.result()
    path = emitted("verl", folder, tmp_path, *SCORE)
    order = [7, 0, 3, 2, 6, 5, 4, 1, 0]
    keys = batch.non_tensor_batch["crbc_key"][order]
    mask = batch.batch["response_mask"][order]
    load = printed("verl")["load_advantages"]
    advantages, _ = load(path, keys, mask)
    assert advantages.dtype == np.float32
    assert per_step(advantages, mask) == [expected_by_rollout()[i] for i in order]
    padding = "b7_0_0"
    with pytest.raises(KeyError, match=padding):
        load(path, [*keys[:-1], padding], mask)
    advantages, kept = load(path, [*keys[:-1], padding], mask, padding=[padding])
    assert not advantages[-1].any()
    assert not kept[-1].any()


def test_trl(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, written = run_hook("trl", folder, monkeypatch)
    written.result()
    path = emitted("trl", folder, tmp_path, *SCORE)
    advantages = printed("trl")["load_advantages"](path, "turns_00007.parquet", output)
    assert advantages.dtype == np.float32
    assert per_step(advantages, output["tool_mask"]) == expected_by_rollout()
    with pytest.raises(KeyError):
        printed("trl")["load_advantages"](path, "turns_00008.parquet", output)


def test_slime(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, written = run_hook("slime", folder, monkeypatch)
    written.result()
    monkeypatch.setenv("CRBC_CREDIT", emitted("slime", folder, tmp_path, *SCORE))
    order = [5, 2, 0, 7]
    data = {
        "sample_indices": order,
        "loss_masks": [tensor(samples[i].loss_mask) for i in order],
    }
    printed("slime")["crbc_advantages"](None, data)
    for i, advantages, mask in zip(order, data["advantages"], data["loss_masks"], strict=True):
        assert advantages.dtype == np.float32
        assert per_step([advantages], [mask]) == [expected_by_rollout()[i]]
    assert [a.tolist() for a in data["returns"]] == [a.tolist() for a in data["advantages"]]


@pytest.mark.parametrize("per_token", [False, True])
def test_rllm(
    per_token: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes, written = run_hook("rllm", folder, monkeypatch)
    written.result()
    path = emitted("rllm", folder, tmp_path)
    printed("rllm")["load_advantages"](path, episodes, per_token=per_token)
    for episode, expected in zip(episodes, expected_by_rollout(), strict=True):
        for step, value in zip(episode.trajectories[0].steps, expected, strict=True):
            assert step.advantage == ([value] * len(step.response_ids) if per_token else value)
            assert not isinstance(step.advantage, int)


def test_skyrl(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, written = run_hook("skyrl", folder, monkeypatch)
    written.result()
    path = emitted("skyrl", folder, tmp_path, *SCORE)
    padding = 3
    masks = [[1] * len(response) for response in output["response_ids"]]
    mask = made.padded([*masks, *masks[:padding]], left=True)
    load = printed("skyrl")["load_advantages"]
    advantages, kept = load(path, output["trajectory_ids"], mask)
    assert advantages.dtype == np.float32
    found = [value for [value] in per_step(advantages[:-padding], mask[:-padding])]
    assert found == [CREDIT[r.group, r.place, s] for r, s in STEPS]
    assert not advantages[-padding:].any()
    assert not kept[-padding:].any()


def test_tinker(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, written = run_hook("tinker", folder, monkeypatch)
    written.result()
    loader = printed("tinker")
    credit = loader["load_credit"](emitted("tinker", folder, tmp_path, *SCORE))
    for r, expected in zip(ROLLOUTS, expected_by_rollout(), strict=True):
        spans = [(len(made.encode(o)), len(made.encode(a))) for o, a in r.turns]
        tokens = loader["token_advantages"](credit, r.group, r.place, spans)
        prompt, response, mask = made.conversation(r)
        assert len(tokens) == len(prompt + response) - 1  # targets are shifted by one
        assert per_step([tokens], [([0] * len(prompt) + mask)[1:]]) == [expected]
        rest = loader["token_advantages"](credit, r.group, r.place, spans[1:], first=1)
        assert rest == tokens[sum(spans[0]) :]


def test_prime_rl(tmp_path: Path) -> None:
    rows = made.canonical().to_pylist()
    for row in rows:
        row["trace_id"] = f"trace-{row['group_id']}-{row['rollout_id']}"
        row["node_index"] = 2 * row["step"] + 1
    log = tmp_path / "log.parquet"
    pl.DataFrame(rows).write_parquet(log)
    loader = printed("prime-rl")
    credit = loader["load_credit"](emitted("prime-rl", log, tmp_path))
    for trace, expected in zip(made.traces(), expected_by_rollout(), strict=True):
        tokens = loader["token_advantages"](credit, trace)
        lengths = [len(node.token_ids) for node in trace.nodes if node.sampled]
        assert tokens == [v for v, n in zip(expected, lengths, strict=True) for _ in range(n)]


def test_distinct_credits_per_rollout_are_those_of_the_golden_group() -> None:
    """Two, two, three and one distinct step credits (worked case credit-round-trip)."""
    rows = [r for r in made.canonical().to_pylist() if r["group_id"] == 0]
    import crbc_cli

    table = crbc_cli.credit(pl.DataFrame(rows).to_arrow())
    distinct = defaultdict(set)
    for rollout, value in zip(
        table["rollout_id"].to_pylist(), table["step_credit"].to_pylist(), strict=True
    ):
        distinct[rollout].add(float(np.float32(value)))
    assert [len(distinct[i]) for i in range(4)] == [2, 2, 3, 1]


# --- loaders: what must not pass -----------------------------------------------------------------


def table_of(path: Path, **columns: Any) -> str:
    pl.DataFrame(columns, schema_overrides={"advantage": pl.Float32}).write_parquet(path)
    return str(path)


def test_each_row_is_multiplied_by_its_own_mask(tmp_path: Path) -> None:
    """Worked case per-step-token-mask: steps of one rollout whose tokens sit elsewhere."""
    path = table_of(
        tmp_path / "c.parquet",
        uid=["g", "g"],
        traj_uid=["r0", "r0"],
        position=[0, 1],
        advantage=[0.4, 0.4],
    )
    mask = tensor([[0, 0, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0]])
    rows = {"uid": ["g", "g"], "traj_uid": ["r0", "r0"], "crbc_position": [0, 1]}
    load = printed("verl-agent")["load_advantages"]
    advantages, _ = load(path, rows, mask)
    expected = np.float32([[0, 0, 0, 0.4, 0.4, 0.4], [0.4, 0.4, 0, 0, 0, 0]])
    assert np.array_equal(advantages, expected)
    with pytest.raises(AssertionError, match="no token"):
        load(path, rows, tensor([[0] * 6, [0] * 6]))


def lost(name: str, path: str, mask: Any) -> Callable[[], Any]:
    """A loader's call for one row that holds two steps, (0, 2) and (3, 2)."""
    load = printed(name)
    if name == "trl":
        output = {"completion_mask": mask}
        return lambda: load["load_advantages"](path, "f", output)
    return lambda: load["load_advantages"](path, ["f_0_0"], mask)


@pytest.mark.parametrize("name", ["verl", "trl"])
def test_a_step_without_tokens_is_no_silent_loss(name: str, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"key": ["f_0_0"] * 2, "file": ["f"] * 2, "row": [0, 0]}
    path = table_of(
        tmp_path / "c.parquet",
        **keys,
        advantage=[0.5, -1.5],
        response_start=[0, 3],
        response_len=[2, 2],
    )
    assert lost(name, path, tensor([[1, 1, 0, 1, 1]]))() is not None
    with pytest.raises(AssertionError, match="no token"):
        lost(name, path, tensor([[1, 1, 0, 0, 0]]))()


def test_null_credit_is_zero_or_leaves_the_loss(tmp_path: Path) -> None:
    rows: dict[str, Any] = {"uid": ["g", "g"], "traj_uid": ["r", "r"], "position": [0, 1]}
    path = table_of(tmp_path / "c.parquet", **rows, advantage=[None, 2.0])
    batch = {"uid": ["g", "g"], "traj_uid": ["r", "r"], "crbc_position": [0, 1]}
    mask = tensor([[1, 1], [1, 0]])
    load = printed("verl-agent")["load_advantages"]
    advantages, kept = load(path, batch, mask)
    assert advantages.tolist() == [[0, 0], [2, 0]]
    assert kept.tolist() == mask.tolist()
    advantages, kept = load(path, batch, mask, mask_null=True)
    assert advantages.tolist() == [[0, 0], [2, 0]]
    assert kept.tolist() == [[0, 0], [1, 0]]
    with pytest.raises(KeyError):
        load(path, {**batch, "crbc_position": [0, 2]}, mask)


def test_prime_rl_keeps_null_apart_from_zero(tmp_path: Path) -> None:
    path = table_of(
        tmp_path / "c.parquet",
        trace_id=["t", "t"],
        node_index=[1, 3],
        advantage=[None, 0.0],
    )
    node = SimpleNamespace(sampled=True, mask=[1, 1])
    seen = SimpleNamespace(sampled=False, mask=[0])
    trace = SimpleNamespace(id="t", nodes=[seen, node, seen, node])
    loader = printed("prime-rl")
    tokens = loader["token_advantages"](loader["load_credit"](path), trace)
    assert tokens == [None, None, 0.0, 0.0]
