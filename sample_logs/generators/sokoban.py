r"""Sokoban rollouts with exact values: rooms of gym-sokoban, played in its own SokobanEnv.

A task is one 6x6 room with one or two boxes and a limit of 15 steps. All states of the room (player
and boxes) are enumerated, a stochastic policy is calibrated to a success probability drawn between
0.08 and 0.92, and its values are computed exactly (module `mdp`). Every step of every rollout is
executed in SokobanEnv and must give the state, the reward and the end flag that the enumeration
predicts; a difference raises RuntimeError. `--no-engine-check` skips that.

The policy is a softmax over the four directions of strength x progress + preference. Progress is
the change of the distance to the goal, -0.5 where the player does not move; the preference is a
fixed random number per state and action. The agent sees the board as text: `#` wall, `_` floor,
`O` target, `P` player, `S` player on a target, `X` box, `√` box on a target.

Install (Python 3.11):

    pip install setuptools==80.9.0 gym==0.26.2 gym-sokoban==0.0.6 imageio==2.38.1 \
        numpy==2.4.6 scipy==1.17.1 pyarrow==26.0.1

Write the two sample logs, from the root of the repository:

    python -m sample_logs.generators.sokoban --groups 16 --group-size 8 --seed 1 --boxes 1 2 \
        --out sample_logs/sokoban.parquet --jsonl sample_logs/sokoban.jsonl --jsonl-groups 2

As a library: `make_tasks(count, seed, boxes)` gives tasks, and
`sample_group(task, group_id, group_size, rng)` the rows of one group as a table of
`truth_log.TRUTH_SCHEMA`. Equal arguments give equal rows, whatever the number of processes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count as count_up
from pathlib import Path

import numpy as np
import pyarrow as pa

from .mdp import (
    BoolArray,
    EnumeratedMdp,
    FloatArray,
    IntArray,
    calibrated_strength,
    sample_rollout,
    softmax_policy,
)
from .truth_log import (
    TRUTH_SCHEMA,
    Row,
    Truth,
    concat_groups,
    first_groups,
    write_jsonl,
    write_parquet,
)

with contextlib.redirect_stderr(io.StringIO()):  # gym prints a retirement notice when imported
    from gym_sokoban.envs.room_utils import generate_room
    from gym_sokoban.envs.sokoban_env import SokobanEnv

Cell = tuple[int, int]
State = tuple[Cell, tuple[Cell, ...]]
"""Player and the sorted boxes."""

STEP_LIMIT = 15
ROOM_SIZE = 6
SHORTEST_SOLUTION, LONGEST_SOLUTION = 3, 10
SUCCESS_RANGE = (0.08, 0.92)
STRENGTH_RANGE = (-1.0, 6.0)
PREFERENCE_SCALE = 0.8
WALL_BUMP_PROGRESS = -0.5

MOVES: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
ENGINE_ACTIONS = {"up": 1, "down": 2, "left": 3, "right": 4}

# Cell codes of gym-sokoban.
WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER = range(6)


@dataclass(frozen=True)
class Room:
    """One Sokoban room in its start state."""

    layout: IntArray
    walls: frozenset[Cell]
    targets: frozenset[Cell]
    start: State


@dataclass(frozen=True)
class SokobanTask:
    """A room, its states in the order of the enumeration, and the exact values of the policy."""

    task_id: str
    room: Room
    states: list[State]
    truth: Truth


def make_tasks(
    count: int, seed: int, boxes: Sequence[int] = (1, 2), jobs: int = 1
) -> list[SokobanTask]:
    """Makes `count` tasks; task i has `boxes[i % len(boxes)]` boxes.

    Task i depends on `seed`, i and its number of boxes only, so a longer list begins with the
    shorter one.
    """
    makers = [(seed, index, boxes[index % len(boxes)]) for index in range(count)]
    if jobs == 1:
        return [make_task(*maker) for maker in makers]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(make_task, *zip(*makers, strict=True), chunksize=4))


def make_task(seed: int, index: int, box_count: int) -> SokobanTask:
    """A room of `draw_room` with the behaviour policy that acts in it, and its exact values."""
    task_id, room, states, mdp = draw_room(seed, index, box_count)
    policy = behaviour_policy(mdp, np.random.default_rng([seed, index, box_count]))
    return SokobanTask(task_id, room, states, Truth.solve(mdp, policy, STEP_LIMIT))


def draw_room(
    seed: int, index: int, box_count: int
) -> tuple[str, Room, list[State], EnumeratedMdp]:
    """Draws rooms until one can be solved in SHORTEST_SOLUTION to LONGEST_SOLUTION actions.

    Returns:
      The room's name, the room, its states and the process over them.
    """
    attempts = count_up()
    while True:
        attempt = next(attempts)
        room_seed = int(np.random.SeedSequence([seed, index, attempt]).generate_state(1)[0])
        room = make_room(room_seed, box_count)
        if room is None:
            continue
        states, mdp = enumerate_room(room)
        if SHORTEST_SOLUTION <= mdp.distance_to_goal()[0] <= LONGEST_SOLUTION:
            name = f"sokoban-{ROOM_SIZE}x{ROOM_SIZE}-boxes{box_count}-room{room_seed}"
            return name, room, states, mdp


def make_room(seed: int, box_count: int) -> Room | None:
    """One room of gym-sokoban's generator, which draws from the two global generators seeded here.

    None where the generator gives up.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the generator draws from it
    try:
        layout, contents, _ = generate_room(
            dim=(ROOM_SIZE, ROOM_SIZE), num_steps=int(1.7 * 2 * ROOM_SIZE), num_boxes=box_count
        )
    except (RuntimeError, RuntimeWarning):
        return None
    return Room(
        layout=layout.astype(np.int64),
        walls=frozenset(cells_of(layout == WALL)),
        targets=frozenset(cells_of(layout == TARGET)),
        start=state_of(contents),
    )


