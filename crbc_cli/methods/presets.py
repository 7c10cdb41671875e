"""Conventions of trainers and of the CRBC paper, set all at once (`--like`).

A preset sets how the group advantage is computed; options of a method (its norm, its weights) are
the method's own. Sources: verl and verl-agent `verl/trainer/ppo/core_algos.py` and
`agent_system/reward_manager/episode.py`; TRL `GRPOTrainer`; tinker-cookbook
`rl/data_processing.py`; CRBC (arXiv 2609.35082), section 5.1 and appendix C.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from crbc_cli.errors import OptionError
from crbc_cli.options import GroupAdvantageOptions

__all__ = ["PRESETS", "Preset", "apply_preset"]


@dataclass(frozen=True)
class Preset:
    """One set of conventions.

    Attributes:
      name: as typed after `--like`.
      summary: whose they are.
      settings: values of `GroupAdvantageOptions`, all that matter being named.
      audit: the method whose advantage such a trainer logs.
      penalty_if_logged: the penalty applies where the log has `is_action_valid`, and its absence
        means that every action was valid.
    """

    name: str
    summary: str
    settings: Mapping[str, Any] = field(hash=False)
    audit: str = "grpo"
    penalty_if_logged: bool = False


def _settings(
    *,
    episode_stats: str = "rollout",
    estimator: str = "grpo",
    eps: float = 1e-6,
    invalid_penalty: str = "none",
    success_reward: float = 1.0,
    singleton: str,
) -> dict[str, Any]:
    return {
        "episode_stats": episode_stats,
        "estimator": estimator,
        "ddof": 1,
        "eps": eps,
        "invalid_penalty": invalid_penalty,
        "penalty": 0.1,
        "penalty_unit": "row",
        "success_reward": success_reward,
        "singleton": singleton,
    }


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("verl", "verl: one response is one row", _settings(singleton="raw")),
        Preset(
            "verl-agent",
            "verl-agent and its forks: every row has a vote, success is worth 10",
            _settings(
                episode_stats="rows", invalid_penalty="both", success_reward=10.0, singleton="raw"
            ),
            penalty_if_logged=True,
        ),
        Preset("trl", "TRL: eps 1e-4", _settings(eps=1e-4, singleton="zero")),
        Preset(
            "tinker",
            "tinker-cookbook: the mean is subtracted, nothing divided",
            _settings(estimator="dr-grpo", singleton="zero"),
            audit="dr-grpo",
        ),
        Preset(
            "paper",
            "CRBC: one vote per rollout, success is worth 10, invalid rows cost 0.1 in A_G",
            _settings(invalid_penalty="trajectory", success_reward=10.0, singleton="zero"),
            audit="crbc",
            penalty_if_logged=True,
        ),
    )
}
"""By name. Only the group advantage is scaled: the closure and its floor work on 0/1 outcomes."""


def apply_preset(
    name: str, options: GroupAdvantageOptions, *, validity_logged: bool = True
) -> GroupAdvantageOptions:
    """The run's options with a preset's values in place of their own; `reward` is kept.

    Args:
      name: of a preset.
      options: the run's.
      validity_logged: the log has `is_action_valid`.
    Raises:
      OptionError: no such preset.
    """
    preset = PRESETS.get(name)
    if preset is None:
        raise OptionError(f"--like {name!r} is not known", todo=f"use one of {', '.join(PRESETS)}")
    settings = dict(preset.settings)
    if preset.penalty_if_logged and not validity_logged:
        settings["invalid_penalty"] = "none"
    return replace(options, **settings)
