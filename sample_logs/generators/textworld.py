r"""TextWorld rollouts with the hidden state: generated games, played in the real interpreter.

A group is one game, a treasure hunt through locked rooms or a cooking game, in turn. The agent
takes the first command of the engine's own winning policy with probability 0.45, otherwise a random
admissible command, and now and then one that the game does not know. The observation is the
feedback as the game prints it: banner, room, exits, prompt, status line with score and move
counter. `true_state` is a digest of all facts of the engine's logic and of the score; it stands for
the state before the action. A rollout ends with the game or after `--steps` actions. Reward is 1 on
success.

Install (Python 3.11; the games' compiler ships in the wheel):

    pip install textworld==1.7.0 pyarrow==26.0.1

Write the excerpt of the tests, from the root of the repository:

    python -m sample_logs.generators.textworld --groups 4 --group-size 4 --steps 40 --seed 5 \
        --out tests/data/textworld.parquet

Equal arguments give equal rows.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import textworld
from textworld.challenges import CHALLENGES

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
HUNT = {"level": 22}
COOKING = {
    "recipe": 2,
    "take": 1,
    "go": 6,
    "open": True,
    "cook": True,
    "cut": True,
    "drop": True,
    "recipe_seed": 0,
    "split": None,
}
INFOS = textworld.EnvInfos(
    facts=True, admissible_commands=True, policy_commands=True, won=True, lost=True, score=True
)
UNKNOWN = "use the key"


def make_game(index: int, seed: int, folder: Path) -> Path:
    """Compiles game number `index` of a log into `folder`."""
    name, settings = (("tw-cooking", COOKING), ("tw-treasure_hunter", HUNT))[index % 2]
    options = textworld.GameOptions()
    options.seeds = seed + index
    options.path = str(folder / f"game-{index}.z8")
    game = CHALLENGES[name][1](dict(settings), options)
    return Path(textworld.generator.compile_game(game, options))


def state_digest(state: textworld.GameState) -> str:
    """16 hex digits of the facts of the engine and the score, which remembers reached subgoals.

    Which slot of the bag holds nothing is bookkeeping of the engine and left out.
    """
    facts = sorted(
        str(fact) for fact in state["facts"] if all(v.type != "slot" for v in fact.arguments)
    )
    return hashlib.sha256("\n".join([*facts, str(state["score"])]).encode()).hexdigest()[:16]


def choose(state: textworld.GameState, rng: random.Random) -> str:
    """The next command."""
    draw = rng.random()
    if draw < 0.45 and state["policy_commands"]:
        return str(state["policy_commands"][0])
    return UNKNOWN if draw > 0.95 else str(rng.choice(sorted(state["admissible_commands"])))


def play(game: Path, steps: int, rng: random.Random) -> list[Row]:
    """The steps of one rollout, without its ids."""
    engine = textworld.start(str(game), INFOS)
    state = engine.reset()
    rows: list[Row] = []
    for step in range(steps):
        command = choose(state, rng)
        row: Row = {"step": step, "observation": state.feedback, "action": command}
        row["true_state"] = state_digest(state)
        state, _, over = engine.step(command)
        row["success"] = bool(state["won"])
        row["reward"] = float(row["success"])
        row["truncated"] = step == steps - 1 and not over
        row["done"] = over or row["truncated"]
        rows.append(row)
        if over:
            break
    engine.close()
    return rows


def make_log(groups: int, group_size: int, steps: int, seed: int) -> pa.Table:
    """A log of `groups` games, sorted by group, rollout and step."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for index in range(groups):
            game = make_game(index, seed, Path(folder))
            for rollout in range(group_size):
                ids = {"group_id": f"textworld-{index:04d}", "rollout_id": rollout}
                rng = random.Random(f"{seed} {index} {rollout}")
                rows += [ids | row for row in play(game, steps, rng)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=4, help="rollouts a group")
    parser.add_argument("--steps", type=int, default=40, help="most actions of a rollout")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    arguments = parser.parse_args()
    write_parquet(
        make_log(arguments.groups, arguments.group_size, arguments.steps, arguments.seed),
        arguments.out,
    )


if __name__ == "__main__":
    main()
