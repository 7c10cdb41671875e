"""verifiers before 0.2: `results.jsonl`, one rollout per line.

Writer: verifiers 0.1.14, verifiers/utils/save_utils.py `state_to_output`; metrics stand once more
at the top level. Tool calls of older versions are JSON text. The rollouts of one example follow
each other in any order and have no id of their own. `error` is text, or an object since 0.1.10.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from crbc_cli.logs.formats.conversation import conversation_rows
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.endings import Endings
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table

__all__ = ["FORMAT"]


def _recognises(dump: Dump) -> bool:
    return {"example_id", "completion"} <= dump.keys


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    endings = Endings()
    seen: dict[Any, int] = {}
    for index, record in dump.records():
        where = dump.where(index)
        example = required(record, "example_id", where)
        number = seen[example] = seen.get(example, -1) + 1
        if record.get("error") is not None:
            endings.failed[_error_name(record["error"])] += 1
            continue
        prompt = _messages(record.get("prompt"), "user")
        made = conversation_rows(
            [*prompt, *_messages(record.get("completion"), "assistant")],
            group_id=example,
            rollout_id=number,
            record=index,
            where=where,
            reward=record.get("reward"),
            truncated=bool(record.get("is_truncated")),
            acts=_sampled_after(prompt),
            extra=_scalars(record),
        )
        _put_step_rewards(made, record.get("trajectory"))
        endings.empty += not made
        if made and record.get("is_truncated"):
            endings.cut[str(record.get("stop_condition") or "is_truncated")] += 1
        rows += made
    remarks.say("rollouts", "rollouts of an example are numbered in file order")
    endings.tell(remarks)
    return step_table(dump, rows, remarks)


def _messages(value: Any, role: str) -> list[Any]:
    """Messages; text of a completion-style environment is one message."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return value if isinstance(value, list) else []


def _sampled_after(prompt: list[Any]) -> Any:
    """Assistant messages of the prompt are examples."""
    prepared = set(map(id, prompt))
    return lambda message: id(message) not in prepared


def _scalars(record: Mapping[str, Any]) -> dict[str, Any]:
    metrics = record.get("metrics") or {}
    kept = {f"metric_{name}": value for name, value in metrics.items()}
    return kept | {"stop_condition": record.get("stop_condition")}


def _put_step_rewards(rows: list[dict[str, Any]], trajectory: Any) -> None:
    """Rewards of single steps, where the state column trajectory was saved."""
    if not isinstance(trajectory, list) or len(trajectory) != len(rows):
        return
    for row, step in zip(rows, trajectory, strict=True):
        row["step_reward"] = step.get("reward") if isinstance(step, Mapping) else None


def _error_name(error: Any) -> str:
    name = error.get("error") if isinstance(error, Mapping) else error
    return str(name).partition("(")[0] or "error"


FORMAT = Format(
    name="verifiers",
    title="verifiers results",
    writer="verifiers 0.1.14, results.jsonl",
    recognises=_recognises,
    read=_read,
    group="`example_id`",
    rollout="order in the file",
    step="assistant message",
    state="last user or tool message",
)