def cells_of(mask: BoolArray) -> list[Cell]:
    """Coordinates of the true cells, in reading order."""
    return [(int(row), int(column)) for row, column in np.argwhere(mask)]


def state_of(contents: IntArray) -> State:
    """Player and boxes of a board in gym-sokoban's cell codes."""
    (player,) = cells_of(contents == PLAYER)
    return player, tuple(cells_of((contents == BOX) | (contents == BOX_ON_TARGET)))


def enumerate_room(room: Room) -> tuple[list[State], EnumeratedMdp]:
    """All states reachable from the start of a room, and the process over them."""
    number = {room.start: 0}
    states = [room.start]
    is_goal: list[bool] = []
    source: list[int] = []
    successor: list[int] = []
    action: list[str] = []
    for state in states:  # grows while it is read
        is_goal.append(room.targets.issuperset(state[1]))
        if is_goal[-1]:
            continue
        for name in MOVES:
            reached = moved(room, state, name)
            if reached not in number:
                number[reached] = len(states)
                states.append(reached)
            source.append(number[state])
            successor.append(number[reached])
            action.append(name)
    return states, EnumeratedMdp(
        states=[state_text(state) for state in states],
        is_goal=np.array(is_goal),
        pair_source=np.array(source, dtype=np.int64),
        pair_successor=np.array(successor, dtype=np.int64),
        pair_action=action,
    )


def moved(room: Room, state: State, direction: str) -> State:
    """The state after one move or push; the same state where neither is possible."""
    (row, column), boxes = state
    down, right = MOVES[direction]
    ahead = (row + down, column + right)
    if ahead in room.walls:
        return state
    if ahead not in boxes:
        return ahead, boxes
    beyond = (ahead[0] + down, ahead[1] + right)
    if beyond in room.walls or beyond in boxes:
        return state
    return ahead, tuple(sorted(beyond if box == ahead else box for box in boxes))


def behaviour_policy(mdp: EnumeratedMdp, rng: np.random.Generator) -> FloatArray:
    """The calibrated softmax policy described above; probabilities of shape (n_pairs,)."""
    return behaviour_policies(mdp, rng, skills=(0.0,))[0]


def behaviour_policies(
    mdp: EnumeratedMdp, rng: np.random.Generator, skills: Sequence[float]
) -> list[FloatArray]:
    """Policies that differ in strength only: the calibrated one plus each of `skills`."""
    preference = PREFERENCE_SCALE * rng.normal(size=len(mdp.pair_source))
    bumps = mdp.pair_source == mdp.pair_successor
    progress = np.where(bumps, WALL_BUMP_PROGRESS, mdp.progress())

    def logits_at(strength: float) -> FloatArray:
        return strength * progress + preference

    target = float(rng.uniform(*SUCCESS_RANGE))
    strength = calibrated_strength(mdp, logits_at, target, STEP_LIMIT, STRENGTH_RANGE)
    return [softmax_policy(mdp, logits_at(strength + skill)) for skill in skills]


def state_text(state: State) -> str:
    """The true state as text, for example `player 2,1 boxes 2,2 3,4`."""
    player, boxes = state
    return f"player {player[0]},{player[1]} boxes " + " ".join(
        f"{row},{column}" for row, column in boxes
    )


def board_text(room: Room, state: State) -> str:
    """What the agent sees of a state."""
    player, boxes = state

    def symbol(cell: Cell) -> str:
        on_target = cell in room.targets
        if cell in room.walls:
            return "#"
        if cell == player:
            return "S" if on_target else "P"
        if cell in boxes:
            return "√" if on_target else "X"
        return "O" if on_target else "_"

    return "\n".join(
        " ".join(symbol((row, column)) for column in range(ROOM_SIZE)) for row in range(ROOM_SIZE)
    )


