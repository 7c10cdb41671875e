"""Straightforward implementations to compare with: what one would write first.

Rows are dictionaries with `group`, `rollout`, `anchor`, `action`, `reward` and `success`, in order
of (group, rollout, step).
"""

from collections import defaultdict
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_cli.process.empirical import EmpiricalProcess

Row = dict[str, Any]

_UNCHANGED = 1e-12


def dense_per_group(process: EmpiricalProcess, discount: float) -> NDArray[np.float64]:
    """The closure's state values by one dense solve per group, float64 (states,)."""
    values = np.zeros(process.states)
    bounds = np.searchsorted(process.state_group, np.arange(process.groups + 1))
    visit_bounds = np.searchsorted(process.visit_group, np.arange(process.groups + 1))
    for first, last, start, stop in zip(
        bounds[:-1], bounds[1:], visit_bounds[:-1], visit_bounds[1:], strict=True
    ):
        n = int(last - first)
        matrix, right = np.zeros((n, n)), np.zeros(n)
        state = process.state[start:stop] - first
        successor = process.successor[start:stop]
        inner = successor >= 0
        np.add.at(matrix, (state[inner], successor[inner] - first), 1.0)
        np.add.at(right, state, process.exit_value[start:stop])
        count = np.bincount(state, minlength=n)
        matrix = np.eye(n) - discount * matrix / count[:, None]
        values[first:last] = np.linalg.solve(matrix, discount * right / count)
    return values


def episodes(rows: list[Row]) -> dict[tuple[Any, Any], list[Row]]:
    """Rows of each rollout."""
    found: dict[tuple[Any, Any], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["group"], row["rollout"]].append(row)
    return found


def gigpo(rows: list[Row], gamma: float) -> list[float]:
    """GiGPO's step term, row by row (arXiv 2505.10978, eqs. 5-7)."""
    for steps in episodes(rows).values():
        following = 0.0
        for row in reversed(steps):
            following = row["return"] = row["reward"] + gamma * following
    members: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    for row in rows:
        members[row["group"], row["anchor"]].append(row["return"])
    statistics = {}
    for key, values in members.items():
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
        statistics[key] = mean, sqrt(variance) + 1e-6
    credit = []
    for row in rows:
        mean, spread = statistics[row["group"], row["anchor"]]
        credit.append((row["return"] - mean) / spread)
    return credit


def crbc(rows: list[Row], discount: float, floor: float) -> list[float]:
    """CRBC's step credit, row by row, the closure by value iteration (arXiv 2609.35082, 8-14)."""
    counts: dict[Any, dict[Any, dict[tuple[Any, Any], int]]] = {}
    for steps in episodes(rows).values():
        for row, after in zip(steps, [*steps[1:], None], strict=True):
            end = ("success",) if row["success"] else ("failure",)
            successor = end if after is None else after["anchor"]
            moves = counts.setdefault(row["group"], {}).setdefault(row["anchor"], {})
            moves[row["action"], successor] = moves.get((row["action"], successor), 0) + 1
    credit: dict[tuple[Any, Any, Any], float] = {}
    for group, states in counts.items():
        values = _fixed_point(states, discount)
        for state, moves in states.items():
            worth: dict[Any, float] = defaultdict(float)
            taken: dict[Any, int] = defaultdict(int)
            for (action, successor), number in moves.items():
                worth[action] += discount * number * values[successor]
                taken[action] += number
            visits = sum(taken.values())
            gain = {a: worth[a] / taken[a] - values[state] for a in taken}
            sigma = sqrt(sum(taken[a] * gain[a] ** 2 for a in taken) / visits)
            for action in taken:
                scaled = gain[action] / max(sigma, floor) if len(taken) > 1 else 0.0
                credit[group, state, action] = scaled
    return [credit[row["group"], row["anchor"], row["action"]] for row in rows]


def _fixed_point(
    states: dict[Any, dict[tuple[Any, Any], int]], discount: float
) -> dict[Any, float]:
    values: dict[Any, float] = {("success",): 1.0, ("failure",): 0.0}
    values |= dict.fromkeys(states, 0.0)
    change = 1.0
    while change > _UNCHANGED:
        change = 0.0
        for state, moves in states.items():
            visits = sum(moves.values())
            value = sum(n * values[x] for (_, x), n in moves.items()) * discount / visits
            change = max(change, abs(value - values[state]))
            values[state] = value
    return values
