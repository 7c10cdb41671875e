"""The sample logs, sampled from real environments, against the oracle."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import INF, Rows, by_key, oracle_credit, package_credit, same_credit

SAMPLES = Path(__file__).parent.parent / "sample_logs"
COLUMNS = (
    "group_id", "rollout_id", "step", "observation", "action", "reward", "done", "success",
    "truncated", "next_observation", "is_action_valid",
)  # fmt: skip
LOGS = ("sokoban", "alfworld")
ENDINGS = ("fail", "censor", "exclude", "bootstrap")


@functools.cache
def sample(name: str) -> Rows:
    frame = pl.read_parquet(SAMPLES / f"{name}.parquet")
    return frame.select([c for c in COLUMNS if c in frame.columns]).to_dicts()


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("depth", [0, 2, INF])
def test_endings_and_depths(log: str, ending: str, depth: float) -> None:
    options = {"truncated": ending, "depth": depth}
    same_credit(package_credit(sample(log), **options), oracle_credit(sample(log), **options))


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(
    "options",
    [
        {"discount": 1.0},
        {"discount": 1.0, "truncated": "bootstrap"},
        {"reward": "sum", "estimator": "rloo", "episode_stats": "rows"},
        {"intermediate_rewards": True, "gate": "successors"},
        {"intermediate_rewards": True, "truncated": "censor", "depth": 1, "sigma": "closure"},
    ],
    ids=str,
)
def test_other_options(log: str, options: dict[str, Any]) -> None:
    same_credit(package_credit(sample(log), **options), oracle_credit(sample(log), **options))


def test_penalties_where_the_environment_refused_actions() -> None:
    rows = sample("alfworld")
    assert any(row["is_action_valid"] is False for row in rows)
    options = {"invalid_penalty": "both", "success_reward": 10.0, "episode_stats": "rows"}
    same_credit(package_credit(rows, **options), oracle_credit(rows, **options))


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_shuffled_rows_give_the_same_bits(log: str, ending: str) -> None:
    rows = sample(log)
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled = [rows[i] for i in order]
    ours = by_key(rows, package_credit(rows, truncated=ending))
    theirs = by_key(shuffled, package_credit(shuffled, truncated=ending))
    assert {k: repr(v) for k, v in ours.items()} == {k: repr(v) for k, v in theirs.items()}
