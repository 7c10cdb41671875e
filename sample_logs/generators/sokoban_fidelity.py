"""Sokoban logs for studies of credit fidelity: aliased views and rollouts of hidden skill.

Rooms, states, policy and exact values are those of module `sokoban`. Two things are added:

* `view` and `next_view`, the board before and after the action with its right half hidden behind
  `?`: boxes there, and the player, do not show. Several true states of a room share a view, an
  aliased anchor, while the policy acted on the whole board.
* skill: with `--skill X` each rollout is played by one of two policies, chosen by a coin that the
  log does not show: the strength of the calibrated one less or plus X. Within a group behaviour is
  then not Markov in the anchor. `true_*` are the values of the rollout's own policy; a column
  `skill` holds -X or X.

Steps are not replayed in SokobanEnv here unless `--engine-check` is given; module `sokoban` is the
one that is checked.

    python -m sample_logs.generators.sokoban_fidelity --groups 300 --group-size 16 --seed 3 \
        --skill 0.75 --out skill.parquet

Install: as module `sokoban`. Equal arguments give equal rows, whatever the number of processes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from .sokoban import (
    ROOM_SIZE,
    STEP_LIMIT,
    SokobanTask,
    behaviour_policies,
    draw_room,
    sample_rows,
)
from .truth_log import TRUTH_SCHEMA, Row, Truth, concat_groups, write_parquet

SCHEMA = pa.schema(
    [
        *TRUTH_SCHEMA,
        pa.field("view", pa.string(), nullable=False),
        pa.field("next_view", pa.string(), nullable=False),
        pa.field("skill", pa.float64(), nullable=False),
    ]
)
SEEN, HIDDEN = ROOM_SIZE // 2, "?"


def make_log(
    groups: int,
    group_size: int,
    seed: int,
    skill: float = 0.0,
    boxes: Sequence[int] = (1, 2),
    check_engine: bool = False,
    jobs: int = 1,
) -> pa.Table:
    """A log of `groups` groups as SCHEMA, sorted by group, rollout and step."""
    make = partial(
        make_group,
        seed=seed,
        boxes=boxes,
        group_size=group_size,
        skill=skill,
        check_engine=check_engine,
    )
    return concat_groups(make, groups, jobs)


def make_group(
    index: int, seed: int, boxes: Sequence[int], group_size: int, skill: float, check_engine: bool
) -> pa.Table:
    """Group number `index` of a log: its room and its rollouts."""
    box_count = boxes[index % len(boxes)]
    skills = (-skill, skill) if skill else (0.0,)
    tasks = make_tasks(seed, index, box_count, skills)
    rng = np.random.default_rng([seed, index, box_count, group_size])
    rows: list[Row] = []
    for rollout_id in range(group_size):
        which = int(rng.integers(len(tasks)))
        for row in sample_rows(tasks[which], rng, check_engine):
            row["group_id"] = f"sokoban-{index:04d}"
            row["rollout_id"] = rollout_id
            row["view"] = view_text(str(row["observation"]))
            row["next_view"] = view_text(str(row["next_observation"]))
            row["skill"] = skills[which]
            rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def make_tasks(seed: int, index: int, box_count: int, skills: Sequence[float]) -> list[SokobanTask]:
    """One room under policies of several skills, each with its own exact values."""
    name, room, states, mdp = draw_room(seed, index, box_count)
    rng = np.random.default_rng([seed, index, box_count])
    return [
        SokobanTask(name, room, states, Truth.solve(mdp, policy, STEP_LIMIT))
        for policy in behaviour_policies(mdp, rng, skills)
    ]


def view_text(board: str) -> str:
    """The board with its right half hidden."""
    rows = [line.split(" ") for line in board.split("\n")]
    return "\n".join(" ".join(row[:SEEN] + [HIDDEN] * len(row[SEEN:])) for row in rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=300)
    parser.add_argument("--group-size", type=int, default=16, help="rollouts a group")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--skill", type=float, default=0.0, help="0: all rollouts alike")
    parser.add_argument("--boxes", type=int, nargs="+", default=[1, 2], help="taken in turn")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--engine-check", action="store_true", help="replay in SokobanEnv")
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    arguments = parser.parse_args()
    log = make_log(
        groups=arguments.groups,
        group_size=arguments.group_size,
        seed=arguments.seed,
        skill=arguments.skill,
        boxes=arguments.boxes,
        check_engine=arguments.engine_check,
        jobs=arguments.jobs,
    )
    write_parquet(log, arguments.out)


if __name__ == "__main__":
    main()
