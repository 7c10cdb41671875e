"""Problems that users of group-based agent RL run into, as small invented logs with the numbers
each must give. One function per log of `cases/`; the arithmetic stands beside the numbers.

β = 0.98, full closure, floor 0.1 unless a call says otherwise.
"""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import approx, four

from crbc_cli.api import annotate
from crbc_cli.errors import IdentityError, OutcomeError
from crbc_cli.logs.formats import lines

CASES = Path(__file__).parent / "cases"
ROOT2 = 2**0.5


def credited(name: str | Path, tmp_path: Path, **options: Any) -> dict[str, list[Any]]:
    """Credit columns of a case, in the order of its lines."""
    output = tmp_path / "credit.parquet"
    done = annotate([str(CASES / name)], str(output), force=True, **options)
    columns: dict[str, list[Any]] = pl.read_parquet(output).to_dict(as_series=False)
    columns["notes"] = [note.code for note in done.notes.items]
    return columns


def lines_of(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


# --- who belongs to which group -------------------------------------------------------------------


def test_group_key_too_fine(tmp_path: Path) -> None:
    table = credited("group-key-too-fine.jsonl", tmp_path)
    assert table["group_status"] == ["singleton"] * 4
    assert table["reason"] == ["singleton_group"] * 4
    assert table["state_value"] == approx([0.98, 0, 0.98, 0])
    assert table["step_credit"] == [0] * 4
    assert table["group_advantage"] == [0] * 4
    raw = credited("group-key-too-fine.jsonl", tmp_path, singleton="raw")
    assert raw["group_advantage"] == [1, 0, 1, 0]


def test_uneven_groups(tmp_path: Path) -> None:
    """Rewards 5, 1, 5 | 5, 5 | 1, 5, 5 by group, neither over the batch nor by a stride of 3."""
    centred = credited("uneven-groups.jsonl", tmp_path, reward="last", estimator="dr-grpo")
    third = 4 / 3
    expected = [third, -2 * third, third, 0, 0, -2 * third, third, third]
    assert centred["group_advantage"] == approx(expected)
    assert centred["group_advantage"][3:5] == [0, 0]
    scaled = credited("uneven-groups.jsonl", tmp_path, reward="last")
    expected = [0.5774, -1.1547, 0.5774, 0, 0, -1.1547, 0.5774, 0.5774]
    assert scaled["group_advantage"] == four(expected)
    expected = [ROOT2 / 2, -ROOT2, ROOT2 / 2, 0, 0, -ROOT2, ROOT2 / 2, ROOT2 / 2]
    assert scaled["step_credit"] == approx(expected)
    with pytest.raises(IdentityError):
        credited("uneven-groups.jsonl", tmp_path, group_stride=3)
    rows = [json.loads(line) for line in lines_of(CASES / "uneven-groups.jsonl")]
    prompted = tmp_path / "prompted.jsonl"
    prompted.write_text("".join(json.dumps(r | {"prompt": r["group_id"]}) + "\n" for r in rows))
    with pytest.raises(IdentityError, match=r"prompted\.jsonl:4: block 1 .*several prompts"):
        credited(prompted, tmp_path, group_stride=3)


def test_same_anchor_two_tasks(tmp_path: Path) -> None:
    """Pooled over both tasks every action would be worth 0.49 and all credit 0."""
    table = credited("same-anchor-two-tasks.jsonl", tmp_path)
    assert table["step_credit"] == approx([1, -1, -1, 1])
    assert table["state_value"] == approx([0.49] * 4)
    assert table["visits"] == [2] * 4


def test_repeated_ids(tmp_path: Path) -> None:
    path = "repeated-ids.jsonl"
    with pytest.raises(IdentityError) as refused:
        credited(path, tmp_path)
    for line in (1, 2, 3, 4):
        assert f"{path}:{line}" in str(refused.value)
    last = credited(path, tmp_path, on_duplicate="last", singleton="raw")
    assert last["state_value"] == [None, None, 0, 0]
    assert last["credit"] == [None, None, 0, 0]
    assert last["reason"] == ["duplicate"] * 2 + ["singleton_group"] * 2
    first = credited(path, tmp_path, on_duplicate="first", singleton="raw")
    assert first["state_value"] == approx([0.9604, 0.98, None, None])
    assert first["credit"] == [0, 0, None, None]


# --- who counts how often, and in what order ------------------------------------------------------


def test_long_rollout_weighting(tmp_path: Path) -> None:
    path = "long-rollout-weighting.jsonl"
    rollouts = credited(path, tmp_path)
    assert rollouts["group_advantage"] == four([0.7071, -0.7071, -0.7071, -0.7071])
    rows = credited(path, tmp_path, episode_stats="rows")  # mean 1/4, std 1/2
    assert rows["group_advantage"] == approx([1.5, -0.5, -0.5, -0.5], 4e-6)
    assert rows["step_credit"] == rollouts["step_credit"] == approx([1, -1, 0, 0])


def test_rows_out_of_order(tmp_path: Path) -> None:
    """Lines are r0:1, r1:0, r0:0, r1:1. Both actions at A lead to B, so only B has credit; at
    K = 0 and in file order the A-rows differ."""
    path = "rows-out-of-order.jsonl"
    table = credited(path, tmp_path)
    assert table["state_value"] == approx([0.49, 0.4802, 0.4802, 0.49])
    assert table["action_value"][1:3] == approx([0.4802, 0.4802])
    assert table["step_credit"] == approx([1, 0, 0, -1])
    local = credited(path, tmp_path, depth=0)
    assert local["step_credit"] == approx([1, -1, 1, -1])
    unsorted = credited(path, tmp_path, order_by="file")
    # B → A → success and A → B → failure: V(A) = (β + βV(B))/2, V(B) = βV(A)/2.
    assert unsorted["state_value"][1:3] == approx([0.49 / (1 - 0.49**2)] * 2)
    assert unsorted["step_credit"][1:3] == approx([-1, 1])


def test_varying_turn_counts(tmp_path: Path) -> None:
    """V(s1) = β/2, V(s0) = (2β·V(s1) + β)/3; s2 is visited once."""
    table = credited("varying-turn-counts.jsonl", tmp_path)
    s0, s1 = (0.98**2 + 0.98) / 3, 0.49
    assert table["state_value"] == approx([s0, s1, s0, s0, s1, 0], 1e-12)
    assert s0 == approx(0.6468, 6e-5)
    half = ROOT2 / 2
    assert table["step_credit"] == approx([-half, 1, ROOT2, -half, -1, 0])


# --- degenerate groups and numerics ---------------------------------------------------------------


def test_group_of_one(tmp_path: Path) -> None:
    path = "group-of-one.jsonl"
    zero = credited(path, tmp_path)
    assert zero["state_value"] == zero["action_value"] == approx([0.98])
    assert zero["step_credit"] == zero["group_advantage"] == zero["advantage"] == [0]
    assert zero["reason"] == ["singleton_group"]
    assert credited(path, tmp_path, singleton="raw")["group_advantage"] == [1]
    dropped = credited(path, tmp_path, singleton="drop")
    for name in ("group_advantage", "advantage", "step_credit", "credit", "state_value"):
        assert dropped[name] == [None]


def test_constant_outcome_groups(tmp_path: Path) -> None:
    """allwin: Q = 0.98 for the short way and 0.9604 for the long one, divided by the floor."""
    path = "constant-outcome-groups.jsonl"
    table = credited(path, tmp_path)
    assert table["group_status"] == ["all_success"] * 3 + ["all_fail"] * 3
    assert table["group_advantage"] == [0] * 6
    assert table["state_value"] == approx([0.9702, 0.9702, 0.98, 0, 0, 0])
    assert table["credit"] == approx([0.0098, -0.0098, 0, 0, 0, 0])
    assert table["step_credit"] == approx([0.098, -0.098, 0, 0, 0, 0])
    assert table["credit"][2:] == table["step_credit"][2:] == [0] * 4
    summed = credited(path, tmp_path, reward="sum")  # statuses are judged on outcomes
    assert summed["group_status"] == table["group_status"]


def test_nan_and_null_reward(tmp_path: Path) -> None:
    path = "nan-and-null-reward.jsonl"
    table = credited(path, tmp_path, estimator="dr-grpo")
    assert table["step_credit"] == approx([1, None, -1, None])
    assert table["state_value"] == approx([0.49, None, 0.49, None])
    assert table["group_advantage"] == approx([0.5, None, -0.5, None])
    assert table["reason"] == [None, "unscored", None, "unscored"]
    assert "unscored" in table["notes"]
    failed = credited(path, tmp_path, unscored="fail")
    assert failed["state_value"] == approx([0.245] * 4)
    assert failed["step_credit"] == approx([1, -1, -1, 1])
    with pytest.raises(OutcomeError, match=r"nan-and-null-reward\.jsonl:2"):
        credited(path, tmp_path, unscored="error")


def test_output_is_strict_json(tmp_path: Path) -> None:
    """The log's NaN becomes null; `json` would accept NaN, so every constant is refused."""

    def refuse(token: str) -> None:
        raise AssertionError(token)

    output = tmp_path / "credit.jsonl"
    annotate([str(CASES / "nan-and-null-reward.jsonl")], str(output), columns="all")
    rows = [json.loads(line, parse_constant=refuse) for line in lines_of(output)]
    assert [row["reward"] for row in rows] == [1.0, None, 0.0, None]
    assert [row["step_credit"] for row in rows] == [1.0, None, -1.0, None]


def test_std_conventions(tmp_path: Path) -> None:
    path = "std-conventions.jsonl"

    def win(**options: Any) -> float:
        table = credited(path, tmp_path, **options)
        assert table["group_advantage"][1] == -table["group_advantage"][0]
        assert table["step_credit"] == approx([1, -1])
        return float(table["group_advantage"][0])

    assert win() == approx(0.7071, 6e-5)
    assert win(ddof=0) == approx(1, 6e-5)
    assert win(estimator="dr-grpo") == 0.5
    assert win(estimator="rloo") == 1
    # 0.5/(std + eps), std = sqrt(1/2) with ddof 1
    assert win(eps=1e-4) == approx(0.7070068, 6e-8)
    assert win(eps=1e-6) == approx(0.7071058, 6e-8)


# --- rewards on the right step --------------------------------------------------------------------


def test_intermediate_rewards(tmp_path: Path) -> None:
    """Closure by outcome: V(t) = β², V(s) = (βV(t) + βV(s) + 0)/3, so V(s) = β³/(3 − β)."""
    path = "intermediate-rewards.jsonl"
    table = credited(path, tmp_path)
    assert table["state_value"][0] == approx(0.98**3 / (3 - 0.98), 1e-12) == approx(0.465937)
    assert table["step_credit"] == approx([ROOT2, 0, 0, -ROOT2 / 2, -ROOT2 / 2])
    rewards = {"sum": (11.1, -0.2), "last": (10, -0.1), "episode_reward": (11.1, 0.0)}
    for rule, (r0, r1) in rewards.items():
        centred = credited(path, tmp_path, reward=rule, estimator="dr-grpo")["group_advantage"]
        half = (r0 - r1) / 2
        assert centred == approx([half] * 3 + [-half] * 2, 1e-12)


def test_credit_round_trip(tmp_path: Path) -> None:
    """The golden group: credit differs from step to step inside a rollout."""
    table = credited("credit-round-trip.jsonl", tmp_path)
    half = ROOT2 / 2
    assert table["step_credit"] == approx([1, half, 1, -ROOT2, -1, 1, half, -1, -1])
    distinct: dict[str, set[float]] = {}
    for name, value in zip(table["rollout_id"], table["step_credit"], strict=True):
        distinct.setdefault(name, set()).add(round(value, 9))
    assert [len(values) for values in distinct.values()] == [2, 2, 3, 1]


# --- how a rollout ends ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "v_s", "v_t", "steps"),
    [
        ("fail", 0.320133, 0.49, [ROOT2 / 2, 1, ROOT2 / 2, -1, -ROOT2]),
        ("censor", 0.640267, 0.98, [ROOT2 / 2, 0, ROOT2 / 2, None, -ROOT2]),
        ("exclude", 0.480200, 0.98, [1, 0, None, None, -1]),
        ("bootstrap", 0.470877, 0.720730, [ROOT2 / 2, 1, ROOT2 / 2, -1, -ROOT2]),
    ],
)
def test_time_limit_truncation(
    rule: str, v_s: float, v_t: float, steps: list[Any], tmp_path: Path
) -> None:
    """fail: V(T) = β/2, V(S) = 2/3·βV(T). censor: V(T) = β. bootstrap: V(T) = β(1 + V(S))/2."""
    table = credited("time-limit-truncation.jsonl", tmp_path, truncated=rule)
    assert [table["state_value"][i] for i in (0, 1, 4)] == approx([v_s, v_t, v_s])
    assert table["step_credit"] == approx(steps)


