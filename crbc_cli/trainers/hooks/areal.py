"""AReaL: logs the turns of each sequence, read off the loss mask.

In the training loop, after prepare_batch and before compute_advantages:

    log_turns(rollout_batch, FOLDER, global_step, tokenizer.decode)

The batch is a list with one entry per task, whose tensors hold the task's samples. An action is a
run of the model's own tokens, its observation what stands before it. Then:
crbc annotate FOLDER --success-when "score >= 1"
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the trainer never waits for the disk


def log_turns(batch: Any, folder: str, global_step: int, decode: Any) -> "Future[None]":
    """Writes one file of turns; `response_start` counts from the start of the sequence.

    `.result()` of what it returns waits for the file, and raises what went wrong.
    """
    rows = []
    for task, samples in enumerate(batch):
        names = ("input_ids", "loss_mask", "rewards")
        tensors = zip(*(samples[name].tolist() for name in names), strict=True)
        for sample, (tokens, mask, reward) in enumerate(tensors):
            turns = np.flatnonzero(np.diff(mask, prepend=0, append=0)).reshape(-1, 2).tolist()
            seen = 0
            for step, (start, stop) in enumerate(turns):
                row = {"group_id": f"{global_step}-{task}", "rollout_id": sample, "step": step}
                row |= {"observation": decode(tokens[seen:start], skip_special_tokens=True)}
                row |= {"action": decode(tokens[start:stop], skip_special_tokens=True)}
                row |= {"score": float(reward), "done": step + 1 == len(turns)}
                rows.append(row | {"response_start": start, "response_len": stop - start})
                seen = stop
    return _writer.submit(_save, rows, os.path.join(folder, f"{global_step}.parquet"))


def _save(rows: Any, path: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
