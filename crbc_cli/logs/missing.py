"""The error for required columns that an input lacks: all at once, with what to do for each."""

from collections.abc import Collection, Sequence

from crbc_cli.errors import ColumnError
from crbc_cli.logs.columns import Field
from crbc_cli.logs.read import available_columns
from crbc_cli.logs.sources import Source

__all__ = ["missing_columns"]

_SHOWN = 12
_ALIASES: dict[str, tuple[str, ...]] = {
    "group_id": ("group", "gid", "uid", "task_id", "prompt_id"),
    "rollout_id": (
        *("rollout", "traj_uid", "trajectory_id", "traj_id", "trajectory", "traj"),
        *("episode_id", "episode", "ep", "rid"),
    ),
    "step": ("t", "turn", "turn_id", "turn_idx", "step_id", "step_idx", "timestep", "env_step"),
    "observation": ("obs", "observations", "state"),
    "action": ("act", "actions"),
    "success": ("won", "is_success", "succeeded", "solved"),
    "reward": ("rewards",),
    "is_action_valid": ("valid", "action_valid"),
}
"""Step-table column -> names under which loggers write it. They are suggested, never assumed."""

_OTHERWISE = {
    "group_id": " or --group-by COLUMN",
    "step": " or --order-by file",
    "action": " or --action COLUMN",
}


def missing_columns(source: Source, fields: Sequence[Field]) -> ColumnError:
    """One error for all required fields that the input does not have.

    Args:
      source: the input.
      fields: at least one.
    """
    names = available_columns(source)
    have = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "") if names else "none"
    columns = list(dict.fromkeys(field.column for field in fields))
    kind = "column" if len(columns) == 1 else "columns"
    rule = source.outcome_rule or "reward >= 1"
    todo = [_todo(field, names, rule) for field in fields]
    if source.format and any(field.name.startswith("anchor:") for field in fields):
        todo.append("--method grpo needs no anchors")
    return ColumnError(
        f"has no {kind} {', '.join(columns)} (columns: {have})",
        source.name,
        "; ".join(dict.fromkeys(todo)),
    )


def _todo(field: Field, names: Collection[str], rule: str) -> str:
    """How to say where a column is; names the column where one of a known name is there."""
    kind, _, label = field.name.rpartition(":")
    canonical = field.column if kind == "anchor" else label
    alias = next((name for name in _ALIASES.get(canonical, ()) if name in names), "COLUMN")
    mapped = f"--map {canonical}={alias}"
    match kind:
        case "anchor":
            return f"{mapped} or --anchor COLUMN" if canonical in _ALIASES else "--anchor COLUMN"
        case "by":
            return "--group-by COLUMN"
        case "key":
            return "--key COLUMN"
        case "rule":
            return f"another column than {field.column} in --success-when"
        case "number" | "column":
            return f"another column in place of {field.column}"
    if label == "success":
        return f'for the outcome {mapped} or --success-when "{rule}"'
    return mapped + _OTHERWISE.get(label, "")
