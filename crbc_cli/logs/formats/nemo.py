"""NeMo-Gym rollouts and NeMo-RL's training dump.

NeMo-Gym (nemo-gym 0.4.0, nemo_gym/rollout_collection.py): one rollout per line as items of the
Responses API. Failed rollouts are in a file of their own beside it, `NAME_failures.jsonl`, and the
inputs in `NAME_materialized_inputs.jsonl`; rollouts that were killed are nowhere. Items between two
tool outputs are one step: what the model made in one go.

NeMo-RL (7ea279abf): `train_data_step{N}.jsonl` from batches of one, so that values are lists of
length 1 with padded rows, and texts without roles.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from crbc_cli.logs.formats.conversation import conversation_rows
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.endings import Endings
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table, unwrapped

__all__ = ["GYM", "RL"]

_SCALARS = (str, int, float, bool)


def _read_gym(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    endings = Endings()
    for index, record in dump.records():
        where = dump.where(index)
        if "_ng_failure_class" in record:
            endings.failed[str(record["_ng_failure_class"])] += 1
            continue
        response = record.get("response")
        if not isinstance(response, Mapping):  # materialized inputs
            endings.empty += 1
            continue
        limit = (response.get("incomplete_details") or {}).get("reason")
        given = (record.get("responses_create_params") or {}).get("input")
        prompt = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
        made = conversation_rows(
            [*_messages(prompt), *_messages(response.get("output") or [])],
            group_id=required(record, "_ng_task_index", where),
            rollout_id=record.get("_ng_rollout_index", index),
            record=index,
            where=where,
            reward=record.get("reward"),
            truncated=bool(limit),
            acts=_after(prompt),
            extra={k: v for k, v in record.items() if k != "reward" and isinstance(v, _SCALARS)},
        )
        if made and limit:
            endings.cut[str(limit)] += 1
        endings.empty += not made
        rows += made
    endings.failed += _failures_beside(dump)
    endings.tell(remarks)
    return step_table(dump, rows, remarks)


def _after(prompt: Sequence[Any]) -> Any:
    """Only what stands in the response is an action."""
    shown = {id(item) for item in prompt}
    return lambda message: message.get("first") not in shown


def _failures_beside(dump: Dump) -> Counter[str]:
    given = Path(dump.name)
    beside = given.with_name(f"{given.stem}_failures.jsonl")
    if dump.name == "-" or not beside.is_file() or given.stem.endswith("_failures"):
        return Counter()
    failures = Dump(_source(beside), skip_bad_lines=True).records()
    return Counter(f"{r.get('_ng_failure_class')}, in {beside.name}" for _, r in failures)


def _source(path: Path) -> Any:
    from crbc_cli.logs.sources import file_source

    return file_source(str(path))


def _messages(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Items of the Responses API as chat messages: what the model made in a row is one message."""
    messages: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "reasoning" or (kind != "message" and not kind.endswith("_output")):
            _own(messages, item)
            if kind != "reasoning":
                messages[-1].setdefault("tool_calls", []).append(item)
        elif kind == "message" and item.get("role") == "assistant":
            _own(messages, item)
            messages[-1]["content"] += _parts(item.get("content"))
        elif kind == "message":
            messages.append({**item, "content": _parts(item.get("content"))})
        else:
            messages.append({"role": "tool", "content": item.get("output")})
    return messages


def _own(messages: list[dict[str, Any]], item: Any) -> None:
    """Makes the last message one of the model's."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": [], "first": id(item)})


def _parts(content: Any) -> list[Any]:
    return [content] if isinstance(content, str) else list(content or [])


GYM = Format(
    name="nemo-gym",
    title="NeMo-Gym rollouts",
    writer="nemo-gym 0.4.0, rollouts jsonl",
    recognises=lambda dump: "_ng_task_index" in dump.keys,
    read=_read_gym,
    group="`_ng_task_index`",
    rollout="`_ng_rollout_index`",
    step="items up to a tool's output",
    state="tool outputs",
)


def _read_rl(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for index, record in dump.records():
        content = required(record, "content", dump.where(index))
        texts = [str(text) for text in content] if isinstance(content, list) else [str(content)]
        mask = _row(record, "token_loss_mask")
        advantages = _row(record, "advantages")
        acted = [a for a, m in zip(advantages, mask, strict=False) if m]
        rows.append(
            {
                "rollout_id": unwrapped(record.get("idx", index)),
                "step": 0,
                "observation": None,
                "action": None,
                "reward": unwrapped(record.get("rewards")),
                "prompt": texts[0] if texts else None,
                "response": "\n".join(texts[1:]),
                "logged_advantage": sum(acted) / len(acted) if acted else None,
                "trained": unwrapped(record.get("sample_loss_mask")),
                "trained_tokens": sum(map(bool, mask)),
                "length": unwrapped(record.get("input_lengths")),
                "source_record": index,
            }
        )
    remarks.say("lists", "lists of length 1 unwrapped; logged_advantage is the mean over the mask")
    return step_table(dump, rows, remarks)


def _row(record: Mapping[str, Any], name: str) -> list[Any]:
    """The padded row in a list of length 1."""
    rows = record.get(name)
    return list(rows[0]) if isinstance(rows, list) and rows and isinstance(rows[0], list) else []


RL = Format(
    name="nemo-rl",
    title="NeMo-RL training data",
    writer="NeMo-RL (7ea279abf), train_data_step{N}.jsonl",
    recognises=lambda dump: {"token_loss_mask", "content"} <= dump.keys,
    read=_read_rl,
    rollout="`idx`",
    lacks="a row is one token sequence and its texts without roles: no group (equal prompts or "
    "blocks), no steps, no end flags",
)
