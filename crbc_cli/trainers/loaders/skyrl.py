"""SkyRL: credit of `crbc annotate --emit skyrl` as token advantages of step-wise training.

In a subclass of the trainer, since the step-wise path evaluates last steps and broadcasts them:

    def compute_advantages_and_returns(self, data):
        ids = self.crbc_trajectory_ids        # generator_output["trajectory_ids"], kept by you
        data["advantages"], _ = load_advantages(PATH, ids, data["response_mask"])
        data["returns"] = data["advantages"]
        return data

The numbers are final: switch advantage normalisation over the batch off.
"""

from collections import Counter, defaultdict
from typing import Any

import pyarrow.parquet as pq


def load_advantages(path: str, ids: Any, mask: Any, *, mask_null: bool = False) -> tuple[Any, Any]:
    """Float32 advantages [bs, R] on the mask's device, and the mask to train with.

    Rows of one trajectory id are its steps in order; rows beyond `ids` are padding and get 0.
    A step that was not logged is a KeyError. Null credit becomes 0; with `mask_null` its tokens
    leave the loss too. Each row is multiplied by its own, right-aligned mask.
    """
    table = pq.read_table(path).to_pylist()
    credit = {(r["instance_id"], r["repetition_id"], r["step"]): r["advantage"] for r in table}
    mask = mask.float()
    advantages, kept = mask * 0, mask * 0
    steps: Counter[Any] = Counter()
    meant: dict[Any, set[float]] = defaultdict(set)
    found: dict[Any, set[float]] = defaultdict(set)
    for i, trajectory in enumerate(ids):
        rollout = trajectory.instance_id, trajectory.repetition_id
        value = credit[(*rollout, steps[rollout])]
        steps[rollout] += 1
        advantages[i] = mask[i] * (value or 0.0)
        kept[i] = mask[i] * float(value is not None or not mask_null)
        meant[rollout].add(value or 0.0)
        found[rollout] |= set(advantages[i].tolist()) - {0.0} or {0.0}
    assert found == meant, "distinct credits of a rollout got lost: a row's mask has no token"
    return advantages, kept
