r"""ALFWorld rollouts with exact values: random households, played in ALFWorld's own engine.

A task is one household (module `alfworld_game`) with a limit of 50 steps; the six task types take
turns. All states that the policy can reach are enumerated, a stochastic policy is calibrated to a
success probability drawn between 0.08 and 0.92, and its values are computed exactly (module `mdp`).
Every step is executed in the engine, whose facts must give the state that the enumeration predicts;
a difference raises RuntimeError.

The policy is a softmax of strength x progress + habit + preference over the commands of a state:
going to any receptacle, opening, closing, taking, putting down, the task's appliance or lamp, and
the idle commands `look`, `inventory`, `examine` and one that the engine does not know. Progress is
the change of the distance to the goal, a habit belongs to each sort of command, and the preference
is a fixed random number per location and command.

Many observations here are silent about the hidden state: what is in hand, what lies elsewhere, what
was cleaned. `is_action_valid` is false for the unknown command, `inventory` is the object in hand
or `nothing`, `admissible` the sorted admissible commands as a JSON array, `task` the goal in words.

Install (Python 3.11; fast-downward-textworld is built from source):

    pip install alfworld==0.4.2 textworld==1.7.0 fast-downward-textworld==20.6.4 TatSu==5.8.3 \
        numpy==2.4.6 scipy==1.17.1 pyarrow==26.0.1

Write the sample log, from the root of the repository:

    python -m sample_logs.generators.alfworld_household --groups 12 --group-size 8 --seed 1 \
        --out sample_logs/alfworld.parquet
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count as count_up
from pathlib import Path

import numpy as np
import pyarrow as pa

from .alfworld_engine import (
    HELD,
    START,
    HouseholdEngine,
    HouseholdState,
    remember_parsed_games,
    start_state,
)
from .alfworld_game import TASK_TYPES, Household, draw_household
from .mdp import EnumeratedMdp, FloatArray, calibrated_policy, sample_rollout
from .truth_log import TRUTH_SCHEMA, Row, Truth, concat_groups, write_parquet

ALFWORLD_SCHEMA = pa.schema(
    [
        *TRUTH_SCHEMA,
        pa.field("is_action_valid", pa.bool_(), nullable=False),
        pa.field("inventory", pa.string(), nullable=False),
        pa.field("admissible", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
    ]
)

STEP_LIMIT = 50
MOST_STATES = 60_000
SUCCESS_RANGE = (0.08, 0.92)
STRENGTH_RANGE = (-0.5, 6.0)
PREFERENCE_SCALE = 0.6
UNKNOWN = "unknown"
HABITS = {
    "look": -1.5,
    "inventory": -1.5,
    UNKNOWN: -1.5,
    "examine": -1.0,
    "close": -1.0,
    "go": -0.4,
    "put": 0.0,
    "open": 0.3,
    "take": 0.5,
    "appliance": 0.5,
    "lamp": 0.5,
}


@dataclass(frozen=True)
class Command:
    """One thing the policy can do in a state: its sort (a key of HABITS), its text, the result."""

    sort: str
    text: str
    result: HouseholdState


class HouseholdModel:
    """What every command does, and what the agent's words for things are."""

    def __init__(self, household: Household, names: dict[str, str]) -> None:
        self.household = household
        self.places = [names[receptacle.name.lower()] for receptacle in household.receptacles]
        self.items = [names[item.name.lower()] for item in household.movable]
        self.lamp = names[household.lamp.name.lower()] if household.lamp else None
        self.unknown_command = f"put {self.items[0]} in/on {self.places[0]}"

    def is_goal(self, state: HouseholdState) -> bool:
        """Whether the task is done."""
        household, task_type = self.household, self.household.task_type
        if household.lamp is not None:
            return state.prepared and state.held == 0 and state.location == household.lamp.place
        wanted = state.places[: task_type.targets]
        if HELD in wanted or len(set(wanted)) > 1:
            return False
        at_goal = household.receptacles[wanted[0]].kind == household.goal_kind
        return at_goal and (task_type.device is None or state.prepared)

    def commands(self, state: HouseholdState) -> Iterator[Command]:
        """Everything the policy can do in a state."""
        for sort, text in (
            ("look", "look"),
            ("inventory", "inventory"),
            (UNKNOWN, self.unknown_command),
        ):
            yield Command(sort, text, state)
        for place, name in enumerate(self.places):
            if place != state.location:
                yield Command("go", f"go to {name}", state._replace(location=place))
        if state.location != START:
            yield from self.commands_at(state, state.location)

    def commands_at(self, state: HouseholdState, here: int) -> Iterator[Command]:
        """The commands about the receptacle at which the agent stands."""
        receptacle, name = self.household.receptacles[here], self.places[here]
        device = self.household.task_type.device
        yield Command("examine", f"examine {name}", state)
        if receptacle.opens and here not in state.opened:
            yield Command("open", f"open {name}", state._replace(opened=state.opened | {here}))
        else:
            yield from self.commands_inside(state, here)
        if receptacle.opens and here in state.opened:
            yield Command("close", f"close {name}", state._replace(opened=state.opened - {here}))
        if device is not None and state.held == 0 and receptacle.kind == device.receptacle:
            text = f"{device.verb} {self.items[0]} with {name}"
            yield Command("appliance", text, state._replace(prepared=True))
        if self.household.lamp is not None and self.household.lamp.place == here:
            yield Command("lamp", f"use {self.lamp}", state._replace(prepared=True))

    def commands_inside(self, state: HouseholdState, here: int) -> Iterator[Command]:
        """Taking from and putting into a receptacle that is not closed."""
        name = self.places[here]
        if state.held is None:
            for item, place in enumerate(state.places):
                if place == here:
                    result = self.with_item_at(state, item, HELD)._replace(held=item)
                    yield Command("take", f"take {self.items[item]} from {name}", result)
        elif self.household.receptacles[here].takes(self.household.movable[state.held].kind):
            result = self.with_item_at(state, state.held, here)._replace(held=None)
            yield Command("put", f"move {self.items[state.held]} to {name}", result)

    @staticmethod
    def with_item_at(state: HouseholdState, item: int, place: int) -> HouseholdState:
        """The state with one object somewhere else."""
        return state._replace(places=(*state.places[:item], place, *state.places[item + 1 :]))

    def state_text(self, state: HouseholdState) -> str:
        """The true state as text."""
        items = [
            f"{name}: {'held' if place == HELD else self.places[place]}"
            for name, place in zip(self.items, state.places, strict=True)
        ]
        where = "start" if state.location == START else self.places[state.location]
        opened = ", ".join(self.places[place] for place in sorted(state.opened))
        prepared = "yes" if state.prepared else "no"
        return f"at {where}; {'; '.join(items)}; prepared: {prepared}; open: {opened or 'none'}"


