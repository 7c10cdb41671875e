"""Credit inside a training loop: advantage estimators with the signatures that trainers call.

Both return (advantages, returns), float32 [batch, response_length] on the mask's device, 0 where
the mask is; they touch no file. Everything is computed by `crbc_cli.credit`, in float64.

* `compute_crbc_outcome_advantage` stands in for verl-agent's
  `core_gigpo.compute_gigpo_outcome_advantage`: one row is one environment step.
* `compute_crbc_advantage` has the signature that verl's `register_adv_est` asks for;
  `crbc_cli.trainers.verl_plugin` registers it.

Source of the signatures: `gigpo/core_gigpo.py` of verl-agent, `trainer/ppo/core_algos.py` of
verl 0.9.1.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crbc_cli.errors import ColumnError, IdentityError, OptionError
from crbc_cli.trainers.batch import Step, contents, credit_of, on_tokens, outcomes, turns_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["compute_crbc_advantage", "compute_crbc_outcome_advantage", "positions"]

_ESTIMATORS = {"mean_std_norm": "grpo", "mean_norm": "dr-grpo"}


def compute_crbc_outcome_advantage(
    token_level_rewards: "Tensor",
    step_rewards: Any,
    response_mask: "Tensor",
    anchor_obs: Sequence[Any],
    index: Sequence[Any],
    traj_index: Sequence[Any],
    epsilon: float = 1e-6,
    step_advantage_w: float = 5.0,
    mode: str = "mean_std_norm",
    enable_similarity: bool = False,
    similarity_thresh: float = 0.95,
    *,
    text_actions: Sequence[Any],
    position: Sequence[int] | None = None,
    success: Sequence[bool] | None = None,
    success_at: float | None = None,
    is_action_valid: Sequence[bool] | None = None,
    column: str = "advantage",
    **options: Any,
) -> "tuple[Tensor, Tensor]":
    """CRBC for verl-agent's batch, where one row is one environment step.

    Args:
      token_level_rewards: float [bs, R]; the sum of a row is its episode's reward.
      step_rewards: discounted returns; taken because the original does, not used.
      response_mask: [bs, R].
      anchor_obs: `non_tensor_batch["anchor_obs"]`, values of any type.
      index: `uid`, the group.
      traj_index: `traj_uid`, the rollout.
      epsilon: added to the std of the group advantage.
      step_advantage_w: weight of the step credit.
      mode: "mean_std_norm": the group advantage is GRPO's; "mean_norm": Dr.GRPO's.
      enable_similarity, similarity_thresh: merge anchors whose texts are at least so similar.
      text_actions: the action of each row, or with `action_tag="action"` the response it is in.
      position: place of each row inside its rollout, the same for copies; by default as
        `positions` finds it.
      success: outcome of each row's rollout; or
      success_at: a rollout succeeded if the best reward of its rows reaches this.
      is_action_valid: for options that penalise invalid actions.
      column: the number that is returned.
      **options: of `crbc_cli.credit`.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    del step_rewards
    if mode not in _ESTIMATORS:
        raise OptionError(f"mode {mode!r} is not known", todo=f"use {' or '.join(_ESTIMATORS)}")
    options = {"eps": epsilon, "w_s": step_advantage_w, "estimator": _ESTIMATORS[mode], **options}
    if enable_similarity:
        options["merge_similar"] = similarity_thresh
    if position is None:
        position = positions(index, traj_index, anchor_obs, text_actions)
    columns = (index, traj_index, position, anchor_obs, text_actions)
    steps = [Step(row, slice(None), *cells) for row, cells in enumerate(zip(*columns, strict=True))]
    if success is None:
        success = outcomes(steps, token_level_rewards.sum(-1).tolist(), success_at)
    valid = None if is_action_valid is None else [bool(v) for v in is_action_valid]
    credit = credit_of(steps, success, valid, column, options)
    advantages = on_tokens(response_mask, steps, credit)
    return advantages, advantages


def positions(
    index: Sequence[Any],
    traj_index: Sequence[Any],
    anchor_obs: Sequence[Any],
    text_actions: Sequence[Any],
) -> list[int]:
    """Place of each row inside its rollout, in a batch that padding may have copied rows of.

    The rows of a rollout stand together, in time order; a row that comes later is a copy, and
    takes the place of the first of them with its content. Copies at the end of the very last
    rollout, or in a batch that was shuffled since, cannot be told from steps: number the rows
    before the batch is padded, `batch.non_tensor_batch["crbc_position"] = positions(…)`.

    Args:
      index, traj_index, anchor_obs, text_actions: as above, one entry per row.
    Raises:
      IdentityError: a row is apart from its rollout and no copy of any of its rows.
    """
    found: list[int] = []
    seen: dict[Any, list[tuple[Any, str]]] = {}
    current: Any = None  # the rollout whose rows are being read
    keys = zip(map(str, index), map(str, traj_index), strict=True)
    rows = zip(contents(anchor_obs), map(str, text_actions), strict=True)
    for row, (key, content) in enumerate(zip(keys, rows, strict=True)):
        rollout = seen.setdefault(key, [])
        if not rollout:
            current = key
        if key == current:
            found.append(len(rollout))
            rollout.append(content)
        elif content in rollout:
            found.append(rollout.index(content))
            current = None
        else:
            raise IdentityError(
                f"row {row} stands apart from rollout {key[1]} and is no copy of its rows",
                "batch",
                "number the rows with positions() before the batch is padded or shuffled",
            )
    return found


def compute_crbc_advantage(
    token_level_rewards: "Tensor",
    response_mask: "Tensor",
    config: Any = None,
    index: Sequence[Any] | None = None,
    non_tensor_batch: Mapping[str, Any] | None = None,
    **_: Any,
) -> "tuple[Tensor, Tensor]":
    """CRBC for verl's batch, where one row is a conversation or one step of it.

    `anchor_obs` and `text_actions` of `non_tensor_batch` hold lists for rows that are
    conversations, one entry per turn, where a turn is a run of the row's mask; rows that are
    steps hold one value, their rollout in `traj_uid` and their place in `crbc_position`. Rows of
    one `crbc_key`, where there is one, are copies. Padding rows have None as `anchor_obs`, and
    get 0. The outcome is the batch's `success`, or the reward that reaches `success_at`.

    Args:
      token_level_rewards: float [bs, R]; the sum of a row is its reward.
      response_mask: [bs, R].
      config: `config["crbc"]` holds `success_at`, `column`, and options of `crbc_cli.credit`.
      index: `uid`, the group.
      non_tensor_batch: of the batch; verl hands it over through `verl_plugin`.
    Raises:
      CrbcError: see `crbc_cli.errors`; ColumnError for what the batch lacks.
    """
    options = dict((config.get("crbc", None) if config is not None else None) or {})
    column, success_at = options.pop("column", "advantage"), options.pop("success_at", None)
    batch = {**(non_tensor_batch or {}), **({} if index is None else {"uid": index})}
    for name in ("uid", "anchor_obs", "text_actions"):
        if name not in batch:
            raise ColumnError(
                f"non_tensor_batch has no {name}",
                "crbc advantage estimator",
                "return it from the agent loop as an extra field",
            )
    steps = turns_of(batch, np.asarray(response_mask.tolist()) != 0)
    if "success" in batch:
        success = [bool(batch["success"][step.row]) for step in steps]
    else:
        success = outcomes(steps, token_level_rewards.sum(-1).tolist(), success_at)
    advantages = on_tokens(response_mask, steps, credit_of(steps, success, None, column, options))
    return advantages, advantages
