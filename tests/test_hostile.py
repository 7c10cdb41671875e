"""Odd but legal shapes work, and numbers nobody can compute with are refused in one line."""

import numpy as np
import polars as pl
import pytest
from conftest import ROOT, crbc

import crbc_cli

GOLDEN = ROOT / "sample_logs" / "golden.jsonl"


def table(frame: pl.DataFrame, **options: object) -> pl.DataFrame:
    return pl.DataFrame(crbc_cli.credit(frame.to_arrow(), **options))


@pytest.mark.parametrize(
    "options",
    [
        ("--discount", "nan"),
        ("--w-s", "inf"),
        ("--w-g", "nan"),
        ("--penalty", "nan"),
        ("--floor", "1e-300"),
        ("--floor", "0"),
        ("--eps", "-1"),
        ("--success-reward", "1e300"),
        ("--depth", "10000000000"),
        ("--expected-group-size", "-1"),
        ("--action-tag", "a>(b"),
        ("--mask", "("),
        ("--success-when", "reward >= 1 OR " * 400 + "reward >= 1"),
        ("--success-when", "1"),
        ("--success-when", "sum(reward) > 1"),
        ("--success-when", "reward >= 1; drop"),
    ],
)
def test_values_that_cannot_be_computed_with_are_refused(options: tuple[str, str]) -> None:
    crbc("annotate", GOLDEN, "-o", "-", "--to", "csv", *options).refused()


def test_a_group_of_ten_thousand_rollouts() -> None:
    n = 10_000
    wins = np.arange(n) % 4 == 0
    frame = pl.DataFrame(
        {
            "group_id": ["g"] * n,
            "rollout_id": np.arange(n),
            "step": np.zeros(n, np.int64),
            "observation": ["s"] * n,
            "action": np.where(wins, "a", "b"),
            "success": wins,
        }
    )
    credit = table(frame)
    # V = β/4; Q(a) = β, Q(b) = 0; σ² = β²·(1/4·9/16 + 3/4·1/16), so A_S(a) = √3, A_S(b) = −1/√3
    assert credit["state_value"].to_numpy() == pytest.approx(0.98 / 4, rel=1e-12)
    assert credit["step_credit"][0] == pytest.approx(3**0.5, rel=1e-12)
    assert credit["step_credit"][1] == pytest.approx(-(3**-0.5), rel=1e-12)
    assert credit["reachable_rollouts"].unique().to_list() == [n]


@pytest.mark.parametrize("depth", ["inf", 1])
def test_a_rollout_of_a_hundred_thousand_steps(depth: object) -> None:
    n = 100_000
    frame = pl.DataFrame(
        {
            "group_id": ["g"] * n,
            "rollout_id": ["r"] * n,
            "step": np.arange(n),
            "observation": np.arange(n).astype(str),
            "action": ["on"] * n,
            "success": np.arange(n) == n - 1,
        }
    )
    values = table(frame, discount=0.9999, depth=depth)["state_value"].to_numpy()
    assert values == pytest.approx(0.9999 ** np.arange(n, 0, -1.0), rel=1e-9)


def test_an_anchor_with_fifty_thousand_actions() -> None:
    n = 50_000
    frame = pl.DataFrame(
        {
            "group_id": ["g"] * n,
            "rollout_id": np.arange(n),
            "step": np.zeros(n, np.int64),
            "observation": ["s"] * n,
            "action": np.arange(n).astype(str),
            "success": np.arange(n) < n // 2,
        }
    )
    credit = table(frame)
    assert credit["actions"].unique().to_list() == [n]
    assert np.abs(credit["step_credit"].to_numpy()) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("rule", ["censor", "exclude", "bootstrap"])
def test_long_tails_that_lead_nowhere_are_walked_once(rule: str) -> None:
    """A cut rollout of 50,000 new states behind the first: linear, not one sweep a state."""
    n = 50_000
    step = np.append(np.arange(n), 0)
    frame = pl.DataFrame(
        {
            "group_id": ["g"] * (n + 1),
            "rollout_id": ["cut"] * n + ["wins"],
            "step": step,
            "observation": np.append(np.arange(n), 0).astype(str),
            "action": ["on"] * n + ["win"],
            "done": [False] * n + [True],
            "success": [False] * n + [True],
            "next_observation": [str(n - 1)] * (n + 1),
        }
    )
    credit = table(frame, truncated=rule)
    # censor and exclude leave one certain win at the start; the bootstrapped tail is a closed class
    start = 0.98 if rule != "bootstrap" else 0.49
    assert credit["state_value"][n] == pytest.approx(start, rel=1e-12)
    if rule != "bootstrap":
        assert credit["state_value"][:n].null_count() == n


def test_names_used_inside_are_ordinary_columns() -> None:
    names = ("source", "source_row", "reply_key", "anchor_key", "row", "s0u0", "rule:x", "key:x")
    log = pl.read_ndjson(GOLDEN).with_columns(pl.lit(1).alias(name) for name in names)
    plain = table(pl.read_ndjson(GOLDEN))
    assert table(log).equals(plain)
    assert table(log, key=["source", "s0u0"]).drop("anchor").equals(plain.drop("anchor"))
