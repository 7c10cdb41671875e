"""Tinker cookbook: logs what the summaries leave out, the text of observations and actions.

In the training loop, once the groups of an iteration are rolled out:

    log_steps(trajectory_groups, FOLDER, i_batch, tokenizer.decode)

An observation is what a transition's prompt adds to the one before. Then:
crbc annotate FOLDER --success-when "score >= 1"
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the trainer never waits for the disk


def log_steps(groups: Any, folder: str, iteration: int, decode: Any) -> "Future[None]":
    """Writes one file; `score` is the trajectory's total reward, that of the group included.

    `.result()` of what it returns waits for the file, and raises what went wrong.
    """
    rows = []
    for g, group in enumerate(groups):
        totals = group.get_total_rewards()
        for t, trajectory in enumerate(group.trajectories_G):
            before: list[int] = []
            for step, transition in enumerate(trajectory.transitions):
                prompt, acted = list(transition.ob.to_ints()), list(transition.ac.tokens)
                new = prompt[len(before) :] if prompt[: len(before)] == before else prompt
                before = prompt + acted
                row: dict[str, Any] = {"group_id": g, "rollout_id": t, "step": step}
                row |= {"group_idx": g, "traj_idx": t, "step_idx": step}
                row |= {"observation": decode(new), "action": decode(acted)}
                row |= {"reward": float(transition.reward), "score": float(totals[t])}
                rows.append(row | {"done": bool(transition.episode_done), "iteration": iteration})
    return _writer.submit(_save, rows, os.path.join(folder, f"{iteration:06d}.parquet"))


def _save(rows: Any, path: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
