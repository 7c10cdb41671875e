"""verl-agent and its forks: one row per environment step, as a hook saves it before batching.

Writer: verl-agent lineage (langfengQ; forks GraphGPO, HGPO, G2PO, RewardFlow, BEACON), which
agree on `uid`, `traj_uid`, `anchor_obs`, `rewards`, `active_masks`, `is_action_valid`,
`episode_rewards`, `episode_lengths`. There is no step index (rows of a rollout stand in order), no
end flag and, but in the forks named below, no outcome: a success is a reward of 10 there.

Forks: `*.wm_transitions.jsonl` (schema_version wm_transition_v1) has a step index, an end flag and
`episode_success`; GraphGPO adds `next_obs`, in which the text "success" ends a success, and
`text_actions`, the whole response; the W&B table `rollout/llm_steps` has prompts for states;
validation by trajectory has nothing that names siblings.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from crbc_cli.logs.formats.dataproto import row_keys, rows_of
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, ending, required, step_table
from crbc_cli.notes import counted

__all__ = ["LLM_STEPS", "STEPS", "TRANSITIONS", "VALIDATION"]

_WRITER = "verl-agent lineage (langfengQ), based on verl 0.3"
_STATES = ("anchor_obs", "wm_prev_obs_text", "prompt")
_ACTIONS = (
    *("action", "wm_action_text", "projected_action", "actions"),
    *("text_actions", "llm_output", "output", "response"),
)
_WHOLE_RESPONSES = {"text_actions", "llm_output", "output", "response"}
_FOLLOWING = ("next_obs", "wm_next_obs_text")
_KEPT = (
    *("global_step", "rollout_step", "env_index", "episode_rewards", "episode_lengths"),
    *("tool_callings", "index", "data_source"),
)

Row = dict[str, Any]


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows = [row | {"source_record": index} for index, row in rows_of(dump)]
    rows = _without_padding(rows, remarks)
    names = {name for row in rows for name in row}
    action = next((name for name in _ACTIONS if name in names), None)
    if action in _WHOLE_RESPONSES:
        remarks.say(
            "action",
            f"action is {action}, the whole response; --action-tag action takes what stands in "
            "<action>",
        )
    rollouts: dict[tuple[Any, Any], list[Row]] = defaultdict(list)
    for row in rows:
        where = dump.where(row["source_record"])
        uid, rollout = required(row, "uid", where), required(row, "traj_uid", where)
        rollouts[uid, rollout].append(row)
    rollouts = _without_copies(rollouts, remarks)
    counted_steps = _step_column(rollouts)
    remarks.say(
        "step",
        f"step is {counted_steps}" if counted_steps else "step is the position inside traj_uid",
    )
    succeeded = _outcomes(rollouts, names, remarks)
    made: list[Row] = []
    for key, steps in rollouts.items():
        for position, row in enumerate(steps):
            out = _step(row, action)
            out |= {"group_id": key[0], "rollout_id": key[1]}
            out["step"] = row[counted_steps] if counted_steps else position
            if succeeded is not None:
                out["success"] = position + 1 == len(steps) and succeeded[key]
            if counted_steps != "step" and "step" in row and "global_step" not in row:
                out["global_step"] = row["step"]
            made.append(out)
    made.sort(key=lambda row: row["source_record"])
    return step_table(dump, made, remarks)


def _step(row: Mapping[str, Any], action: str | None) -> Row:
    """The columns that need no other row."""
    out = {name: row[name] for name in _KEPT if name in row}
    state = next((name for name in _STATES if name in row), None)
    out["observation"] = None if state is None else row[state]
    out["action"] = None if action is None else row.get(action)
    following = next((name for name in _FOLLOWING if name in row), None)
    if following and row[following] != "success":
        out["next_observation"] = row[following]
    for name in ("reward", "rewards"):
        if name in row:
            out["reward"] = row[name]
    for name in ("done", "wm_done_after_action"):
        if name in row:
            out["done"] = row[name]
    if "is_action_valid" in row:
        out["is_action_valid"] = row["is_action_valid"]
    return out | {"source_record": row["source_record"]}


def _without_padding(rows: Sequence[Row], remarks: Remarks) -> list[Row]:
    active = [row for row in rows if row.get("active_masks", row.get("active", True))]
    if len(active) < len(rows):
        padding = counted(len(rows) - len(active), "inactive row")
        remarks.say("padding", f"{padding} left out (active_masks is false)")
    return active


def _without_copies(
    rollouts: dict[tuple[Any, Any], list[Row]], remarks: Remarks
) -> dict[tuple[Any, Any], list[Row]]:
    """Rows beyond `episode_lengths` that repeat an earlier one are copies made to fill a batch."""
    dropped = 0
    for key, steps in rollouts.items():
        length = steps[0].get("episode_lengths")
        if not isinstance(length, int | float) or len(steps) <= length:
            continue
        contents = [{k: v for k, v in row.items() if k != "source_record"} for row in steps]
        kept = [
            row
            for i, row in enumerate(steps)
            if i < length or contents[i] not in contents[: int(length)]
        ]
        dropped += len(steps) - len(kept)
        rollouts[key] = kept
    if dropped:
        remarks.say(
            "copies",
            f"{counted(dropped, 'row')} left out as copies that fill a batch: more rows than "
            "episode_lengths",
        )
    return rollouts


def _step_column(rollouts: Mapping[Any, Sequence[Row]]) -> str:
    """The column that counts steps: `wm_step_idx`, `rollout_step`, or a `step` that differs inside
    each rollout (verl's own `step` counts training steps)."""
    for name in ("wm_step_idx", "turn_idx", "rollout_step", "step"):
        values = [[row.get(name) for row in steps] for steps in rollouts.values()]
        if all(None not in v and len(set(v)) == len(v) for v in values) and (
            name != "step" or any(len(v) > 1 for v in values)
        ):
            return name
    return ""


def _outcomes(
    rollouts: Mapping[Any, Sequence[Row]], names: set[str], remarks: Remarks
) -> dict[Any, bool] | None:
    if "episode_success" in names:
        remarks.say("outcome", "success is episode_success")
        return {key: bool(steps[-1].get("episode_success")) for key, steps in rollouts.items()}
    ends = {key: steps[-1].get("next_obs") == "success" for key, steps in rollouts.items()}
    if any(ends.values()):
        remarks.say("outcome", 'success is a next_obs of "success" on the last row')
        return ends
    if "success" in names:
        remarks.say("outcome", "success is the column success")
        return {key: bool(steps[-1].get("success")) for key, steps in rollouts.items()}
    remarks.say_no_outcome("episode_rewards >= 10", " where a success is worth 10")
    return None


def _read_validation(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[Row] = []
    for index, record in dump.records():
        where = dump.where(index)
        steps = required(record, "steps", where)
        steps = sorted(steps, key=lambda step: required(step, "turn_index", where))
        for number, step in enumerate(steps):
            last = number + 1 == len(steps)
            rows.append(
                {
                    "rollout_id": required(record, "traj_uid", where),
                    "step": step["turn_index"],
                    "observation": step.get("input"),
                    "action": step.get("output"),
                    "reward": step.get("score"),
                    "prompt": steps[0].get("input"),
                    **ending(last, success=None, cut=False),
                    "episode_reward": record.get("episode_reward"),
                    "data_source": record.get("data_source"),
                    "global_step": record.get("step"),
                    "source_record": index,
                }
            )
    return step_table(dump, rows, remarks)


STEPS = Format(
    name="verl-agent",
    title="verl-agent step rows",
    writer=_WRITER,
    recognises=lambda dump: {"uid", "traj_uid", "anchor_obs"} <= row_keys(dump),
    read=_read,
    group="`uid`",
    rollout="`traj_uid`",
    step="row order",
    state="`anchor_obs`",
)

TRANSITIONS = Format(
    name="verl-agent-transitions",
    title="verl-agent world-model transitions",
    writer="verl-agent forks, schema_version wm_transition_v1",
    recognises=lambda dump: (
        {"schema_version", "wm_step_idx"} <= dump.keys
        and dump.first["schema_version"] == "wm_transition_v1"
    ),
    read=_read,
    group="`uid`",
    rollout="`traj_uid`",
    step="`wm_step_idx`",
    state="`wm_prev_obs_text`",
)

LLM_STEPS = Format(
    name="verl-agent-llm-steps",
    title="verl-agent rollout/llm_steps rows",
    writer="verl-agent forks, W&B table rollout/llm_steps",
    recognises=lambda dump: {"uid", "traj_uid", "llm_output", "prompt"} <= row_keys(dump),
    read=_read,
    group="`uid`",
    rollout="`traj_uid`",
    step="`rollout_step`",
    state="`prompt`",
)

VALIDATION = Format(
    name="verl-agent-validation",
    title="verl-agent validation rollouts",
    writer="verl-agent forks, validation by trajectory",
    recognises=lambda dump: {"traj_uid", "episode_reward", "steps"} <= dump.keys,
    read=_read_validation,
    rollout="`traj_uid`",
    step="`turn_index`",
    state="`input`",
    lacks="no uid says which rollouts had the same task",
    only_groups=True,
    hook="verl-agent",
)
