"""verl plugin: importing this module registers the advantage estimator `crbc`.

    VERL_USE_EXTERNAL_MODULES=crbc_cli.trainers.verl_plugin python -m verl.trainer.main_ppo \\
        algorithm.adv_estimator=crbc +algorithm.crbc.success_at=1.0 …

verl passes a registered estimator the group ids but no other identity of the rows (0.9.1,
`trainer/ppo/ray_trainer.py`, `compute_advantage`), so that function is wrapped to hand over
`non_tensor_batch` too. All other estimators go through it as before. The v1 trainer fetches no
`non_tensor_batch` for advantages: there, write credit back with the loader of `crbc adapter verl`.
"""

from functools import wraps
from typing import Any

from verl.trainer.ppo import core_algos, ray_trainer

from crbc_cli.trainers.online import compute_crbc_advantage

__all__ = ["NAME"]

NAME = "crbc"


def _with_identities(compute_advantage: Any) -> Any:
    """verl's `compute_advantage`, which gives `crbc` the batch's identities."""

    @wraps(compute_advantage)
    def wrapped(data: Any, adv_estimator: Any, *arguments: Any, **how: Any) -> Any:
        if adv_estimator != NAME:
            return compute_advantage(data, adv_estimator, *arguments, **how)
        estimate = core_algos.get_adv_estimator_fn(NAME)
        if "response_mask" not in data.batch.keys():  # noqa: SIM118 - a TensorDict
            data.batch["response_mask"] = ray_trainer.compute_response_mask(data)
        data.batch["advantages"], data.batch["returns"] = estimate(
            token_level_rewards=data.batch["token_level_rewards"],
            response_mask=data.batch["response_mask"],
            config=how.get("config"),
            index=data.non_tensor_batch["uid"],
            non_tensor_batch=data.non_tensor_batch,
        )
        return data

    return wrapped


core_algos.register_adv_est(NAME)(compute_crbc_advantage)
ray_trainer.compute_advantage = _with_identities(ray_trainer.compute_advantage)
