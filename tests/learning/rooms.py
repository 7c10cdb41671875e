"""Sokoban rooms whose states are numbered together, so that many rollouts step at once.

A room is one of gym-sokoban's generator (`sample_logs.generators.sokoban`), 6x6 cells with one or
two boxes, 15 steps, solvable in 3 to 10. Every state that can be reached is enumerated; a step of
any number of rollouts is then one look-up in a table of successors. `check_engine` plays random
actions in gym-sokoban's own SokobanEnv and compares every step with that table.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count as count_up
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from sample_logs.generators import sokoban
from sample_logs.generators.sokoban import MOVES, ROOM_SIZE, EngineCheck, Room, State

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ACTIONS = tuple(MOVES)
PLANES = ("wall", "target", "box", "player")
INNER = ROOM_SIZE - 2
STEP_LIMIT = sokoban.STEP_LIMIT
FEATURES = len(PLANES) * INNER * INNER


@dataclass(frozen=True)
class Rooms:
    """Rooms of one pool; states of all rooms are numbered through.

    Attributes:
      names: name of each room.
      rooms: the rooms themselves.
      start: int64 (rooms,), first state of each room; its states follow it.
      states: player and boxes of each state.
      successor: int64 (states, 4), state after each of ACTIONS; goal states lead to themselves.
      is_goal: bool (states,), all boxes stand on targets.
      planes: float32 (states, FEATURES), 0 or 1: PLANES x the cells inside the outer wall.
      boards: text of each state, as the agent sees it.
    """

    names: Sequence[str]
    rooms: Sequence[Room]
    start: Ints
    states: Sequence[State]
    successor: Ints
    is_goal: Bools
    planes: NDArray[np.float32]
    boards: pa.StringArray

    @classmethod
    def draw(
        cls,
        count: int,
        seed: int,
        boxes: Sequence[int] = (1, 2),
        without: Collection[str] = (),
    ) -> Rooms:
        """`count` rooms, with each number of `boxes` in turn.

        Args:
          count: how many.
          seed: of the rooms.
          boxes: numbers of boxes.
          without: first boards of rooms that are passed over.
        """
        names: list[str] = []
        rooms: list[Room] = []
        start: list[int] = []
        states: list[State] = []
        successor: list[Ints] = []
        is_goal: list[Bools] = []
        planes: list[NDArray[np.float32]] = []
        boards: list[str] = []
        numbers = count_up()
        while len(rooms) < count:
            box_count = boxes[len(rooms) % len(boxes)]
            name, room, own, mdp = sokoban.draw_room(seed, next(numbers), box_count)
            if sokoban.board_text(room, room.start) in without:
                continue
            after = np.repeat(np.arange(len(own))[:, None], len(ACTIONS), axis=1)
            after[~mdp.is_goal] = mdp.pair_successor.reshape(-1, len(ACTIONS))
            names.append(name)
            rooms.append(room)
            start.append(len(states))
            successor.append(after + len(states))
            is_goal.append(mdp.is_goal)
            planes.append(_planes(room, own))
            boards += [sokoban.board_text(room, state) for state in own]
            states += own
        return cls(
            names,
            rooms,
            np.array(start),
            states,
            np.concatenate(successor),
            np.concatenate(is_goal),
            np.concatenate(planes),
            pa.array(boards),
        )

    def first_boards(self) -> set[str]:
        """Text of each room's first state."""
        return set(self.boards.take(pa.array(self.start)).to_pylist())

    def success(self, policy: Floats, limit: int = STEP_LIMIT) -> Floats:
        """Exact chance of solving each room within `limit` steps, float64 (rooms,).

        Args:
          policy: float64 (states, 4), chance of each action.
          limit: most steps.
        """
        goal = self.is_goal.astype(np.float64)
        reached = goal
        for _ in range(limit):
            reached = np.maximum(goal, np.einsum("sa,sa->s", policy, reached[self.successor]))
        return reached[self.start]

    def check_engine(self, rng: np.random.Generator, every: int = 1) -> int:
        """Plays one random rollout in SokobanEnv in each `every`-th room; returns the steps.

        Raises:
          RuntimeError: the engine does not do what the table of successors says.
        """
        steps = 0
        for index in range(0, len(self.rooms), every):
            engine, room, at = EngineCheck(self.rooms[index]), self.rooms[index], self.start[index]
            for step in range(STEP_LIMIT):
                action = int(rng.integers(len(ACTIONS)))
                after = self.successor[at, action]
                goal = bool(self.is_goal[after])
                reward = sokoban.step_reward(room, self.states[at], self.states[after])
                done = goal or step == STEP_LIMIT - 1
                engine.step(ACTIONS[action], self.states[after], reward, done)
                at, steps = after, steps + 1
                if goal:
                    break
        return steps


def _planes(room: Room, states: Sequence[State]) -> NDArray[np.float32]:
    """One 0/1 plane of inner cells for each of PLANES, float32 (states, FEATURES)."""
    shape = (len(PLANES), ROOM_SIZE, ROOM_SIZE)
    fixed = np.zeros(shape, np.float32)
    for row, column in room.walls:
        fixed[0, row, column] = 1
    for row, column in room.targets:
        fixed[1, row, column] = 1
    full = np.tile(fixed, (len(states), 1, 1, 1))
    for plane, (player, boxes) in zip(full, states, strict=True):
        for row, column in boxes:
            plane[2, row, column] = 1
        plane[(3, *player)] = 1
    return full[:, :, 1:-1, 1:-1].reshape(len(states), FEATURES)
