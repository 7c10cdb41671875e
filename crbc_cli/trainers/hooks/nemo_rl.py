"""NeMo-RL: logs the turns of each message log, before batches are flattened to tokens.

In the training loop after the multi-turn rollout:

    log_turns(repeated_batch, FOLDER, step, master_config["grpo"]["num_generations_per_prompt"])

An action is an assistant message, its observation the message before it. Then:
crbc annotate FOLDER --success-when "score >= 1"
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the trainer never waits for the disk


def log_turns(batch: Any, folder: str, step: int, generations: int) -> "Future[None]":
    """Writes one file: every `generations` samples are the group of one prompt.

    `.result()` of what it returns waits for the file, and raises what went wrong.
    """
    rewards = [float(reward) for reward in batch["total_reward"]]
    cut = [bool(flag) for flag in batch.get("truncated", [False] * len(rewards))]
    rows: list[dict[str, Any]] = []
    for i, messages in enumerate(batch["message_log"]):
        observation, turns = None, list[dict[str, Any]]()
        for message in messages:
            if message["role"] != "assistant":
                observation = message["content"]
                continue
            row = {"group_id": f"{step}-{i // generations}", "rollout_id": i, "idx": i}
            row |= {"step": len(turns), "observation": observation, "action": message["content"]}
            turns.append(row | {"score": rewards[i], "done": False, "truncated": False})
        if turns:
            turns[-1] |= {"done": not cut[i], "truncated": cut[i]}
        rows += turns
    return _writer.submit(_save, rows, os.path.join(folder, f"{step}.parquet"))


def _save(rows: Any, path: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