def step_reward(room: Room, before: State, after: State) -> float:
    """SokobanEnv's reward: -0.1 a step, +-1 as a box enters or leaves a target, +10 at the end."""
    placed_before = len(room.targets.intersection(before[1]))
    placed_after = len(room.targets.intersection(after[1]))
    reward = -0.1 + float(np.sign(placed_after - placed_before))
    return reward + 10.0 if placed_after == len(room.targets) else reward


class EngineCheck:
    """SokobanEnv put into a room; fails where it does not do what the enumeration says."""

    def __init__(self, room: Room) -> None:
        player, boxes = room.start
        contents = room.layout.copy()
        contents[player] = PLAYER
        for box in boxes:
            contents[box] = BOX_ON_TARGET if box in room.targets else BOX
        self._engine = SokobanEnv(
            dim_room=(ROOM_SIZE, ROOM_SIZE),
            max_steps=STEP_LIMIT,
            num_boxes=len(boxes),
            reset=False,
        )
        self._engine.room_fixed = room.layout.copy()
        self._engine.room_state = contents
        self._engine.player_position = np.array(player)
        self._engine.boxes_on_target = len(room.targets.intersection(boxes))
        self._engine.num_env_steps = 0
        self._engine.render = lambda mode: None  # an RGB frame per step would take most of the time

    def step(self, action: str, expected: State, reward: float, done: bool) -> None:
        """Executes one action and compares the outcome."""
        _, engine_reward, engine_done, _ = self._engine.step(ENGINE_ACTIONS[action])
        got = (state_of(self._engine.room_state), float(engine_reward), bool(engine_done))
        if got != (expected, reward, done):
            raise RuntimeError(
                f"after {action}: expected {(expected, reward, done)}, SokobanEnv has {got}"
            )


def sample_group(
    task: SokobanTask,
    group_id: str,
    group_size: int,
    rng: np.random.Generator,
    check_engine: bool = True,
) -> pa.Table:
    """Rows of one group of rollouts of a task, sorted by rollout and step, as TRUTH_SCHEMA."""
    rows = [
        {"group_id": group_id, "rollout_id": rollout_id, **row}
        for rollout_id in range(group_size)
        for row in sample_rows(task, rng, check_engine)
    ]
    return pa.Table.from_pylist(rows, schema=TRUTH_SCHEMA)


def sample_rows(task: SokobanTask, rng: np.random.Generator, check_engine: bool) -> list[Row]:
    """The steps of one rollout, without its ids."""
    truth, room, mdp = task.truth, task.room, task.truth.mdp
    engine = EngineCheck(room) if check_engine else None
    rows: list[Row] = []
    for step, pair in enumerate(sample_rollout(mdp, truth.policy, STEP_LIMIT, rng)):
        before = task.states[mdp.pair_source[pair]]
        after = task.states[mdp.pair_successor[pair]]
        reward = step_reward(room, before, after)
        row = truth.step_columns(pair, step)
        if engine is not None:
            engine.step(mdp.pair_action[pair], after, reward, done=row["done"] is True)
        row["observation"] = board_text(room, before)
        row["reward"] = reward
        row["next_observation"] = board_text(room, after)
        row["task_id"] = task.task_id
        rows.append(row)
    return rows


def make_group(
    index: int, seed: int, boxes: Sequence[int], group_size: int, check_engine: bool
) -> pa.Table:
    """Group number `index` of a log: its task and its rollouts."""
    box_count = boxes[index % len(boxes)]
    rng = np.random.default_rng([seed, index, box_count, group_size])
    task = make_task(seed, index, box_count)
    return sample_group(task, f"sokoban-{index:04d}", group_size, rng, check_engine)


def make_log(
    groups: int,
    group_size: int,
    seed: int,
    boxes: Sequence[int] = (1, 2),
    check_engine: bool = True,
    jobs: int = 1,
) -> pa.Table:
    """A log of `groups` groups, sorted by group, rollout and step; independent of `jobs`."""
    make = partial(
        make_group, seed=seed, boxes=boxes, group_size=group_size, check_engine=check_engine
    )
    return concat_groups(make, groups, jobs)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--group-size", type=int, default=8, help="rollouts a group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--boxes", type=int, nargs="+", default=[1, 2], help="taken in turn")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--no-engine-check", action="store_true", help="trust the enumeration")
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    parser.add_argument("--jsonl", type=Path, help="also write the first groups as JSON lines")
    parser.add_argument("--jsonl-groups", type=int, default=2, help="number of those groups")
    arguments = parser.parse_args()

    log = make_log(
        groups=arguments.groups,
        group_size=arguments.group_size,
        seed=arguments.seed,
        boxes=arguments.boxes,
        check_engine=not arguments.no_engine_check,
        jobs=arguments.jobs,
    )
    write_parquet(log, arguments.out)
    if arguments.jsonl is not None:
        write_jsonl(first_groups(log, arguments.jsonl_groups).to_pylist(), arguments.jsonl)


if __name__ == "__main__":
    main()
