"""verl: credit of `crbc annotate --emit verl` as token advantages, one or several turns a row.

v1 trainer (a subclass, keys = batch.keys):    tq.kv_batch_put(..., fields=advantages)
legacy trainer (keys = the log hook's column), in place of compute_advantage:

    keys = data.non_tensor_batch["crbc_key"]
    advantages, mask = load_advantages(PATH, keys, data.batch["response_mask"])
    data.batch["advantages"] = data.batch["returns"] = advantages

The numbers are final: do not normalise or whiten them again.
"""

from typing import Any

import pyarrow.parquet as pq


def load_advantages(
    path: str, keys: Any, mask: Any, *, padding: Any = (), mask_null: bool = False
) -> tuple[Any, Any]:
    """Float32 advantages [bs, R] on the mask's device, and the mask to train with.

    A key that was not logged is a KeyError, unless it is in `padding`: those rows get 0 and no
    mask. Null credit becomes 0; with `mask_null` its tokens leave the loss too.
    """
    steps: dict[Any, list[Any]] = {key: [] for key in padding}
    for row in pq.read_table(path).to_pylist():
        start, length = row.get("response_start"), row.get("response_len")
        span = slice(None) if start is None else slice(start, start + length)
        steps.setdefault(row["key"], []).append((span, row["advantage"]))
    mask = mask.float()
    advantages, kept = mask * 0, mask * 0
    for i, key in enumerate(keys):
        for span, value in steps[key]:
            advantages[i, span] = mask[i, span] * (value or 0.0)
            kept[i, span] = mask[i, span] * float(value is not None or not mask_null)
    for key, tokens in zip(keys, advantages.tolist(), strict=True):
        meant = {value or 0.0 for _, value in steps[key]} - {0.0}
        assert set(tokens) - {0.0} == meant, f"distinct credits of {key} got lost: no token"
    return advantages, kept