def test_missing_terminal_row(tmp_path: Path) -> None:
    path = "missing-terminal-row.jsonl"
    for rule in ("fail", "bootstrap"):  # no next observation is logged
        table = credited(path, tmp_path, truncated=rule)
        assert table["state_value"] == approx([0.4802, 0.49] * 2)
        assert table["step_credit"] == approx([0, -1, 0, 1])
    undiscounted = credited(path, tmp_path, discount=1.0)
    assert undiscounted["state_value"] == approx([0.5] * 4)
    assert undiscounted["step_credit"] == approx([0, -1, 0, 1])
    censored = credited(path, tmp_path, truncated="censor")
    assert censored["state_value"] == approx([0.9604, None, 0.9604, 0.98])
    assert censored["step_credit"] == [0, None, 0, 0]
    assert censored["reason"][1] == "censored"


# --- anchors --------------------------------------------------------------------------------------


def test_dict_and_null_observation(tmp_path: Path) -> None:
    table = credited("dict-and-null-observation.jsonl", tmp_path)
    assert table["anchor"] == [0, 0]
    assert table["step_credit"] == approx([1, -1])
    assert table["state_value"] == approx([0.49] * 2)


def test_stable_anchor_id(tmp_path: Path) -> None:
    """The digest is that of the content alone; see test_canonical for other processes."""
    path = "stable-anchor-id.jsonl"
    table = credited(path, tmp_path, anchor_id=True)
    assert table["step_credit"] == approx([1, -1])
    [digest] = set(table["anchor_id"])
    assert len(digest) == 32
    assert int(digest, 16) > 0
    renamed = tmp_path / "renamed.jsonl"
    renamed.write_text((CASES / path).read_text().replace('"g"', '"another group"'))
    again = credited(renamed, tmp_path, anchor_id=True)
    assert again["group_id"] == ["another group"] * 2
    assert again["anchor_id"] == table["anchor_id"]


