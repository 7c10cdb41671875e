"""rLLM episodes: one indented JSON file per episode, one folder per training step or evaluation.

Writer: rLLM 0.3.0.pre (9beb6e0f), `EpisodeLogger`, `Step.to_dict`; evaluation runs write the same
files below `episodes/`. `episode_id` is TASK:ROLLOUT, and the trainer groups by TASK and the
trajectory's name. `observation` often repeats the history. Episodes that end by a limit or an
error are cut, whatever `done` says on their last step.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, ending, required, step_table
from crbc_cli.notes import counted

__all__ = ["FORMAT"]

_FILE = re.compile(r"episode_.*\.json")
_ENDS = ("env_done", None)
"""Reasons that are no cut; others are max_turns_exceeded, max_response_length_exceeded,
max_prompt_length_exceeded, timeout, unknown and error."""


def _recognises(dump: Dump) -> bool:
    if dump.container == "folder":
        name = next(filter(_FILE.fullmatch, dump.files), None)
        return name is not None and _recognises(dump.child(name))
    return {"episode_id", "trajectories"} <= dump.keys


def _episodes(dump: Dump) -> Iterator[tuple[int, Any, str]]:
    """(index, episode, place); files of a folder in natural order."""
    if dump.container != "folder":
        for index, record in dump.records():
            yield index, record, dump.where(index)
        return
    for index, name in enumerate(filter(_FILE.fullmatch, dump.files)):
        child = dump.child(name)
        if not isinstance(child.first, Mapping):
            raise InputError("holds no episode", child.name, "check that the writer finished it")
        yield index, child.first, child.name


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    cuts: dict[str, int] = {}
    empty = 0
    for index, episode, where in _episodes(dump):
        task, _, rollout = str(required(episode, "episode_id", where)).rpartition(":")
        reason = episode.get("termination_reason")
        if reason not in _ENDS:
            cuts[reason] = cuts.get(reason, 0) + 1
        for number, trajectory in enumerate(required(episode, "trajectories", where)):
            steps = required(trajectory, "steps", where)
            empty += not steps
            name = trajectory.get("name")
            for t, step in enumerate(steps):
                last = t + 1 == len(steps)
                correct = episode.get("is_correct")
                ends = ending(last, success=correct, cut=reason not in _ENDS)
                rows.append(
                    {
                        "group_id": f"{task}:{name}" if name else task,
                        "rollout_id": f"{rollout}:{number}" if number else rollout,
                        "step": t,
                        "observation": step.get("observation"),
                        "action": step.get("action"),
                        "reward": step.get("reward"),
                        **ends,
                        "done": bool(step.get("done", ends["done"])) and not ends["truncated"],
                        "response": step.get("model_response"),
                        "episode_id": episode["episode_id"],
                        "trajectory_index": number,
                        "trajectory_reward": trajectory.get("reward"),
                        "training_step": episode.get("training_step"),
                        "termination_reason": reason,
                        "source_record": index,
                        **_advantage(step),
                    }
                )
    remarks.say("outcome", "success is is_correct of each episode")
    for reason, number in sorted(cuts.items()):
        remarks.say("cut", f"{counted(number, 'episode')} ended by {reason}, taken for cut")
    if empty:
        remarks.say(
            "empty_rollouts", f"{counted(empty, 'trajectory', 'trajectories')} without steps"
        )
    if dump.container != "folder" and len({row["episode_id"] for row in rows}) == 1:
        remarks.say(
            "one_episode",
            "one episode; its siblings are other files, so name their folder",
            warning=True,
        )
    return step_table(dump, rows, remarks)


def _advantage(step: Mapping[str, Any]) -> dict[str, float]:
    """The trainer's own advantage, where it is one number per step."""
    value = step.get("advantage")
    return {"advantage": float(value)} if isinstance(value, int | float) else {}


FORMAT = Format(
    name="rllm",
    title="rLLM episodes",
    writer="rLLM 0.3.0.pre (9beb6e0f)",
    recognises=_recognises,
    read=_read,
    group="`episode_id` before `:` and the trajectory's name",
    rollout="`episode_id` after `:`",
    step="list index",
    state="`observation`",
    whole_folder=True,
)
