"""verl-agent: credit of `crbc annotate --emit verl-agent` as token advantages.

Where the trainer calls compute_advantage, after the log hook has numbered the batch's rows:

    advantages, mask = load_advantages(PATH, batch.non_tensor_batch, batch.batch["response_mask"])
    batch.batch["advantages"] = batch.batch["returns"] = advantages

Copies made by adjust_batch carry their original's position, so they get its credit. The numbers
are final: do not normalise or whiten them again.
"""

from collections import defaultdict
from typing import Any

import pyarrow.parquet as pq


def load_advantages(path: str, rows: Any, mask: Any, *, mask_null: bool = False) -> tuple[Any, Any]:
    """Float32 advantages [bs, R] on the mask's device, and the mask to train with.

    A row that was not logged is a KeyError. Null credit becomes 0; with `mask_null` its tokens
    leave the loss too.
    """
    table = pq.read_table(path).to_pylist()
    credit = {(r["uid"], r["traj_uid"], r["position"]): r["advantage"] for r in table}
    keys = list(zip(rows["uid"], rows["traj_uid"], rows["crbc_position"], strict=True))
    values = [credit[key] for key in keys]
    mask = mask.float()
    advantages = mask * mask.new_tensor([[value or 0.0] for value in values])
    meant: dict[Any, set[float]] = defaultdict(set)
    found: dict[Any, set[float]] = defaultdict(set)
    for key, value, tokens in zip(keys, values, advantages.tolist(), strict=True):
        meant[key[:2]].add(value or 0.0)
        found[key[:2]] |= set(tokens) - {0.0} or {0.0}
    assert found == meant, "distinct credits of a rollout got lost: a row's mask has no token"
    if mask_null:
        mask = mask * mask.new_tensor([[float(value is not None)] for value in values])
    return advantages, mask
