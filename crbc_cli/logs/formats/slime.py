"""slime samples: `--save-debug-rollout-data`, `--dump-details`, or the same as JSON.

Writer: slime 0.3.1 (624b824a8), `torch.save({"rollout_id": …, "samples": [Sample.to_dict(), …]})`.
A sample has a group (`group_index`) and a rollout (`rollout_id`, null: its `index`); samples with
one rollout_id were cut from one compacted rollout and have one reward. There is no state and no
step index but in `metadata`, where ports of GiGPO put `anchor_obs`, `traj_uid`, `turn_index`,
`step_immediate_reward` and `episode_reward`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from crbc_cli.errors import OutcomeError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table
from crbc_cli.logs.formats.unpickle import Stranger
from crbc_cli.notes import counted

__all__ = ["FORMAT"]

_UNFINISHED = ("pending",)
_CUT = ("truncated", "aborted", "failed")

Row = dict[str, Any]


def _recognises(dump: Dump) -> bool:
    if not isinstance(dump.first, Mapping):
        return False
    if {"rollout_id", "samples"} <= set(dump.first):
        return isinstance(dump.first["samples"], list)
    return {"group_index", "index", "status"} <= set(dump.first)


def _samples(dump: Dump) -> Iterator[tuple[int, Any]]:
    for index, record in dump.records():
        if isinstance(record, Mapping) and "samples" in record:
            yield from enumerate(record["samples"])
        else:
            yield index, record


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rollouts: dict[tuple[Any, Any], list[Row]] = defaultdict(list)
    ends: dict[str, int] = defaultdict(int)
    for index, sample in _samples(dump):
        row = _row(sample, index, dump.where(index))
        ends[row["status"]] += 1
        if row["status"] not in _UNFINISHED:
            rollouts[row["group_id"], row["rollout_id"]].append(row)
    for steps in rollouts.values():
        _number(steps)
        _refuse_unequal(steps, dump)
    rows = [row for steps in rollouts.values() for row in steps]
    rows.sort(key=lambda row: row["source_record"])
    _tell(rows, ends, remarks)
    return step_table(dump, rows, remarks)


def _row(sample: Any, index: int, where: str) -> Row:
    metadata = sample.get("metadata") or {} if isinstance(sample, Mapping) else {}
    group = required(sample, "group_index", where)
    rollout = sample.get("rollout_id")
    reward = sample.get("reward")
    status = sample.get("status")
    row: Row = {
        "group_id": group,
        "rollout_id": metadata.get("traj_uid", sample["index"] if rollout is None else rollout),
        "step": metadata.get("turn_index"),
        "observation": metadata.get("anchor_obs"),
        "action": sample.get("response"),
        "reward": metadata.get("step_immediate_reward", None if _graded(reward) else reward),
        "has_own_reward": "step_immediate_reward" in metadata,
        "prompt": sample.get("prompt"),
        "response": sample.get("response"),
        "response_len": sample.get("response_length"),
        "sample_index": sample.get("index"),
        "status": str(status.args[0]) if isinstance(status, Stranger) else str(status),
        "source_record": index,
    }
    if _graded(reward):
        row |= {f"reward.{name}": value for name, value in reward.items()}
    else:
        row["sample_reward"] = reward
    for name in ("branch_key", "episode_reward"):
        if name in metadata:
            row[name] = metadata[name]
    return row


def _graded(reward: Any) -> bool:
    """With --reward-key a reward is several numbers."""
    return isinstance(reward, Mapping)


def _number(steps: list[Row]) -> None:
    """Numbers samples that have no turn_index, and marks how the rollout ended."""
    if any(row["step"] is None for row in steps):
        steps.sort(key=lambda row: row["sample_index"])
        for number, row in enumerate(steps):
            row["step"] = number
    steps.sort(key=lambda row: row["step"])
    for row in steps:
        last = row is steps[-1]
        cut = steps[-1]["status"] in _CUT
        row |= {"done": last and not cut, "truncated": last and cut}


def _refuse_unequal(steps: Sequence[Row], dump: Dump) -> None:
    """Samples cut from one rollout have its reward; steps with rewards of their own need not."""
    first = steps[0]
    for row in steps:
        same = row.get("sample_reward") == first.get("sample_reward")
        if not (same or row["has_own_reward"]):
            raise OutcomeError(
                f"samples of rollout {first['rollout_id']} have rewards "
                f"{first['sample_reward']} and {row['sample_reward']}",
                f"{dump.where(first['source_record'])} and {dump.where(row['source_record'])}",
                "samples cut from one rollout must have its outcome",
            )
    for row in steps:
        del row["has_own_reward"]


def _tell(rows: Sequence[Row], ends: Mapping[str, int], remarks: Remarks) -> None:
    for status in _UNFINISHED:
        if ends.get(status):
            remarks.say(
                "unfinished", f"{counted(ends[status], 'sample')} with status {status} left out"
            )
    cut = sum(ends.get(status, 0) for status in _CUT)
    if cut:
        remarks.say("cut", f"{counted(cut, 'sample')} with status {', '.join(_CUT)}, taken for cut")
    if all(row["observation"] is None for row in rows):
        remarks.say(
            "no_state",
            "no metadata.anchor_obs, so no row has an anchor: group advantages alone",
            warning=True,
        )
    several = {name for row in rows for name in row if name.startswith("reward.")}
    judged = min(several) if several else "sample_reward"
    remarks.say_no_outcome(f"{judged} >= 1")


FORMAT = Format(
    name="slime",
    title="slime samples",
    writer="slime 0.3.1 (624b824a8)",
    recognises=_recognises,
    read=_read,
    group="`group_index`",
    rollout="`rollout_id`, else `index`; `metadata.traj_uid`",
    step="`metadata.turn_index`, else the order of `index`",
    state="`metadata.anchor_obs`",
)