def test_volatile_tokens(tmp_path: Path) -> None:
    path = "volatile-tokens.jsonl"
    apart = credited(path, tmp_path)
    assert apart["credit"] == [0, 0]
    assert apart["visits"] == [1, 1]
    masked = credited(path, tmp_path, mask=[r"\[\d\d:\d\d:\d\d\]"])
    assert masked["anchor"] == [0, 0]
    assert masked["step_credit"] == approx([1, -1])


def test_aliased_observation(tmp_path: Path) -> None:
    """Text alone: V(hall) = (βV(hall) + β + 0)/3 = β/(3 − β), so taking the key looks bad."""
    path = "aliased-observation.jsonl"
    table = credited(path, tmp_path)
    assert table["state_value"] == approx([0.98 / (3 - 0.98)] * 3) == approx([0.485149] * 3)
    assert table["step_credit"] == four([-0.0970, 0.0485, 0.0485])
    rows = [json.loads(line) for line in lines_of(CASES / path)]
    carried = [row | {"inventory": held} for row, held in zip(rows, ("", "key", ""), strict=True)]
    better = tmp_path / "inventory.jsonl"
    better.write_text("".join(json.dumps(row) + "\n" for row in carried))
    table = credited(better, tmp_path, anchor=["observation", "inventory"])
    assert table["step_credit"] == approx([1, 0, -1])


