"""Random logs and random options, from hypothesis or from a seeded generator.

Both use one builder that asks for integers: `choose(n)` gives one of 0..n-1, and 0 is always the
plainest choice, so that hypothesis shrinks towards a short, clean log. Logs have few symbols, so
that anchors are revisited, walks run in cycles, and rollouts share most of their situations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

Rows = list[dict[str, Any]]
Choose = Callable[[int], int]

NAN = float("nan")

TEXTS: tuple[Any, ...] = ("hall", "", "[1]", "hall ", "1", "Küche")
NUMBERS: tuple[Any, ...] = (1, 2, 3, -1, 0, 7)
STRUCTS: tuple[Any, ...] = (
    {"page": "cart", "items": [1, 2]},
    {"page": "cart", "items": [2, 1]},
    {"page": "cart", "items": []},
    {"page": None, "items": [1]},
    {"page": "pay", "items": None},
    {"page": "", "items": [1, 2]},
)
MIXED: tuple[Any, ...] = (
    {"page": "cart", "modal": None},
    "hall",
    1,
    [1, [2, None]],
    {"page": {"cart": True}},
    True,
    "1",
    [[1, 2], None],
    {"page": "cart", "modal": False},
    '{"page": "cart"}',
)
"""Observations and actions by kind; every kind but MIXED fits one Arrow column."""


@dataclass(frozen=True)
class Log:
    """A random log.

    Attributes:
      rows: as the oracle takes them.
      columns: all column names.
    """

    rows: Rows
    columns: frozenset[str]


def seeded(seed: int) -> Choose:
    """Integers of a seeded numpy generator."""
    rng = np.random.default_rng(seed)
    return lambda n: int(rng.integers(n))


def build_log(
    choose: Choose,
    *,
    groups: int = 3,
    rollouts: int = 6,
    steps: int = 8,
    kinds: Sequence[Sequence[Any]] = (TEXTS, NUMBERS, STRUCTS),
    files: int = 1,
    duplicates: bool = True,
    shuffled: bool = True,
) -> Log:
    """A log of up to `groups` x `rollouts` x `steps` rows.

    Observations come from one of `kinds`, each rollout from one of `files` inputs (column
    `source_file`), in which ids repeat. Which optional columns exist differs from log to log.
    """
    symbols = kinds[choose(len(kinds))]
    names, moves = 2 + choose(len(symbols) - 1), 1 + choose(3)
    has = {
        name: not choose(skip)
        for name, skip in (
            ("done", 3),
            ("truncated", 2),
            ("next_observation", 2),
            ("reward", 2),
            ("score", 2),
            ("is_action_valid", 2),
        )
    }
    text_ids, gap, numeric_flags = choose(2), 1 + choose(2), choose(4) == 1
    no_anchor, no_outcome = choose(3) == 1, choose(3) == 1
    rows: Rows = []
    for group in range(1 + choose(groups)):
        for number in range(1 + choose(rollouts)):
            source = choose(files)
            length = 1 + choose(steps)
            outcome: Any = (False, True, None)[choose(6) % (3 if no_outcome else 2)]
            if numeric_flags:
                outcome = NAN if outcome is None else float(outcome)
            for t in range(length):
                row: dict[str, Any] = {
                    "group_id": f"g{group}" if text_ids else group,
                    "rollout_id": str(number) if text_ids else number,
                    "step": t * gap,
                    "observation": _observation(choose, symbols[:names], no_anchor),
                    "action": (*"xyz", None)[choose(moves)] if moves < 3 else _action(choose),
                    "success": outcome,
                }
                if files > 1:
                    row["source_file"] = f"file {source}"
                _add_optional(choose, row, has, symbols, last=t == length - 1)
                rows.append(row)
    if duplicates and not choose(3):
        rows += [dict(rows[choose(len(rows))]) for _ in range(1 + choose(3))]
    if shuffled and choose(2):
        rows = [rows[i] for i in _permutation(choose, len(rows))]
    if files > 1:
        rows.sort(key=lambda row: row["source_file"])  # as the files are read one after the other
    present = {name for name, there in has.items() if there}
    return Log(rows, frozenset({"success"} | present))


def _observation(choose: Choose, symbols: Sequence[Any], sometimes_null: bool) -> Any:
    return None if sometimes_null and choose(8) == 7 else symbols[choose(len(symbols))]


def _action(choose: Choose) -> Any:
    """Three plain actions, and rarely a null one or an empty string."""
    return ("x", "y", "z", "x", "y", "z", None, "")[choose(8)]


def _add_optional(
    choose: Choose, row: dict[str, Any], has: dict[str, bool], symbols: Sequence[Any], *, last: bool
) -> None:
    """Only the last row's flags and next observation count; earlier ones hold anything."""
    if has["done"]:
        row["done"] = (last, not last, None)[choose(6) % 3 if last else 0]
    if has["truncated"]:
        row["truncated"] = (False, True, None)[choose(3)]
    if has["next_observation"]:
        row["next_observation"] = symbols[choose(len(symbols))] if choose(4) else None
    if has["reward"]:
        # Multiples of 1/4 add up without rounding, so that equal totals are equal numbers.
        row["reward"] = (0.0, 1.0, -0.25, None, 2.5, NAN)[choose(6)]
    if has["score"]:
        row["score"] = (1.0, 0.0, 0.5, 0.25, None)[choose(5)]
    if has["is_action_valid"]:
        row["is_action_valid"] = (True, False, None, True)[choose(4)]


