"""slime: credit of `crbc annotate --emit slime` as advantages on the training ranks.

    CRBC_CREDIT=credit.parquet ... --custom-advantage-function-path crbc_slime.crbc_advantages

Works with --load-debug-rollout-data too, so credit made offline trains on unchanged rollouts.
Samples are found by Sample.index. Run without --normalize-advantages: the numbers are final.
"""

import os
from typing import Any

import pyarrow.parquet as pq


def crbc_advantages(args: Any, rollout_data: dict[str, Any]) -> None:
    """Sets `advantages` and `returns`, lists of float32 [response_len] beside each loss mask.

    A sample that was not logged is a KeyError. Null credit becomes 0; with CRBC_MASK_NULL=1 its
    tokens leave the loss mask too. For context parallelism cut the lists as the loss masks are.
    """
    del args
    steps: dict[int, list[Any]] = {}
    for row in pq.read_table(os.environ["CRBC_CREDIT"]).to_pylist():
        start, length = row.get("response_start"), row.get("response_len")
        span = slice(None) if start is None else slice(start, start + length)
        steps.setdefault(row["sample_index"], []).append((span, row["advantage"]))
    advantages = []
    for index, mask in zip(rollout_data["sample_indices"], rollout_data["loss_masks"], strict=True):
        tokens = mask.float() * 0
        for span, value in steps[int(index)]:
            tokens[span] = mask[span].float() * (value or 0.0)
            if value is None and os.environ.get("CRBC_MASK_NULL") == "1":
                mask[span] = 0
        meant = {value or 0.0 for _, value in steps[int(index)]} - {0.0}
        assert set(tokens.tolist()) - {0.0} == meant, f"credit of sample {index} got lost: no token"
        advantages.append(tokens)
    rollout_data["advantages"], rollout_data["returns"] = advantages, list(advantages)
