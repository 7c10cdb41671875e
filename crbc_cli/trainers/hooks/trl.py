"""TRL: logs the turns of each completion, read off the completion and tool masks.

In a subclass of GRPOTrainer, where one process holds whole groups:

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        log_turns(output, FOLDER, self.state.global_step, self.num_generations, scores,
                  self.processing_class.decode)
        return output

`scores` is what your reward function returned for the batch, for example kept by it in a list.
Then: crbc annotate FOLDER --success-when "score >= 1"
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the trainer never waits for the disk


def log_turns(
    output: Any, folder: str, global_step: int, num_generations: int, scores: Any, decode: Any
) -> "Future[None]":
    """Writes one file of turns: every `num_generations` completions are a group.

    `.result()` of what it returns waits for the file, and raises what went wrong.
    """
    file = f"turns_{global_step:05d}.parquet"
    masks = (output["completion_mask"] * output.get("tool_mask", 1)).tolist()
    tokens = [output[name].tolist() for name in ("prompt_ids", "completion_ids")]
    rows = []
    for i, (prompt, completion, mask) in enumerate(zip(*tokens, masks, strict=True)):
        turns = np.flatnonzero(np.diff(mask, prepend=0, append=0)).reshape(-1, 2).tolist()
        observation = decode(prompt, skip_special_tokens=True)
        for step, (start, stop) in enumerate(turns):
            row = {"group_id": f"{global_step}-{i // num_generations}", "rollout_id": i}
            row |= {"step": step, "file": file, "row": i, "score": float(scores[i])}
            row |= {"response_start": start, "response_len": stop - start}
            row |= {"observation": observation, "done": step + 1 == len(turns)}
            row |= {"action": decode(completion[start:stop], skip_special_tokens=True)}
            rows.append(row)
            following = turns[step + 1][0] if step + 1 < len(turns) else stop
            observation = decode(completion[stop:following], skip_special_tokens=True)
    return _writer.submit(_save, rows, os.path.join(folder, file))


def _save(rows: Any, path: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