@dataclass(frozen=True)
class HouseholdTask:
    """A household, its engine, its states in the order of the enumeration, and the exact values."""

    task_id: str
    model: HouseholdModel
    engine: HouseholdEngine
    states: list[HouseholdState]
    truth: Truth


def make_tasks(count: int, seed: int) -> list[HouseholdTask]:
    """Makes `count` tasks; task i has type `TASK_TYPES[i % 6]` and depends on `seed` and i only."""
    return [make_task(seed, index) for index in range(count)]


def make_task(seed: int, index: int) -> HouseholdTask:
    """Draws households until one has a solution and few enough states to enumerate."""
    remember_parsed_games()
    task_type = TASK_TYPES[index % len(TASK_TYPES)]
    attempts = count_up()
    while True:
        rng = np.random.default_rng([seed, index, next(attempts)])
        household = draw_household(task_type, rng)
        if household is None:
            continue
        engine = HouseholdEngine(household)
        model = HouseholdModel(household, engine.names)
        enumeration = enumerate_household(model)
        if enumeration is None:
            continue
        states, mdp, sorts = enumeration
        if np.isfinite(mdp.distance_to_goal()[0]):
            policy = behaviour_policy(mdp, states, sorts, rng)
            truth = Truth.solve(mdp, policy, STEP_LIMIT)
            task_id = f"{task_type.name}-FloorPlan{household.floor_plan}-seed{seed}-{index}"
            return HouseholdTask(task_id, model, engine, states, truth)


