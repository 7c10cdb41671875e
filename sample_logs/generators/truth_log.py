"""The columns that every log with known truth shares, and the writers for them.

One row is one step. `observation` is what the environment showed before the action,
`next_observation` what it showed after it. `true_state` is the hidden state before the action. The
`true_*` values are those of module `mdp` under the policy that acted: `*_untimed` without the step
limit, the others with it. `p_action` is the probability with which the policy chose the action.

`done` is true on the last row of every rollout, `truncated` as well where the step limit ended it,
`success` on the last row of a success only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .mdp import DISCOUNT, EnumeratedMdp, FloatArray, timed_values, untimed_values

Row = dict[str, object]

TRUTH_SCHEMA = pa.schema(
    [
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("rollout_id", pa.int64(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("observation", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("reward", pa.float64(), nullable=False),
        pa.field("done", pa.bool_(), nullable=False),
        pa.field("success", pa.bool_(), nullable=False),
        pa.field("truncated", pa.bool_(), nullable=False),
        pa.field("next_observation", pa.string(), nullable=False),
        pa.field("true_state", pa.string(), nullable=False),
        pa.field("true_value", pa.float64(), nullable=False),
        pa.field("true_action_value", pa.float64(), nullable=False),
        pa.field("true_advantage", pa.float64(), nullable=False),
        pa.field("true_value_untimed", pa.float64(), nullable=False),
        pa.field("true_advantage_untimed", pa.float64(), nullable=False),
        pa.field("p_action", pa.float64(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Truth:
    """An enumerated process with the policy that acts in it and the exact values of that policy.

    Attributes:
      mdp: the process.
      policy: behaviour probabilities, shape (n_pairs,).
      timed: V before each step under the limit, shape (step_limit + 1, n_states).
      untimed: V without a limit, shape (n_states,).
    """

    mdp: EnumeratedMdp
    policy: FloatArray
    timed: FloatArray
    untimed: FloatArray

    @classmethod
    def solve(cls, mdp: EnumeratedMdp, policy: FloatArray, step_limit: int) -> Truth:
        """Computes both families of values."""
        return cls(mdp, policy, timed_values(mdp, policy, step_limit), untimed_values(mdp, policy))

    @property
    def step_limit(self) -> int:
        """Most steps of a rollout."""
        return len(self.timed) - 1

    def step_columns(self, pair: int, step: int) -> Row:
        """The columns of one step that follow from the process alone."""
        state, successor = int(self.mdp.pair_source[pair]), int(self.mdp.pair_successor[pair])
        success = bool(self.mdp.is_goal[successor])
        truncated = step == self.step_limit - 1 and not success
        value = float(self.timed[step, state])
        action_value = DISCOUNT * float(self.timed[step + 1, successor])
        value_untimed = float(self.untimed[state])
        return {
            "step": step,
            "action": self.mdp.pair_action[pair],
            "done": success or truncated,
            "success": success,
            "truncated": truncated,
            "true_state": self.mdp.states[state],
            "true_value": value,
            "true_action_value": action_value,
            "true_advantage": action_value - value,
            "true_value_untimed": value_untimed,
            "true_advantage_untimed": DISCOUNT * float(self.untimed[successor]) - value_untimed,
            "p_action": float(self.policy[pair]),
        }


def concat_groups(make_group: Callable[[int], pa.Table], groups: int, jobs: int) -> pa.Table:
    """Tables of groups 0 to `groups` - 1 in order, made by `jobs` processes."""
    if jobs == 1:
        return pa.concat_tables([make_group(index) for index in range(groups)])
    with ProcessPoolExecutor(jobs) as pool:
        return pa.concat_tables(list(pool.map(make_group, range(groups))))


def write_parquet(table: pa.Table, path: Path) -> None:
    """Writes one log as Parquet with zstd; equal tables give equal bytes."""
    pq.write_table(table, path, compression="zstd", compression_level=9)


def first_groups(table: pa.Table, count: int) -> pa.Table:
    """The rows of the first `count` groups of a sorted table."""
    wanted = table.column("group_id").unique().to_pylist()[:count]
    return table.filter(pc.is_in(table.column("group_id"), pa.array(wanted)))


def write_jsonl(rows: Iterable[Row], path: Path) -> None:
    """Writes one JSON object per line, in UTF-8 with LF line ends."""
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(_json_lines(rows))


def _json_lines(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
