"""Synthetic household logs of any size, for timing only.

    python tests/benchmarks/synthetic.py OUT.parquet --groups 1000 [--format jsonl]

Each group is a growing graph of situations that its rollouts walk: follow a known way on, go back
to an earlier situation, or find a new one. The defaults give 8 rollouts of up to 50 steps, some
300 rows a group, observation texts of 300-600 characters and about 43 % repeat visits, the shape
of real household logs (most anchors have one successor, two in three lie on a cycle).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

_THINGS = [
    "apple", "bowl", "bread", "butterknife", "candle", "cellphone", "cloth", "creditcard", "cup",
    "dishsponge", "egg", "fork", "glassbottle", "handtowel", "kettle", "keychain", "knife",
    "ladle", "laptop", "lettuce", "mug", "newspaper", "pan", "papertowelroll", "pen", "pencil",
    "peppershaker", "plate", "pot", "potato", "remotecontrol", "saltshaker", "soapbar", "spatula",
    "spoon", "spraybottle", "statue", "tomato", "vase", "watch", "winebottle",
]  # fmt: skip
_PLACES = [
    "cabinet", "countertop", "drawer", "fridge", "garbagecan", "microwave", "shelf", "sidetable",
    "sinkbasin", "stoveburner",
]  # fmt: skip
_BLOCK_GROUPS = 1000


def simulate(
    groups: int,
    rollouts: int,
    steps: int,
    rng: np.random.Generator,
    follow: float = 0.45,
    back: float = 0.16,
    ends: tuple[float, float] = (0.002, 0.025),
) -> dict[str, NDArray[np.int64]]:
    """Walks of all groups at once, one step of one rollout at a time.

    Args:
      groups, rollouts, steps: how many; steps at most.
      rng: source of chance.
      follow: chance of the known way on.
      back: chance of an earlier situation.
      ends: range of a rollout's chance to succeed in a step.
    Returns:
      int64 columns `group, rollout, step, state, last, success`, sorted by the first three.
    """
    most = rollouts * steps + 1
    way_on = np.full((groups, most), -1, np.int64)
    known = np.ones(groups, np.int64)
    columns: list[tuple[NDArray[np.int64], ...]] = []
    for rollout in range(rollouts):
        state = np.zeros(groups, np.int64)
        alive = np.arange(groups)
        skill = rng.uniform(*ends, groups)
        for step in range(steps):
            done = rng.random(len(alive)) < skill[alive] * (step > 3)
            last = done | (step == steps - 1)
            columns.append(
                (
                    alive,
                    np.full(len(alive), rollout),
                    np.full(len(alive), step),
                    state[alive],
                    last.astype(np.int64),
                    done.astype(np.int64),
                )
            )
            alive = alive[~last]
            here = state[alive]
            draw = rng.random(len(alive))
            onward = way_on[alive, here]
            earlier = (rng.random(len(alive)) * known[alive]).astype(np.int64)
            new = known[alive]
            following = np.where(
                (draw < follow) & (onward >= 0), onward, np.where(draw > 1 - back, earlier, new)
            )
            unset = onward < 0
            way_on[alive[unset], here[unset]] = following[unset]
            known[alive] += following == new
            state[alive] = following
    stacked = [np.concatenate(c) for c in zip(*columns, strict=True)]
    order = np.lexsort((stacked[2], stacked[1], stacked[0]))
    names = ("group", "rollout", "step", "state", "last", "success")
    return {name: column[order] for name, column in zip(names, stacked, strict=True)}


def observation_texts(count: int, rng: np.random.Generator) -> list[str]:
    """Distinct household observations of 300-600 characters."""
    lengths = rng.integers(13, 28, count)
    things = rng.integers(0, len(_THINGS), int(lengths.sum()))
    numbers = rng.integers(1, 10, len(things))
    place, which = rng.integers(0, len(_PLACES), count), rng.integers(1, 9, count)
    texts, start = [], 0
    for i in range(count):
        stop = start + int(lengths[i])
        seen = ", ".join(
            f"a {_THINGS[t]} {n}"
            for t, n in zip(things[start:stop], numbers[start:stop], strict=True)
        )
        at = f"{_PLACES[place[i]]} {which[i]}"
        texts.append(
            f"You arrive at {at}. The {at} is open. On the {at}, you see {seen}. "
            f"You are carrying nothing else and the room is as you left it ({i})."
        )
        start = stop
    return texts


def blocks(
    groups: int, rollouts: int = 8, steps: int = 50, seed: int = 0, block: int = _BLOCK_GROUPS
) -> Iterator[pl.DataFrame]:
    """Step tables of up to `block` groups each."""
    for start in range(0, groups, block):
        rng = np.random.default_rng([seed, start])
        count = min(block, groups - start)
        walk = simulate(count, rollouts, steps, rng)
        key = walk["group"] * (rollouts * steps + 1) + walk["state"]
        distinct, code = np.unique(key, return_inverse=True)
        texts = pl.Series(observation_texts(len(distinct), rng))
        verb = rng.integers(0, 3, len(key))
        yield pl.DataFrame(
            {
                "group_id": pl.Series(walk["group"] + start).cast(pl.String).str.zfill(6),
                "rollout_id": walk["rollout"],
                "step": walk["step"],
                "observation": texts.gather(code),
                "action": pl.Series(["go to", "open", "take"]).gather(verb)
                + " "
                + pl.Series(_PLACES).gather(rng.integers(0, len(_PLACES), len(key))),
                "reward": walk["success"].astype(np.float64),
                "done": walk["last"].astype(bool) & walk["success"].astype(bool),
                "truncated": walk["last"].astype(bool) & ~walk["success"].astype(bool),
                "success": walk["success"].astype(bool),
            }
        )


def write(path: Path, groups: int, *, rollouts: int = 8, steps: int = 50, seed: int = 0) -> int:
    """Writes a Parquet or JSONL log by suffix; returns its number of rows."""
    rows = 0
    if path.suffix == ".parquet":
        writer = None
        for frame in blocks(groups, rollouts, steps, seed):
            table: pa.Table = frame.to_arrow()
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
            rows += frame.height
        if writer is not None:
            writer.close()
        return rows
    with path.open("wb") as stream:
        for frame in blocks(groups, rollouts, steps, seed):
            frame.write_ndjson(stream)
            rows += frame.height
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = write(
        options.out,
        options.groups,
        rollouts=options.rollouts,
        steps=options.steps,
        seed=options.seed,
    )
    print(f"{rows} rows, {options.out.stat().st_size / 2**20:.1f} MiB -> {options.out}")


if __name__ == "__main__":
    main()
