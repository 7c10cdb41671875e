"""verl: logs the turns of each conversation, read off the response mask.

Where the reward is known and before the batch is balanced or padded, in fit():

    log_turns(data, FOLDER, self.global_steps, tokenizer.decode)

An action is a run of the model's own tokens, its observation what stands before it: the prompt,
then the replies of tools. Then: crbc annotate FOLDER --success-when "score >= 1"
"""

import os
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the trainer never waits for the disk


def log_turns(data: Any, folder: str, global_step: int, decode: Any) -> "Future[None]":
    """Names each row (`crbc_key`, which copies keep) and writes one file of turns.

    `.result()` of what it returns waits for the file, and raises what went wrong.
    """
    scores = data.batch["token_level_scores"].sum(-1).tolist()
    names = ("prompts", "responses", "response_mask")
    tensors = zip(*(data.batch[name].tolist() for name in names), strict=True)
    keys, seen, rows = np.empty(len(scores), dtype=object), Counter[str](), []
    for i, (prompt, response, mask) in enumerate(tensors):
        uid = str(data.non_tensor_batch["uid"][i])
        rollout, seen[uid] = seen[uid], seen[uid] + 1
        keys[i] = f"{uid}_{rollout}_0"
        turns = np.flatnonzero(np.diff(mask, prepend=0, append=0)).reshape(-1, 2).tolist()
        observation = decode(prompt, skip_special_tokens=True)
        for step, (start, stop) in enumerate(turns):
            row = {"group_id": uid, "rollout_id": rollout, "step": step, "uid": keys[i]}
            row |= {"response_start": start, "response_len": stop - start, "score": scores[i]}
            row |= {"observation": observation, "global_step": global_step}
            row |= {"action": decode(response[start:stop], skip_special_tokens=True)}
            rows.append(row | {"done": step + 1 == len(turns)})
            following = turns[step + 1][0] if step + 1 < len(turns) else stop
            observation = decode(response[stop:following], skip_special_tokens=True)
    data.non_tensor_batch["crbc_key"] = keys
    return _writer.submit(_save, rows, os.path.join(folder, f"{global_step}.parquet"))


def _save(rows: Any, path: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
