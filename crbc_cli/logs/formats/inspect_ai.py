"""Inspect: `.eval` archives, `.json` logs, and samples as JSON lines.

Writer: inspect_ai 0.3.285, inspect_ai/log. An archive has one member per sample,
`samples/{id}_epoch_{n}.json`, or a folder `samples/{id}_epoch_{n}/` with `sample.json` and numbered
chunks of messages and attachments; `message_refs` of the former are half-open ranges of messages.
Strings `attachment://KEY` stand for what `attachments` holds. An assistant message whose source is
`input` was prepared. The outcome is the score named success, or the only one, if all its values are
C, I, true, false, 1 or 0.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.archive import Archive
from crbc_cli.logs.formats.conversation import conversation_rows
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.endings import Endings
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table
from crbc_cli.logs.sources import natural_key

__all__ = ["FORMAT"]

_SAMPLE = {"id", "epoch", "input", "messages", "scores"}
_MEMBER = re.compile(r"samples/(?P<name>.+_epoch_\d+)(?:\.json|/sample\.json)")
_PROTOCOL = "attachment://"
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # inspect_ai.scorer.value_to_float


def _recognises(dump: Dump) -> bool:
    if dump.container == "zip":
        return any(name in ("header.json", "_journal/start.json") for name in dump.files)
    if dump.keys >= _SAMPLE:
        return True
    return {"eval", "plan", "samples"} <= dump.keys and isinstance(dump.first["samples"], list)


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    samples = list(_samples(dump))
    scorer = _scorer([sample for _, sample in samples], remarks)
    endings = Endings()
    rows: list[dict[str, Any]] = []
    for index, sample in samples:
        where = f"{dump.where(index)} sample {sample.get('id')} epoch {sample.get('epoch')}"
        if sample.get("error") or sample.get("invalidation"):
            endings.failed["error" if sample.get("error") else "invalidated"] += 1
            continue
        limit = _limit(sample)
        scores = _scores(sample)
        value = scores.get(scorer.name)
        made = conversation_rows(
            sample["messages"],
            group_id=required(sample, "id", where),
            rollout_id=required(sample, "epoch", where),
            record=index,
            where=where,
            reward=value if isinstance(value, float) else None,
            success=bool(value) if scorer.binary and value is not None else None,
            truncated=bool(limit),
            acts=lambda message: message.get("source") != "input",
            extra={f"score_{name}": scores[name] for name in scores}
            | {"sample_uuid": sample.get("uuid")},
        )
        if made and limit:
            endings.cut[limit] += 1
        endings.empty += not made
        rows += made
    endings.tell(remarks)
    if any(isinstance(row["group_id"], str) for row in rows):
        rows = [row | {"group_id": str(row["group_id"])} for row in rows]
    return step_table(dump, rows, remarks)


# --- scores ---------------------------------------------------------------------------------------


class _Scorer(msgspec.Struct):
    """Which score counts; no name if none does.

    Attributes:
      binary: its values are outcomes.
    """

    name: str
    binary: bool


def _scorer(samples: Sequence[Mapping[str, Any]], remarks: Remarks) -> _Scorer:
    values: dict[str, list[Any]] = {}
    for sample in samples:
        for name, value in _scores(sample).items():
            values.setdefault(name, []).append(value)
    name = "success" if "success" in values else next(iter(values), "")
    if len(values) > 1 and name != "success":
        remarks.say(
            "outcome",
            f"several scores: {', '.join(sorted(values))}; name the outcome, as --success-when "
            f'"score_{sorted(values)[0]} >= 1"',
        )
        return _Scorer("", False)
    binary = bool(name) and all(value in (0.0, 1.0) for value in values[name])
    if binary:
        remarks.say("outcome", f"success is score {name}: 1, C or true")
    elif name:
        remarks.say(
            "outcome", f'score {name} is graded; name the outcome, as --success-when '
            f'"score_{name} >= 1"',
        )  # fmt: skip
    return _Scorer(name, binary)


def _scores(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> value as a number where it is one; values with members, one entry per member."""
    found: dict[str, Any] = {}
    for name, score in (sample.get("scores") or {}).items():
        value = score.get("value") if isinstance(score, Mapping) else score
        if isinstance(value, Mapping):
            found |= {f"{name}_{key}": _number(member) for key, member in value.items()}
        else:
            found[name] = _number(value)
    return found


def _number(value: Any) -> Any:
    if isinstance(value, str):
        return _LETTERS.get(value, value)
    return float(value) if isinstance(value, bool | int | float) else value


def _limit(sample: Mapping[str, Any]) -> str:
    limit = sample.get("limit")
    return str(limit.get("type") if isinstance(limit, Mapping) else limit or "")


# --- samples --------------------------------------------------------------------------------------


def _samples(dump: Dump) -> Iterator[tuple[int, dict[str, Any]]]:
    """(record, sample) with its messages whole and without attachments."""
    if dump.container == "zip":
        archive = Archive(dump.path, dump.name)
        found = (_MEMBER.fullmatch(name) for name in sorted(archive.names, key=natural_key))
        for index, member in enumerate(filter(None, found)):
            yield index, _whole(archive, member, dump.name)
        return
    for index, record in dump.records():
        for sample in record.get("samples") or () if "samples" in record else (record,):
            yield index, _resolved(sample, sample.get("attachments") or {})


def _whole(archive: Archive, member: re.Match[str], name: str) -> dict[str, Any]:
    sample = _json(archive, member[0], name)
    if not member[0].endswith("/sample.json"):
        return _resolved(sample, sample.get("attachments") or {})
    prefix = member[0].removesuffix("sample.json")
    messages = _sequence(archive, f"{prefix}messages/", name)
    chosen = [m for start, end in sample.get("message_refs") or () for m in messages[start:end]]
    kept = dict(enumerate(_sequence(archive, f"{prefix}attachments/", name)))
    return _resolved(sample | {"messages": chosen}, {str(k): v for k, v in kept.items()})


def _json(archive: Archive, member: str, name: str) -> Any:
    try:
        return msgspec.json.decode(archive.read(member))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"member {member} is no JSON ({error})", name) from error


def _sequence(archive: Archive, prefix: str, name: str) -> list[Any]:
    """Items of the chunks `{prefix}{start}.json`, in order."""
    chunks = [m for m in archive.names
              if m.startswith(prefix) and m[len(prefix) : -5].isdecimal()]  # fmt: skip
    return [item for m in sorted(chunks, key=natural_key) for item in _json(archive, m, name)]


def _resolved(sample: dict[str, Any], attachments: Mapping[str, Any]) -> dict[str, Any]:
    return sample | {"messages": _filled(sample.get("messages") or [], attachments)}


def _filled(value: Any, attachments: Mapping[str, Any]) -> Any:
    """The value with what its references stand for."""
    if isinstance(value, str) and value.startswith(_PROTOCOL):
        return attachments.get(value.removeprefix(_PROTOCOL), value)
    if isinstance(value, list):
        return [_filled(item, attachments) for item in value]
    if isinstance(value, Mapping):
        return {key: _filled(member, attachments) for key, member in value.items()}
    return value


FORMAT = Format(
    name="inspect",
    title="Inspect log",
    writer="inspect_ai 0.3.285, .eval and .json",
    recognises=_recognises,
    read=_read,
    group="sample `id`",
    rollout="`epoch`",
    step="assistant message",
    state="last user or tool message",
)