def test_history_in_observation(tmp_path: Path) -> None:
    """Whole dialogues never match; the log shows steps 1 and 2 only, which changes no credit."""
    path = "history-in-observation.jsonl"
    whole = credited(path, tmp_path, anchor=["messages"])
    assert whole["anchor"] == [0, 1]
    assert whole["credit"] == [0, 0]
    seen = credited(path, tmp_path, anchor=["last-tool-result"])
    assert seen["anchor"] == [0, 0]
    assert seen["step_credit"] == approx([1, -1])
    assert seen["state_value"] == approx([0.49] * 2)


# --- files ----------------------------------------------------------------------------------------


def test_long_prompt_columns(tmp_path: Path) -> None:
    table = credited("long-prompt-columns.jsonl", tmp_path)
    assert table["state_value"] == approx([0.922368, 0.941192, 0.960400, 0.98])
    assert table["credit"] == [0] * 4
    assert table["actions"] == [1] * 4


def test_memory_does_not_follow_long_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that are not asked for are passed over: the peak stays far below the file's size."""
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 1 << 20)
    rows = [json.loads(line) for line in lines_of(CASES / "long-prompt-columns.jsonl")]
    path = tmp_path / "long.jsonl"
    with path.open("w") as file:
        for number in range(40):
            for row in rows:
                row |= {"rollout_id": number, "prompt_ids": list(range(30_000))}
                file.write(json.dumps(row) + "\n")
    tracemalloc.start()
    credited(path, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 2


def test_drifting_schema(tmp_path: Path) -> None:
    """`info` is null, an object and a string; it passes through byte for byte."""
    path = CASES / "drifting-schema.jsonl"
    table = credited(path.name, tmp_path)
    assert table["state_value"] == approx([0.326667] * 3)
    assert table["step_credit"] == approx([ROOT2, -ROOT2 / 2, -ROOT2 / 2])
    output = tmp_path / "all.jsonl"
    annotate([str(path)], str(output), columns="all")
    infos = ("null", '{"tool": "x", "args": [1, "two"]}', '"timeout"')
    lines = zip(lines_of(path), lines_of(output), infos, strict=True)
    for before, after, info in lines:
        assert f'"info": {info}}}' in before
        assert f'"info":{info},' in after
        assert json.loads(after) | json.loads(before) == json.loads(after)


def test_torn_last_line(tmp_path: Path) -> None:
    table = credited("torn-last-line.jsonl", tmp_path)
    assert table["notes"] == ["torn_line", "lone_rollouts"]
    assert table["source_row"] == [0]
    assert table["group_status"] == ["singleton"]
    assert table["step_credit"] == [0]


def test_numeric_file_names(tmp_path: Path) -> None:
    """9 comes before 10, and each file's rows keep its name."""
    text = (CASES / "std-conventions.jsonl").read_text()
    for name in ("10.jsonl", "11.jsonl", "9.jsonl"):
        (tmp_path / name).write_text(text)
    table = credited(tmp_path, tmp_path)
    names = [Path(name).name for name in table["source_file"]]
    assert names == ["9.jsonl"] * 2 + ["10.jsonl"] * 2 + ["11.jsonl"] * 2
    assert table["step_credit"] == approx([1, -1] * 3)
