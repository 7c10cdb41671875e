"""The files that `crbc adapter` prints: a trainer's loader or its log hook, verbatim."""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from crbc_cli.errors import OptionError

__all__ = ["HOOKS", "LOADERS", "adapter"]

LOADERS: Mapping[str, str] = MappingProxyType(
    {
        "verl-agent": "verl_agent",
        "verl": "verl",
        "slime": "slime",
        "rllm": "rllm",
        "trl": "trl",
        "skyrl": "skyrl",
        "tinker": "tinker",
        "prime-rl": "prime_rl",
    }
)
"""Trainer -> module in `loaders/`."""

HOOKS: Mapping[str, str] = MappingProxyType(
    {
        "verl-agent": "verl_agent",
        "verl": "verl",
        "slime": "slime",
        "rllm": "rllm",
        "trl": "trl",
        "skyrl": "skyrl",
        "tinker": "tinker",
        "ms-swift": "ms_swift",
        "areal": "areal",
        "nemo-rl": "nemo_rl",
    }
)
"""Trainer -> module in `hooks/`."""


def adapter(name: str, *, hook: bool = False) -> str:
    """Source text to drop into a trainer's own code.

    Args:
      name: the trainer.
      hook: the function that logs steps, instead of the one that loads credit.
    Raises:
      OptionError: no such trainer, or it has no such file.
    """
    kind, known, other = ("hook", HOOKS, LOADERS) if hook else ("loader", LOADERS, HOOKS)
    if name not in known:
        if name in other:
            todo = "its own dump can be read" if hook else "there is a log hook: add --hook"
            raise OptionError(f"{name} has no {kind}", todo=todo)
        raise OptionError(
            f"trainer {name!r} is not known",
            todo=f"use one of {', '.join(dict.fromkeys((*LOADERS, *HOOKS)))}",
        )
    path = files(f"crbc_cli.trainers.{kind}s") / f"{known[name]}.py"
    return path.read_text("utf-8")