def enumerate_household(
    model: HouseholdModel,
) -> tuple[list[HouseholdState], EnumeratedMdp, list[str]] | None:
    """All reachable states, the process over them and the sort of command of every pair.

    None where there are more than MOST_STATES states.
    """
    start = start_state(model.household)
    number = {start: 0}
    states = [start]
    is_goal: list[bool] = []
    source: list[int] = []
    successor: list[int] = []
    texts: list[str] = []
    sorts: list[str] = []
    for state in states:  # grows while it is read
        is_goal.append(model.is_goal(state))
        if is_goal[-1]:
            continue
        for command in model.commands(state):
            if command.result not in number:
                if len(states) == MOST_STATES:
                    return None
                number[command.result] = len(states)
                states.append(command.result)
            source.append(number[state])
            successor.append(number[command.result])
            texts.append(command.text)
            sorts.append(command.sort)
    mdp = EnumeratedMdp(
        states=[model.state_text(state) for state in states],
        is_goal=np.array(is_goal),
        pair_source=np.array(source, dtype=np.int64),
        pair_successor=np.array(successor, dtype=np.int64),
        pair_action=texts,
    )
    return states, mdp, sorts


def behaviour_policy(
    mdp: EnumeratedMdp, states: list[HouseholdState], sorts: list[str], rng: np.random.Generator
) -> FloatArray:
    """The calibrated softmax policy described above; probabilities of shape (n_pairs,)."""
    preference: dict[tuple[int, str], float] = {}
    for source, text in zip(mdp.pair_source, mdp.pair_action, strict=True):
        preference.setdefault((states[source].location, text), PREFERENCE_SCALE * rng.normal())
    leaning = np.array(
        [
            HABITS[sort] + preference[states[source].location, text]
            for source, text, sort in zip(mdp.pair_source, mdp.pair_action, sorts, strict=True)
        ]
    )
    progress = mdp.progress()
    return calibrated_policy(
        mdp,
        lambda strength: strength * progress + leaning,
        target=float(rng.uniform(*SUCCESS_RANGE)),
        step_limit=STEP_LIMIT,
        strength_range=STRENGTH_RANGE,
    )


def sample_group(
    task: HouseholdTask, group_id: str, group_size: int, rng: np.random.Generator
) -> pa.Table:
    """Rows of one group of rollouts of a task, sorted by rollout and step, as ALFWORLD_SCHEMA."""
    rows = [
        {"group_id": group_id, "rollout_id": rollout_id, **row}
        for rollout_id in range(group_size)
        for row in sample_rows(task, rng)
    ]
    return pa.Table.from_pylist(rows, schema=ALFWORLD_SCHEMA)


def sample_rows(task: HouseholdTask, rng: np.random.Generator) -> list[Row]:
    """The steps of one rollout, without its ids."""
    truth, mdp, engine, model = task.truth, task.truth.mdp, task.engine, task.model
    engine.reset()
    rows: list[Row] = []
    for step, pair in enumerate(sample_rollout(mdp, truth.policy, STEP_LIMIT, rng)):
        row = truth.step_columns(pair, step)
        command, held = mdp.pair_action[pair], task.states[mdp.pair_source[pair]].held
        row["observation"] = engine.observation
        row["admissible"] = json.dumps(engine.admissible_commands)
        row["is_action_valid"] = command in engine.admissible_commands
        row["inventory"] = "nothing" if held is None else model.items[held]
        if row["is_action_valid"] != (command != model.unknown_command):
            raise RuntimeError(f"{command}: admissible is {row['is_action_valid']}")
        engine.step(command)
        expected = (task.states[mdp.pair_successor[pair]], row["success"])
        if (engine.state(), engine.won) != expected:
            raise RuntimeError(f"after {command}: expected {expected}, got {engine.state()}")
        row["reward"] = 1.0 if engine.won else 0.0
        row["next_observation"] = engine.observation
        row["task_id"] = task.task_id
        row["task"] = model.household.task
        rows.append(row)
    return rows


def make_group(index: int, seed: int, group_size: int) -> pa.Table:
    """Group number `index` of a log: its task and its rollouts."""
    rng = np.random.default_rng([seed, index, group_size, STEP_LIMIT])
    return sample_group(make_task(seed, index), f"alfworld-{index:04d}", group_size, rng)


def make_log(groups: int, group_size: int, seed: int, jobs: int = 1) -> pa.Table:
    """A log of `groups` groups, sorted by group, rollout and step; independent of `jobs`."""
    return concat_groups(partial(make_group, seed=seed, group_size=group_size), groups, jobs)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--group-size", type=int, default=8, help="rollouts a group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    arguments = parser.parse_args()
    log = make_log(arguments.groups, arguments.group_size, arguments.seed, arguments.jobs)
    write_parquet(log, arguments.out)


if __name__ == "__main__":
    main()
