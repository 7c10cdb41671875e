"""verl-agent: logs every environment step, before the batch is padded and shuffled.

In the trainer's fit(), after the rollout and before adjust_batch:

    log_steps(batch, FOLDER, self.global_steps)

and, so that actions are known, in the rollout loop after the responses are decoded:

    batch.non_tensor_batch["text_actions"] = np.array(text_actions, dtype=object)

Then: crbc annotate FOLDER --action-tag action --success-when "episode_rewards >= 10"
The batch knows no ends of episodes: an unsuccessful rollout is a failure, cut or not.
"""

import json
import os
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the trainer never waits for the disk


def log_steps(batch: Any, folder: str, global_step: int) -> "Future[None]":
    """Numbers the rows of each rollout (`crbc_position`, which copies keep) and writes one file.

    `.result()` of what it returns waits for the file, and raises what went wrong.
    """
    logged, seen = batch.non_tensor_batch, Counter[str]()
    position = np.empty(len(logged["uid"]), dtype=object)
    for i, rollout in enumerate(logged["traj_uid"]):
        position[i], seen[rollout] = seen[rollout], seen[rollout] + 1
    logged["crbc_position"] = position
    columns = {
        "group_id": logged["uid"].tolist(),
        "rollout_id": logged["traj_uid"].tolist(),
        "step": position.tolist(),
        "observation": [_text(anchor) for anchor in logged["anchor_obs"]],
        "action": logged["text_actions"].tolist(),
        "reward": [float(reward) for reward in logged["rewards"]],
        "episode_rewards": [float(reward) for reward in logged["episode_rewards"]],
        "is_action_valid": [bool(valid) for valid in logged["is_action_valid"]],
        "global_step": [global_step] * len(position),
    }
    return _writer.submit(_save, columns, os.path.join(folder, f"{global_step}.parquet"))


def _text(value: Any) -> Any:
    return value if isinstance(value, str) or value is None else json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _save(columns: Any, path: str) -> None:
    pq.write_table(pa.table(columns), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
