"""Steps of a batch in memory: whose they are, which tokens are theirs, and credit on those."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crbc_cli.anchors.canonical import digest
from crbc_cli.engine.in_memory import credit_in_memory
from crbc_cli.errors import ColumnError, IdentityError, OptionError, OutcomeError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Step", "contents", "credit_of", "on_tokens", "outcomes", "turns_of"]


@dataclass(frozen=True, slots=True)
class Step:
    """One environment step.

    Attributes:
      row: row of the batch that holds its tokens.
      span: its place among the row's response tokens.
      group, rollout: whose it is; compared as text.
      place: its place inside the rollout.
      observation, action: values of any type.
    """

    row: int
    span: slice
    group: Any
    rollout: Any
    place: int
    observation: Any
    action: Any


def turns_of(batch: Mapping[str, Any], mask: NDArray[np.bool_]) -> list[Step]:
    """Steps of a batch whose rows are conversations (lists of observations) or single steps.

    Args:
      batch: columns of the batch, as `compute_crbc_advantage` describes them.
      mask: bool [bs, R], the model's own response tokens.
    Raises:
      IdentityError: a row has another number of turns than of runs of its mask.
      ColumnError: rows that are steps do not name their rollout or place.
    """
    steps: list[Step] = []
    for row, (group, seen, done) in enumerate(
        zip(batch["uid"], batch["anchor_obs"], batch["text_actions"], strict=True)
    ):
        if seen is None:
            continue
        if not isinstance(seen, list | tuple):
            rollout, place = (_needed(batch, name, row) for name in ("traj_uid", "crbc_position"))
            steps.append(Step(row, slice(None), group, rollout, place, seen, done))
            continue
        edges = np.diff(mask[row].astype(np.int8), prepend=0, append=0)
        runs = np.flatnonzero(edges).reshape(-1, 2).tolist()
        if not len(runs) == len(seen) == len(done):
            raise IdentityError(
                f"row {row} has {len(runs)} runs of response tokens, {len(seen)} observations and "
                f"{len(done)} actions",
                "batch",
                "log one observation and one action per turn of the model",
            )
        rollout = batch["crbc_key"][row] if "crbc_key" in batch else row
        for place, ((start, stop), observation, action) in enumerate(
            zip(runs, seen, done, strict=True)
        ):
            steps.append(Step(row, slice(start, stop), group, rollout, place, observation, action))
    return steps


def _needed(batch: Mapping[str, Any], name: str, row: int) -> Any:
    if name not in batch:
        raise ColumnError(
            f"row {row} is one step, and non_tensor_batch has no {name}",
            "crbc advantage estimator",
            "return it from the agent loop, or lists of turns as anchor_obs and text_actions",
        )
    return batch[name][row]


def outcomes(
    steps: Sequence[Step], rewards: Sequence[float], success_at: float | None
) -> list[bool]:
    """Outcome of each step's rollout: the best reward of its rows reaches `success_at`.

    Args:
      steps: steps.
      rewards: one per row of the batch.
      success_at: the rule.
    Raises:
      OutcomeError: there is none; an outcome is never guessed.
    """
    if success_at is None:
        raise OutcomeError(
            "the batch does not say which rollouts succeeded",
            todo="give success per row, or success_at, the reward at which a rollout succeeded",
        )
    best: dict[tuple[str, str], float] = {}
    keys = [(str(step.group), str(step.rollout)) for step in steps]
    for key, step in zip(keys, steps, strict=True):
        best[key] = max(best.get(key, -np.inf), rewards[step.row])
    return [best[key] >= success_at for key in keys]


def contents(values: Sequence[Any]) -> list[str | None]:
    """Observations as text: themselves if all are text, else digests of their content."""
    if all(value is None or isinstance(value, str) for value in values):
        return list(values)
    return [None if value is None else digest(_plain(value)) for value in values]


def _plain(value: Any) -> Any:
    """Arrays, at any depth, as lists of numbers."""
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def credit_of(
    steps: Sequence[Step],
    success: Sequence[bool],
    valid: Sequence[bool] | None,
    column: str,
    options: Mapping[str, Any],
) -> list[float | None]:
    """One number of the credit table per step.

    Args:
      steps: steps, copies among them.
      success: outcome of each step's rollout.
      valid: whether the environment accepted its action, or None if that is not known.
      column: which number.
      options: of `crbc_cli.credit`.
    Raises:
      OptionError: no such number; CrbcError: see `crbc_cli.credit`.
    """
    options = dict(options)
    method = options.pop("method", "crbc")
    columns: dict[str, Any] = {
        "group_id": pa.array([str(step.group) for step in steps], pa.string()),
        "rollout_id": pa.array([str(step.rollout) for step in steps], pa.string()),
        "step": pa.array([int(step.place) for step in steps], pa.int64()),
        "observation": pa.array(contents([step.observation for step in steps]), pa.string()),
        "action": pa.array(contents([step.action for step in steps]), pa.string()),
        "success": pa.array([bool(won) for won in success], pa.bool_()),
    }
    if valid is not None:
        columns["is_action_valid"] = pa.array(valid, pa.bool_())
    table = credit_in_memory(pa.table(columns), method, options)
    if column not in table.column_names:
        raise OptionError(f"column {column!r} is not in the credit table", todo="use advantage")
    numbers: list[float | None] = table[column].to_pylist()
    return numbers


def on_tokens(
    response_mask: "Tensor", steps: Sequence[Step], credit: Sequence[float | None]
) -> "Tensor":
    """Float32 [bs, R] on the mask's device: each step's credit on its tokens; null is 0."""
    mask = response_mask.float()
    values = np.zeros(tuple(response_mask.shape), np.float32)
    for step, value in zip(steps, credit, strict=True):
        values[step.row, step.span] = value or 0.0
    return mask * mask.new_tensor(values)
