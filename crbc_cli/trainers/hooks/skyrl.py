"""SkyRL: logs the steps of step-wise training, before the trainer drops ids and boundaries.

In a subclass of the trainer, where the generator's output is turned into training input:

    self.crbc_trajectory_ids = generator_output["trajectory_ids"]
    log_steps(generator_output, FOLDER, self.global_step, self.tokenizer.decode)

An action is a response, its observation what its prompt adds to the step before. Then:
crbc annotate FOLDER --success-when "score >= 1"
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the trainer never waits for the disk


def log_steps(output: Any, folder: str, global_step: int, decode: Any) -> "Future[None]":
    """Writes one file; the rows of one trajectory id are its steps in order.

    `score` is the sum of the row's token rewards, on the last row that of the episode.
    `.result()` of what it returns waits for the file, and raises what went wrong.
    """
    rows: list[dict[str, Any]] = []
    seen: dict[tuple[str, int], list[int]] = {}
    steps: dict[tuple[str, int], int] = {}
    for i, trajectory in enumerate(output["trajectory_ids"]):
        rollout = str(trajectory.instance_id), int(trajectory.repetition_id)
        prompt, response = list(output["prompt_token_ids"][i]), list(output["response_ids"][i])
        before = seen.get(rollout, [])
        new = prompt[len(before) :] if prompt[: len(before)] == before else prompt
        seen[rollout], step = prompt + response, steps.get(rollout, 0)
        steps[rollout] = step + 1
        reward = output["rewards"][i]
        row = {"group_id": rollout[0], "rollout_id": rollout[1], "step": step}
        row |= {"instance_id": rollout[0], "repetition_id": rollout[1]}
        row |= {"observation": decode(new, skip_special_tokens=True)}
        row |= {"action": decode(response, skip_special_tokens=True)}
        row |= {"score": float(sum(reward) if isinstance(reward, list) else reward)}
        row |= {"done": bool(output["is_last_step"][i]), "global_step": global_step}
        rows.append(row | {"truncated": output["stop_reasons"][i] == "length"})
    return _writer.submit(_save, rows, os.path.join(folder, f"{global_step}.parquet"))


def _save(rows: Any, path: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
