"""The formats that `crbc` knows, in the order in which they are tried."""

from crbc_cli.errors import OptionError
from crbc_cli.logs.formats import (
    agent_r1,
    art,
    chat,
    completions,
    flat,
    harbor,
    inspect_ai,
    lerobot,
    minari,
    nemo,
    openrlhf,
    prime_rl,
    ragen,
    rlds,
    rllm,
    selective_rollout,
    slime,
    step_rows,
    tau,
    tinker,
    traces,
    trinity,
    vagen,
    verifiers,
    verl,
    verl_agent,
)
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format

__all__ = ["FORMATS", "STEP_TABLE", "format_named", "recognise"]

STEP_TABLE = "table"
"""What `--from` calls a step table that needs no turning into one."""

FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        step_rows.FORMAT,
        verl_agent.TRANSITIONS,
        verl_agent.STEPS,
        verl_agent.LLM_STEPS,
        verl_agent.VALIDATION,
        vagen.FORMAT,
        selective_rollout.FORMAT,
        trinity.FORMAT,
        agent_r1.FORMAT,
        rllm.FORMAT,
        slime.FORMAT,
        completions.AREAL,
        completions.MS_SWIFT,
        completions.TRL,
        completions.SKYRL,
        verl.V1,
        verl.LEGACY,
        verl.NAMELESS,
        ragen.EVALUATION,
        ragen.CACHE,
        tau.TAU,
        tau.TAU2,
        flat.FORMAT,
        traces.EPISODES,
        traces.TRACES,
        prime_rl.FOLDER,
        prime_rl.STREAM,
        verifiers.FORMAT,
        nemo.GYM,
        nemo.RL,
        art.FORMAT,
        tinker.FORMAT,
        tinker.LENGTHS,
        harbor.TRIAL,
        harbor.TRAJECTORY,
        inspect_ai.FORMAT,
        minari.DATASET,
        minari.ROWS,
        minari.HDF5,
        lerobot.DATASET,
        lerobot.FILE,
        rlds.RLDS,
        rlds.D4RL,
        openrlhf.FORMAT,
        chat.AGENTGYM,
        chat.CHAT,
    )
}  # fmt: skip
"""Formats by name; a dump is of the first that recognises it."""


def format_named(name: str) -> Format | None:
    """The format that `--from` names; None for step tables.

    Raises:
      OptionError: no format has this name.
    """
    if name == STEP_TABLE:
        return None
    if name not in FORMATS:
        raise OptionError(
            f"--from {name!r} is no known format", todo=f"use one of {', '.join(names())}"
        )
    return FORMATS[name]


def names() -> list[str]:
    """All values of `--from`."""
    return [STEP_TABLE, *FORMATS]


def recognise(dump: Dump) -> Format | None:
    """The first format that recognises a dump."""
    return next((known for known in FORMATS.values() if known.recognises(dump)), None)
