"""slime: logs the turns of each sample, read off the loss mask.

    --custom-rollout-log-function-path crbc_slime_log.log_turns

with CRBC_LOG=FOLDER in the environment. An action is a run of the model's own tokens, its
observation what stands before it. Then: crbc annotate FOLDER --success-when "score >= 1"
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the rollout never waits for the disk
_written: list["Future[None]"] = []


def log_turns(rollout_id: int, args: Any, samples: Any, *_: Any, decode: Any = None) -> bool:
    """Writes one file; returns False, so that slime's own log goes on.

    A file that could not be written is raised at the next call.
    """
    if decode is None:
        from transformers import AutoTokenizer

        decode = AutoTokenizer.from_pretrained(args.hf_checkpoint).decode
    rows = []
    for sample in (s for s in samples if s.response_length):
        response = sample.tokens[-sample.response_length :]
        mask = sample.loss_mask or [1] * sample.response_length
        turns = np.flatnonzero(np.diff(mask, prepend=0, append=0)).reshape(-1, 2).tolist()
        observation = decode(sample.tokens[: -sample.response_length], skip_special_tokens=True)
        reward = sample.reward[args.reward_key] if args.reward_key else sample.reward
        for step, (start, stop) in enumerate(turns):
            row = {"group_id": sample.group_index, "rollout_id": sample.index, "step": step}
            row |= {"sample_index": sample.index, "score": float(reward)}
            row |= {"response_start": start, "response_len": stop - start}
            row |= {"observation": observation, "done": step + 1 == len(turns)}
            row |= {"action": decode(response[start:stop], skip_special_tokens=True)}
            rows.append(row | {"truncated": getattr(sample.status, "value", "") == "truncated"})
            following = turns[step + 1][0] if step + 1 < len(turns) else stop
            observation = decode(response[stop:following], skip_special_tokens=True)
    if _written:
        _written.pop().result()
    path = os.path.join(os.environ["CRBC_LOG"], f"{rollout_id}.parquet")
    _written.append(_writer.submit(_save, rows, path))
    return False


def _save(rows: Any, path: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
