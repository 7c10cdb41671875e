"""ms-swift: logs the turns of each conversation, from a reward function of weight 0.

In a plugin file (--external_plugins), with --reward_funcs yours,crbc_log --reward_weights 1 0:

    orms["crbc_log"] = LogTurns

and CRBC_LOG=FOLDER, CRBC_GENERATIONS=num_generations in the environment. Your own reward function
puts the outcome into the column that CRBC_SCORE names (a dataset column, say `solved`).
Then: crbc annotate FOLDER --success-when "score >= 1"
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_writer = ThreadPoolExecutor(1)  # the trainer never waits for the disk


class LogTurns:
    """Called with the completions of a step, which stand in blocks of one prompt each."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.written: Future[None] | None = None
        self.calls = 0

    def __call__(self, completions: list[str], messages: Any, **columns: Any) -> list[float]:
        if self.written is not None:
            self.written.result()  # raises what went wrong with the last file
        scores, size = columns[os.environ["CRBC_SCORE"]], int(os.environ["CRBC_GENERATIONS"])
        file = f"turns_{self.calls:05d}_{os.getpid()}.parquet"
        rows: list[dict[str, Any]] = []
        for i, conversation in enumerate(messages):
            step, observation = 0, None
            for message in conversation:
                if message["role"] == "assistant":
                    row = {"group_id": f"{self.calls}-{i // size}", "rollout_id": i, "step": step}
                    row |= {"observation": observation, "action": str(message["content"])}
                    row |= {"score": float(scores[i]), "file": file, "row": i, "done": False}
                    rows.append(row)
                    step += 1
                elif message["role"] != "system":
                    observation = str(message["content"])
            rows[-1]["done"] = True
        self.calls += 1
        self.written = _writer.submit(_save, rows, os.path.join(os.environ["CRBC_LOG"], file))
        return [0.0] * len(completions)


def _save(rows: Any, path: str) -> None:
    pq.write_table(pa.Table.from_pylist(rows), f"{path}.part", compression="zstd")
    os.replace(f"{path}.part", path)
