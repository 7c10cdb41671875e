r"""ScienceWorld rollouts with the state of its objects, played in the real simulator (needs Java).

A group is one variation of a task without heating or growing, in "easy" mode. The agent takes the
next action of the gold path with probability 0.6, otherwise one of the actions that people try (go,
open, close, pick up, put down, move, connect, look) or one that the simulator does not know. After
a detour through a door it goes back.

`true_state` is a digest of the object tree and of the required goals that are reached, before the
action: which object is inside which, what is open, switched on or connected. Temperatures, living
things and what a current does change without the agent and are left out. The tree does not tell of
doors, so the agent closes none. A rollout ends with the task or after `--steps` actions. The reward
is the change of the score, which runs from 0 to 100.

Install (Python 3.11):

    pip install scienceworld==1.2.3 pyarrow==26.0.1

Write the excerpt of the tests, from the root of the repository:

    python -m sample_logs.generators.scienceworld --group-size 4 --steps 30 --seed 1 \
        --out tests/data/scienceworld.parquet

Equal arguments give equal rows but for the order in which the simulator lists objects of one name.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from scienceworld import ScienceWorldEnv

from .truth_log import Row, write_parquet

SCHEMA = pa.schema(
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
        pa.field("true_state", pa.string(), nullable=False),
    ]
)
TASKS = (
    ("find-non-living-thing", 39),
    ("power-component", 14),
    ("chemistry-mix-paint-secondary-color", 17),
)
GOLD = 0.6
TRIED = ("go to", "open", "close", "pick up", "put down", "move", "connect", "activate", "look at")
LOOKS = ("look around", "inventory", "use the tool")


def names_of(node: dict[str, Any], owner: str = "") -> dict[str, str]:
    """Name of each object by its id, after the object that it is part of."""
    name = f"{owner} {node['name']}"
    inside = (names_of(child, node["name"]) for child in node["contents"].values())
    return {node["uuid"]: name} | {key: value for part in inside for key, value in part.items()}


def tree(node: dict[str, Any], names: dict[str, str]) -> list[Any]:
    """Names, switches, wires and contents below an object, in an order of their own."""
    container, device = node["propContainer"] or {}, node["propDevice"] or {}
    wires = node["propElectricalConnection"] or {}
    inside = [tree(child, names) for child in node["contents"].values() if not child["propLife"]]
    return [
        node["name"],
        container.get("isOpen"),
        device.get("isActivated") if device.get("isActivable") else None,
        sorted(names[key] for key in wires.get("connectedTo", [])),
        sorted(inside, key=json.dumps),
    ]


def state_digest(env: ScienceWorldEnv) -> str:
    """16 hex digits of the object tree and of the required subgoals that are reached."""
    root = env.getObjectTree()
    required = env.get_goal_progress().split("Unordered and Optional Subgoals:")[0]
    reached = re.findall(r"^\d+\ttrue\t.*$", required, re.MULTILINE)
    whole = json.dumps([tree(root, names_of(root)), reached])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def room_of(env: ScienceWorldEnv) -> str:
    """Name of the room that the agent is in."""
    found = re.match(r"This (?:room|outside location) is called the ([^.]+)\.", env.look())
    return found[1] if found else ""


def detour(env: ScienceWorldEnv, rng: random.Random) -> str:
    """An action off the gold path."""
    if rng.random() < 0.3:
        return rng.choice(LOOKS)
    kind = rng.choice(TRIED)
    valid = env.get_valid_action_object_combinations()
    pool = [a for a in valid if a.startswith(kind) and not re.match("close .*door", a)]
    return rng.choice(sorted(pool) or [LOOKS[0]])


def play(env: ScienceWorldEnv, gold: list[str], steps: int, rng: random.Random) -> list[Row]:
    """The steps of one rollout, without its ids."""
    env.reset()
    env.step("wait")  # fountains fill and drains close in the first ticks
    observation = env.look()
    ahead, back = list(gold), ""
    rows: list[Row] = []
    for step in range(steps):
        here, state = room_of(env), state_digest(env)
        if back:
            action, back = back, ""
        elif ahead and rng.random() < GOLD:
            action = ahead.pop(0)
        else:
            action = detour(env, rng)
            back = f"go to {here}" if action.startswith("go to") else ""
        following, reward, over, info = env.step(action)
        rows.append(
            {
                "step": step,
                "observation": observation,
                "action": action,
                "reward": float(reward),
                "done": over or step == steps - 1,
                "success": over and info["score"] >= 100,
                "truncated": step == steps - 1 and not over,
                "true_state": state,
            }
        )
        observation = following
        if over:
            break
    return rows


def make_log(group_size: int, steps: int, seed: int) -> pa.Table:
    """A log with one group per task, sorted by group, rollout and step."""
    env = ScienceWorldEnv("", envStepLimit=10 * steps)
    rows: list[Row] = []
    for name, variation in TASKS:
        env.load(name, variation, "easy", generateGoldPath=True)
        env.reset()
        gold = env.get_gold_action_sequence()
        for rollout in range(group_size):
            ids = {"group_id": f"{name}-{variation}", "rollout_id": rollout}
            rng = random.Random(f"{seed} {name} {rollout}")
            rows += [ids | row for row in play(env, gold, steps, rng)]
    env.close()
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--group-size", type=int, default=4, help="rollouts a group")
    parser.add_argument("--steps", type=int, default=30, help="most actions of a rollout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    arguments = parser.parse_args()
    log = make_log(arguments.group_size, arguments.steps, arguments.seed)
    write_parquet(log, arguments.out)


if __name__ == "__main__":
    main()
