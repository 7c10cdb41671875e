"""rLLM: logs the steps of finished episodes, one row each instead of ever longer histories.

In the workflow engine, once a training step's episodes are there:

    log_steps(episodes, FOLDER, global_step)

Then: crbc annotate FOLDER. An episode's outcome is its own is_correct.
"""

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the trainer never waits for the disk


def log_steps(episodes: Any, folder: str, global_step: int) -> "Future[None]":
    """Writes one file; a group is a task and the name of a trajectory, as rLLM groups them.

    `.result()` of what it returns waits for the file, and raises what went wrong.
    """
    rows = []
    for episode in episodes:
        task = episode.id.rpartition(":")[0]
        reason = getattr(episode.termination_reason, "value", episode.termination_reason)
        for t, trajectory in enumerate(episode.trajectories):
            for s, step in enumerate(trajectory.steps):
                last = s + 1 == len(trajectory.steps)
                row = {"group_id": f"{task}:{trajectory.name}", "rollout_id": episode.id, "step": s}
                row |= {"episode_id": episode.id, "trajectory_index": t, "step_index": s}
                row |= {"observation": _text(step.observation), "action": _text(step.action)}
                row |= {"reward": float(step.reward), "success": bool(episode.is_correct)}
                row |= {"done": bool(step.done), "global_step": global_step}
                rows.append(row | {"truncated": last and str(reason).startswith("max_")})
    return _writer.submit(_save, rows, os.path.join(folder, f"{global_step}.parquet"))


def _text(value: Any) -> Any:
    return value if isinstance(value, str) or value is None else json.dumps(value, default=str)


def _save(rows: Any, path: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
