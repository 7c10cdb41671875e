r"""MiniGrid rollouts with exact values: small levels, played in MiniGrid itself.

A task is one level and a limit of 50 steps. Its states (where the agent stands and looks, what it
carries, where doors stand and things lie) are enumerated by stepping the engine from each of them,
a stochastic policy is calibrated to a success probability drawn between 0.08 and 0.92, and its
values are computed exactly (module `mdp`). Every step of every rollout is executed in a fresh
engine and must give the state that the enumeration predicts; a difference raises RuntimeError.

The policy is a softmax over six actions of strength x progress + preference. Progress is the change
of the distance to the goal, -0.5 where nothing changes; the preference is a fixed random number per
state and action. The agent sees the 7x7 cells ahead as text, in the words of BabyAI-text: `You see
a wall 2 steps forward.`, `You see a locked yellow door 1 step forward and 2 steps left.`, `You
carry a yellow key.` Most levels have states that read alike. Levels must be free of lava: a state
that can neither be left nor won has no place in module `mdp`.

Install (Python 3.11):

    pip install minigrid==3.2.0 gymnasium==1.4.0 numpy==2.4.6 scipy==1.17.1 pyarrow==26.0.1

Write the excerpt that the tests use, from the root of the repository:

    python -m sample_logs.generators.minigrid --groups 2 --group-size 8 --seed 5 \
        --out tests/data/minigrid.parquet

As a library: `make_task(seed, index, level)` gives a task, and
`sample_group(task, group_id, group_size, rng)` the rows of one group as a table of
`truth_log.TRUTH_SCHEMA`. Equal arguments give equal rows, whatever the number of processes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import count as count_up
from pathlib import Path
from typing import Any

import gymnasium
import minigrid  # noqa: F401 - registers the levels
import numpy as np
import pyarrow as pa
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

from .mdp import EnumeratedMdp, FloatArray, calibrated_policy, sample_rollout
from .truth_log import TRUTH_SCHEMA, Row, Truth, concat_groups, write_parquet

LEVELS = ("MiniGrid-DoorKey-5x5-v0", "MiniGrid-SimpleCrossingS9N1-v0")
STEP_LIMIT = 50
MOST_STATES = 4000
SHORTEST_SOLUTION, LONGEST_SOLUTION = 5, 25
SUCCESS_RANGE = (0.08, 0.92)
STRENGTH_RANGE = (-1.0, 8.0)
PREFERENCE_SCALE = 0.6
NOTHING_CHANGES = -0.5

ACTIONS = {"turn left": 0, "turn right": 1, "go forward": 2, "pick up": 3, "drop": 4, "toggle": 5}
DOOR_STATES = ("open", "closed", "locked")

# Where the agent stands in the picture that it gets of its 7x7 cells.
VIEW_SIZE, AGENT_COLUMN, AGENT_ROW = 7, 3, 6


@dataclass(frozen=True)
class Snapshot:
    """What can change in a level."""

    position: tuple[int, int]
    direction: int
    carrying: Any
    grid: Any

    @classmethod
    def of(cls, engine: Any) -> Snapshot:
        """The present state of an engine."""
        x, y = engine.agent_pos
        return cls(
            (int(x), int(y)),
            int(engine.agent_dir),
            deepcopy(engine.carrying),
            deepcopy(engine.grid),
        )

    def put_into(self, engine: Any) -> None:
        """Makes it the present state of an engine of the same level."""
        engine.agent_pos, engine.agent_dir = self.position, self.direction
        engine.carrying, engine.grid = deepcopy(self.carrying), deepcopy(self.grid)
        engine.step_count = 0


@dataclass(frozen=True)
class MinigridTask:
    """A level, what its states look like in the order of the enumeration, and the exact values."""

    level: str
    level_seed: int
    observations: list[str]
    truth: Truth

    @property
    def task_id(self) -> str:
        """Level and seed."""
        return f"{self.level}-seed{self.level_seed}"


def new_engine(level: str, seed: int) -> Any:
    """A level in its start state, without a step limit of its own."""
    engine = gymnasium.make(level, max_steps=10**6).unwrapped
    engine.reset(seed=seed)
    return engine


def make_task(seed: int, index: int, level: str) -> MinigridTask:
    """Draws level seeds until one can be won in SHORTEST_SOLUTION to LONGEST_SOLUTION actions."""
    for attempt in count_up():
        level_seed = int(np.random.SeedSequence([seed, index, attempt]).generate_state(1)[0] >> 1)
        found = enumerate_level(level, level_seed)
        if found is None:
            continue
        observations, mdp = found
        if SHORTEST_SOLUTION <= mdp.distance_to_goal()[0] <= LONGEST_SOLUTION:
            policy = behaviour_policy(mdp, np.random.default_rng([seed, index]))
            truth = Truth.solve(mdp, policy, STEP_LIMIT)
            return MinigridTask(level, level_seed, observations, truth)
    raise AssertionError("unreachable")


def enumerate_level(level: str, seed: int) -> tuple[list[str], EnumeratedMdp] | None:
    """Texts of all states reachable from the start of a level, and the process over them.

    None for a level of more than MOST_STATES states.
    """
    engine = new_engine(level, seed)
    number = {state_text(engine): 0}
    snapshots, observations, is_goal = [Snapshot.of(engine)], [view_text(engine)], [False]
    source: list[int] = []
    successor: list[int] = []
    for state, snapshot in enumerate(snapshots):  # grows while it is read
        if is_goal[state]:
            continue
        for action in ACTIONS.values():
            snapshot.put_into(engine)
            _, reward, terminated, _, _ = engine.step(action)
            reached = state_text(engine)
            if terminated and reward <= 0:
                raise ValueError(f"{level} has a way to lose; choose one without lava")
            if reached not in number:
                number[reached] = len(snapshots)
                snapshots.append(Snapshot.of(engine))
                observations.append(view_text(engine))
                is_goal.append(bool(terminated))
                if len(snapshots) > MOST_STATES:
                    return None
            source.append(state)
            successor.append(number[reached])
    return observations, EnumeratedMdp(
        states=list(number),
        is_goal=np.array(is_goal),
        pair_source=np.array(source, dtype=np.int64),
        pair_successor=np.array(successor, dtype=np.int64),
        pair_action=[*ACTIONS] * (len(source) // len(ACTIONS)),
    )


def state_text(engine: Any) -> str:
    """The true state, for example `at 1,2 facing 0 carrying nothing; door 2,1 locked; key 1,1`."""
    x, y = (int(part) for part in engine.agent_pos)
    carried = f"{engine.carrying.color} {engine.carrying.type}" if engine.carrying else "nothing"
    parts = [f"at {x},{y} facing {int(engine.agent_dir)} carrying {carried}"]
    for column in range(engine.grid.width):
        for row in range(engine.grid.height):
            thing = engine.grid.get(column, row)
            if thing is None or thing.type not in ("door", "key", "ball", "box"):
                continue
            how = ""
            if thing.type == "door":
                how = " open" if thing.is_open else " locked" if thing.is_locked else " closed"
            parts.append(f"{thing.color} {thing.type} {column},{row}{how}")
    return "; ".join(parts)


def view_text(engine: Any) -> str:
    """What the agent sees: nearest walls ahead and to both sides, then things, nearest first."""
    observation = engine.gen_obs()
    walls: dict[str, int] = {}
    things: list[tuple[int, int, str]] = []
    for name, colour, state, forward, right in seen(observation["image"]):
        if name == "wall":
            side = "forward" if right == 0 else "" if forward else "left" if right < 0 else "right"
            distance = forward or abs(right)
            if side:
                walls[side] = min(distance, walls.get(side, distance))
            continue
        adjective = f"{DOOR_STATES[state]} {colour} " if name == "door" else f"{colour} "
        adjective = "" if name == "goal" else adjective
        things.append((forward, right, f"You see a {adjective}{name} {place(forward, right)}."))
    lines = [f"Goal of the agent: {observation['mission']}"]
    for side in ("forward", "left", "right"):
        if side in walls:
            lines.append(f"You see a wall {steps(walls[side])} {side}.")
    lines += [text for _, _, text in sorted(things)]
    if engine.carrying:
        lines.append(f"You carry a {engine.carrying.color} {engine.carrying.type}.")
    return "\n".join(lines)


def seen(image: Any) -> Iterator[tuple[str, str, int, int, int]]:
    """Name, colour, state, steps forward and steps to the right of what is in the picture."""
    for column in range(VIEW_SIZE):
        for row in range(VIEW_SIZE):
            kind, colour, state = (int(part) for part in image[column, row])
            name = IDX_TO_OBJECT[kind]
            here = (column, row) == (AGENT_COLUMN, AGENT_ROW)
            if name not in ("unseen", "empty", "agent") and not here:
                yield name, IDX_TO_COLOR[colour], state, AGENT_ROW - row, column - AGENT_COLUMN


def place(forward: int, right: int) -> str:
    """Where something is, for example `2 steps forward and 1 step left`."""
    parts = [f"{steps(forward)} forward"] if forward else []
    if right:
        parts.append(f"{steps(abs(right))} {'right' if right > 0 else 'left'}")
    return " and ".join(parts)


def steps(number: int) -> str:
    """`1 step` or `n steps`."""
    return f"{number} step{'s' * (number > 1)}"


def behaviour_policy(mdp: EnumeratedMdp, rng: np.random.Generator) -> FloatArray:
    """The calibrated softmax policy described above; probabilities of shape (n_pairs,)."""
    preference = PREFERENCE_SCALE * rng.normal(size=len(mdp.pair_source))
    stays = mdp.pair_source == mdp.pair_successor
    progress = np.where(stays, NOTHING_CHANGES, mdp.progress())
    return calibrated_policy(
        mdp,
        lambda strength: strength * progress + preference,
        target=float(rng.uniform(*SUCCESS_RANGE)),
        step_limit=STEP_LIMIT,
        strength_range=STRENGTH_RANGE,
    )


def sample_group(
    task: MinigridTask, group_id: str, group_size: int, rng: np.random.Generator
) -> pa.Table:
    """Rows of one group of rollouts of a task, sorted by rollout and step, as TRUTH_SCHEMA."""
    rows = [
        {"group_id": group_id, "rollout_id": rollout_id, **row}
        for rollout_id in range(group_size)
        for row in sample_rows(task, rng)
    ]
    return pa.Table.from_pylist(rows, schema=TRUTH_SCHEMA)


def sample_rows(task: MinigridTask, rng: np.random.Generator) -> list[Row]:
    """The steps of one rollout, without its ids; the reward is 1 at the goal, else 0."""
    truth, mdp = task.truth, task.truth.mdp
    engine = new_engine(task.level, task.level_seed)
    rows: list[Row] = []
    for step, pair in enumerate(sample_rollout(mdp, truth.policy, STEP_LIMIT, rng)):
        before, after = int(mdp.pair_source[pair]), int(mdp.pair_successor[pair])
        _, _, terminated, _, _ = engine.step(ACTIONS[mdp.pair_action[pair]])
        got = (state_text(engine), view_text(engine), bool(terminated))
        expected = (mdp.states[after], task.observations[after], bool(mdp.is_goal[after]))
        if got != expected:
            raise RuntimeError(f"expected {expected}, MiniGrid has {got}")
        row = truth.step_columns(pair, step)
        row["observation"] = task.observations[before]
        row["reward"] = float(terminated)
        row["next_observation"] = task.observations[after]
        row["task_id"] = task.task_id
        rows.append(row)
    return rows


def make_group(index: int, seed: int, levels: Sequence[str], group_size: int) -> pa.Table:
    """Group number `index` of a log: its task and its rollouts."""
    task = make_task(seed, index, levels[index % len(levels)])
    rng = np.random.default_rng([seed, index, group_size])
    return sample_group(task, f"minigrid-{index:04d}", group_size, rng)


def make_log(
    groups: int, group_size: int, seed: int, levels: Sequence[str] = LEVELS, jobs: int = 1
) -> pa.Table:
    """A log of `groups` groups, sorted by group, rollout and step; independent of `jobs`."""
    make = partial(make_group, seed=seed, levels=levels, group_size=group_size)
    return concat_groups(make, groups, jobs)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--group-size", type=int, default=8, help="rollouts a group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--levels", nargs="+", default=[*LEVELS], help="taken in turn")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    arguments = parser.parse_args()
    log = make_log(
        arguments.groups, arguments.group_size, arguments.seed, arguments.levels, arguments.jobs
    )
    write_parquet(log, arguments.out)


if __name__ == "__main__":
    main()
