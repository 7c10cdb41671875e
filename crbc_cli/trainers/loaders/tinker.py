"""Tinker cookbook: credit of `crbc annotate --emit tinker` as advantages of a Datum's tokens.

In your own trajectory_to_data, for each Datum that transitions are merged into:

    credit = load_credit(PATH)
    spans = [(new observation tokens, len(t.ac.tokens)) for each transition t of the Datum]
    advantages = token_advantages(credit, group_idx, traj_idx, spans, first=index of the first t)
    Datum(..., loss_fn_inputs={"advantages": TensorData.from_torch(torch.tensor(advantages)), ...})

The numbers are final: leave compute_advantages out.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

Credit = dict[tuple[Any, Any, int], float | None]


def load_credit(path: str) -> Credit:
    """(group_idx, traj_idx, step_idx) -> credit of that transition; None where it has none."""
    rows = pq.read_table(path).to_pylist()
    return {(r["group_idx"], r["traj_idx"], r["step_idx"]): r["advantage"] for r in rows}


def token_advantages(
    credit: Credit, group: Any, traj: Any, spans: Sequence[tuple[int, int]], first: int = 0
) -> list[float]:
    """One float per target token: 0 on observations, the step's credit on its action.

    Targets are the sequence shifted by one, so its first token has none. A transition that was
    not logged is a KeyError; null credit becomes 0.
    """
    values = [credit[group, traj, first + step] or 0.0 for step in range(len(spans))]
    tokens: list[float] = []
    for value, (observed, acted) in zip(values, spans, strict=True):
        tokens += [0.0] * observed + [value] * acted
    advantages = tokens[1:]
    assert set(advantages) | {0.0} == set(values) | {0.0}, "distinct credits of a rollout got lost"
    return advantages
