"""OpenPipe ART: one trajectory per row of `trajectories/{split}/{step}.parquet`, or older JSONL.

Writer: openpipe-art 0.5.18, art/utils/trajectory_logging.py (no file metadata), and 0.5.23, which
adds `format_version`, `trajectory_index` and the metadata `art.trajectory_parquet.version`. The
group index counts inside one file. Older logs are JSON lines of one group,
`{"trajectories": [{"messages": …, "reward": …}]}`. Only messages that the model made are trainable.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import polars as pl

from crbc_cli.logs.formats.conversation import conversation_rows
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.endings import Endings
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table

__all__ = ["FORMAT"]

_COLUMNS = {"group_index", "reward", "messages", "metrics", "logs"}


def _recognises(dump: Dump) -> bool:
    if dump.container == "parquet":
        return "art.trajectory_parquet.version" in dump.metadata or dump.keys >= _COLUMNS
    rollouts = dump.first.get("trajectories") if "trajectories" in dump.keys else None
    return (
        isinstance(rollouts, list)
        and bool(rollouts)
        and isinstance(rollouts[0], Mapping)
        and bool({"messages", "messages_and_choices"} & set(rollouts[0]))
    )


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    endings = Endings()
    for index, group, number, record in _trajectories(dump):
        where = dump.where(index)
        messages = record.get("messages") or record.get("messages_and_choices")
        if not messages:
            endings.empty += 1
            continue
        messages = [_message(m) for m in messages]
        trained = any(m.get("trainable") for m in messages)
        made = conversation_rows(
            messages,
            group_id=group,
            rollout_id=number,
            record=index,
            where=where,
            reward=required(record, "reward", where),
            acts=_acts(trained),
            extra=_members("metric", record.get("metrics"))
            | _members("metadata", record.get("metadata")),
        )
        endings.empty += not made
        rows += made
    endings.tell(remarks)
    return step_table(dump, rows, remarks)


def _acts(trained: bool) -> Any:
    """The model's own messages, where the log marks them."""
    return lambda message: bool(message.get("trainable")) or not trained


def _trajectories(dump: Dump) -> Iterator[tuple[int, Any, Any, Mapping[str, Any]]]:
    """(record, group, rollout, trajectory); an empty group has a row without a trajectory."""
    seen: dict[Any, int] = {}
    for index, record in dump.records():
        if "group_index" in record:
            group = record["group_index"]
            number = seen[group] = seen.get(group, -1) + 1
            given = record.get("trajectory_index")
            if record.get("messages") is None and given is None:
                continue
            yield index, group, number if given is None else given, record
        else:
            for number, inside in enumerate(required(record, "trajectories", dump.where(index))):
                yield index, index, number, inside


def _message(message: Any) -> Any:
    """A choice of the API holds its message inside, and the model made it."""
    if isinstance(message, Mapping) and "finish_reason" in message and "message" in message:
        return {**message["message"], "trainable": True}
    return message


def _members(prefix: str, value: Any) -> dict[str, Any]:
    """Members of an object, given as such or as JSON text, as columns."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return {}
    if not isinstance(value, Mapping):
        return {}
    return {f"{prefix}_{name}": member for name, member in value.items()}


FORMAT = Format(
    name="art",
    title="OpenPipe ART trajectories",
    writer="openpipe-art 0.5.18 and 0.5.23, trajectories/*.parquet; older JSONL",
    recognises=_recognises,
    read=_read,
    group="`group_index` (of the file)",
    rollout="`trajectory_index`, or order in the file",
    step="assistant message",
    state="last user or tool message",
)
