"""How each trainer names the rows that credit goes back to, as data."""

from dataclasses import dataclass

from crbc_cli.errors import OptionError

__all__ = ["MADE_OF", "TARGETS", "TENSORS", "Key", "Target", "target_named"]


@dataclass(frozen=True, slots=True)
class Key:
    """One column of a trainer's row identity.

    Attributes:
      name: its name in the emitted table, and what `--map NAME=COLUMN` sets.
      columns: columns of the log it is read from; the first that the log has.
      otherwise: what it is made of in a log without them: a column of the credit table,
        "position" (place inside the rollout by step, from 0), "group_id_rollout_id_step" (the
        three joined by underscores), or "" if nothing can stand in for it.
      meaning: what the trainer calls it.
    """

    name: str
    columns: tuple[str, ...]
    otherwise: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Target:
    """One trainer that credit is emitted for.

    Attributes:
      name: as typed after `--emit`.
      title: the trainer's own name.
      keys: its row identity.
    """

    name: str
    title: str
    keys: tuple[Key, ...]

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return tuple(key.name for key in self.keys)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            "verl-agent",
            "verl-agent",
            (
                Key("uid", ("uid",), "group_id", "non_tensor_batch['uid']"),
                Key("traj_uid", ("traj_uid",), "rollout_id", "non_tensor_batch['traj_uid']"),
                Key("position", ("position",), "position", "place of the row inside traj_uid"),
            ),
        ),
        Target(
            "verl",
            "verl",
            (Key("key", ("uid",), "group_id_rollout_id_step", "{uid}_{rollout}_{output index}"),),
        ),
        Target(
            "slime",
            "slime",
            (Key("sample_index", ("sample_index", "index"), "", "Sample.index"),),
        ),
        Target(
            "rllm",
            "rLLM",
            (
                Key("episode_id", ("episode_id",), "", "Episode.id"),
                Key("trajectory_index", ("trajectory_index",), "", "place in trajectories"),
                Key("step_index", ("step_index",), "step", "place in Trajectory.steps"),
            ),
        ),
        Target(
            "trl",
            "TRL, ms-swift",
            (
                Key("file", ("file",), "source_file", "file of completions"),
                Key("row", ("row", "source_record"), "source_row", "completion in that file"),
            ),
        ),
        Target(
            "skyrl",
            "SkyRL",
            (
                Key("instance_id", ("instance_id",), "group_id", "TrajectoryID.instance_id"),
                Key("repetition_id", ("repetition_id",), "rollout_id", "its repetition_id"),
            ),
        ),
        Target(
            "tinker",
            "Tinker cookbook",
            (
                Key("group_idx", ("group_idx",), "group_id", "place of the group in the batch"),
                Key("traj_idx", ("traj_idx",), "rollout_id", "place in trajectories_G"),
                Key("step_idx", ("step_idx",), "step", "place in Trajectory.transitions"),
            ),
        ),
        Target(
            "prime-rl",
            "prime-rl, verifiers",
            (
                Key("trace_id", ("trace_id",), "rollout_id", "Trace.id"),
                Key("node_index", ("node_index",), "", "place in Trace.nodes"),
            ),
        ),
    )
}
"""Trainer -> the identity of its rows (formats at the versions named in the README)."""

MADE_OF: dict[str, str] = {
    "position": "the order of steps in the rollout",
    "group_id_rollout_id_step": "group_id, rollout_id and step, joined by _",
    "": "nothing: it must be logged",
}
"""`Key.otherwise` in words, where it is no column's name."""

TENSORS = ("safetensors", "pt")
"""`--emit` targets that are plain vectors."""


def target_named(name: str) -> Target | None:
    """The trainer of an `--emit` name; None for plain vectors.

    Raises:
      OptionError: no such target.
    """
    if name in TENSORS:
        return None
    if name not in TARGETS:
        raise OptionError(
            f"--emit {name!r} is not known", todo=f"use one of {', '.join((*TARGETS, *TENSORS))}"
        )
    return TARGETS[name]
