"""rLLM: credit of `crbc annotate --emit rllm` as precomputed advantages of steps.

With rllm.algorithm.use_precomputed_advantage=true, in the workflow or over the finished episodes:

    load_advantages(PATH, episodes)

The Tinker backend trains each step on its own number; the verl backend takes the first step's for
the whole trajectory, so use it with one step per trajectory only. The numbers are final.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow.parquet as pq


def load_advantages(path: str, episodes: Iterable[Any], *, per_token: bool = False) -> None:
    """Sets `step.advantage` to a float, or with `per_token` to one float per response token.

    A step that was not logged is a KeyError. Null credit becomes 0.0, as rLLM refuses None; with
    `per_token` a step without response tokens is an error when it has credit.
    """
    credit: dict[tuple[str, int, int], float | None] = {}
    for row in pq.read_table(path).to_pylist():
        credit[row["episode_id"], row["trajectory_index"], row["step_index"]] = row["advantage"]
    for episode in episodes:
        for t, trajectory in enumerate(episode.trajectories):
            meant = [credit[episode.id, t, s] or 0.0 for s in range(len(trajectory.steps))]
            for step, value in zip(trajectory.steps, meant, strict=True):
                step.advantage = [value] * len(step.response_ids) if per_token else value
            found = [s.advantage for s in trajectory.steps]
            distinct = set().union(*found) if per_token else set(found)
            assert distinct == set(meant), f"distinct credits of {episode.id} got lost: no token"