def _permutation(choose: Choose, size: int) -> list[int]:
    """Fisher-Yates."""
    order = list(range(size))
    for i in range(size - 1, 0, -1):
        j = choose(i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def build_options(choose: Choose, columns: frozenset[str], *, files: int = 1) -> dict[str, Any]:
    """Options that a log with these columns allows, in the package's names."""

    def pick(*values: Any) -> Any:
        return values[choose(len(values))]

    ends = bool(columns & {"done", "truncated"})
    rewards = ["outcome", *(["sum", "last"] if "reward" in columns else [])]
    graded = ["score"] if "score" in columns else []
    options: dict[str, Any] = {
        "depth": pick(math.inf, 0, 1, 2, 3),
        "discount": pick(0.98, 0.5, 1.0),
        "truncated": pick("fail", "censor", "exclude", "bootstrap") if ends else "fail",
        "unscored": pick("exclude", "exclude", "fail", "error"),
        "expected_group_size": pick(0, 0, 3),
        "boundary": pick("outcome", *graded),
        "estimator": pick("grpo", "dr-grpo", "rloo"),
        "reward": pick(*rewards, *graded),
        "success_reward": pick(1.0, 10.0),
        "episode_stats": pick("rollout", "rows"),
        "ddof": pick(1, 0),
        "eps": pick(1e-6, 1e-4),
        "singleton": pick("zero", "raw", "drop"),
        "w_g": pick(1.0, 0.5),
        "w_s": pick(5.0, 0.0, 1.0),
        "floor": pick(0.1, 0.01, 1.0),
        "sigma": pick("depth", "closure"),
        "gate": pick("actions", "successors", "none"),
    }
    if "is_action_valid" in columns:
        options["invalid_penalty"] = pick("none", "trajectory", "step", "both")
        options["penalty"] = pick(0.125, 0.5)
        options["penalty_unit"] = pick("row", "sum")
    if "reward" in columns:
        options["intermediate_rewards"] = bool(choose(3) == 1)
    if files > 1:
        options |= pick({}, {"spanning_groups": True}, {"spanning_rollouts": True})
        # Files repeat ids, so rollouts that span them may hold one step twice.
        options["on_duplicate"] = pick("error", "first", "last")
    return options


@st.composite
def logs_and_options(draw: st.DrawFn) -> tuple[Log, dict[str, Any]]:
    """A small log and options for it."""

    def choose(n: int) -> int:
        return draw(st.integers(0, n - 1)) if n > 1 else 0

    log = build_log(choose, groups=2, rollouts=4, steps=5)
    return log, build_options(choose, log.columns)
