"""Trinity-RFT experiences: JSON lines, or an SQLite buffer.

Writer: trinity-rft 0.6.0. `Experience.to_dict` has `eid` {batch, task, run, step, suffix}; a group
is batch/task and one experience is one step. Workflows set run and step; those that do not leave
both 0, so that each experience is a rollout of its own. GiGPO's workflows put `env_state_hash` and
`step_reward` into `info`; RewardPropagation copies the final reward to all steps.

SQLite: tables NAME and NAME_blob(id, experience_bytes): "TRXP", u8 version 1, two little-endian
u64 lengths, pickled {"items": [fields]}, safetensors. Older buffers have one table with a pickled
object. Pickles are read without running them; tensors are not looked at.
"""

import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table
from crbc_cli.logs.formats.unpickle import Stranger, UnpickleError, load_pickle
from crbc_cli.notes import counted

__all__ = ["FORMAT"]

_MAGIC = b"TRXP"
_HEAD = struct.Struct("<4sBQQ")
_NUMBERED = {"batch", "task", "run", "step"}


def _recognises(dump: Dump) -> bool:
    if dump.container == "sqlite":
        try:
            return bool(_blob_table(dump))
        except InputError:
            return False
    eid = dump.first.get("eid") if "eid" in dump.keys else None
    return isinstance(eid, Mapping) and set(eid) >= _NUMBERED


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for index, experience in _experiences(dump):
        where = dump.where(index)
        eid = required(experience, "eid", where)
        info = experience.get("info") or {}
        row = {
            "group_id": f"{eid['batch']}/{eid['task']}",
            "rollout_id": eid["run"],
            "step": eid["step"],
            "observation": info.get("env_state_hash", experience.get("prompt_text")),
            "action": experience.get("response_text"),
            "reward": info.get("step_reward", experience.get("reward")),
            "prompt": experience.get("prompt_text"),
            "suffix": eid.get("suffix"),
            "experience_reward": experience.get("reward"),
            "truncate_status": experience.get("truncate_status"),
            "source_record": index,
        }
        rows.append(row)
    _number(rows, remarks)
    hashed = "info.env_state_hash" if _has(rows, dump) else "prompt_text"
    remarks.say("observation", f"observation is {hashed}")
    remarks.say_no_outcome("experience_reward >= 1")
    return step_table(dump, rows, remarks)


def _has(rows: list[dict[str, Any]], dump: Dump) -> bool:
    return any(row["observation"] != row["prompt"] for row in rows)


def _number(rows: list[dict[str, Any]], remarks: Remarks) -> None:
    """Rollouts of workflows that set neither run nor step, and end flags."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["group_id"]].append(row)
    unset = 0
    for members in groups.values():
        if len(members) > 1 and all(row["rollout_id"] == row["step"] == 0 for row in members):
            unset += 1
            for number, row in enumerate(members):
                row["rollout_id"] = number
    if unset:
        remarks.say(
            "run_unset",
            f"run and step are 0 throughout {counted(unset, 'task')}: each experience is taken "
            "for a rollout of its own",
            warning=True,
        )
    last: dict[tuple[Any, Any], int] = {}
    for row in rows:
        key = row["group_id"], row["rollout_id"]
        last[key] = max(last.get(key, row["step"]), row["step"])
    for row in rows:
        ends = row["step"] == last[row["group_id"], row["rollout_id"]]
        cut = row["truncate_status"] is not None
        row |= {"done": ends and not cut, "truncated": ends and cut}


def _experiences(dump: Dump) -> Iterator[tuple[int, Any]]:
    if dump.container != "sqlite":
        yield from dump.records()
        return
    table = _blob_table(dump)
    named = '"' + table.replace('"', '""') + '"'
    with closing(_connect(dump)) as database:
        try:
            blobs = database.execute(f"SELECT experience_bytes FROM {named} ORDER BY id")
            index = 0
            for (blob,) in blobs:
                for experience in _decoded(blob, dump.where(index)):
                    yield index, experience
                    index += 1
        except sqlite3.Error as error:
            raise InputError(f"cannot be read as SQLite ({error})", dump.name) from error


def _decoded(blob: bytes, where: str) -> list[Mapping[str, Any]]:
    """Fields of the experiences in one blob."""
    try:
        if not blob.startswith(_MAGIC):
            legacy = load_pickle(blob)
            return [_fields(one) for one in (legacy if isinstance(legacy, list) else [legacy])]
        _, version, length, _ = _HEAD.unpack_from(blob)
        if version != 1:
            raise InputError(f"holds experiences of version {version}, not 1", where)
        items = load_pickle(blob[_HEAD.size : _HEAD.size + length])["items"]
        return [_fields(item) for item in items]
    except (UnpickleError, struct.error, KeyError, TypeError) as error:
        raise InputError(f"holds an experience that cannot be read ({error})", where) from error


def _fields(value: Any) -> Mapping[str, Any]:
    """Members of a dict, or of an object that was pickled; its `eid` may be one too."""
    members = value.state if isinstance(value, Stranger) else value
    if not isinstance(members, Mapping):
        raise UnpickleError("is no experience")
    eid = members.get("eid")
    return {**members, "eid": eid.state} if isinstance(eid, Stranger) else members


def _connect(dump: Dump) -> sqlite3.Connection:
    return sqlite3.connect(f"{dump.path.resolve().as_uri()}?mode=ro", uri=True)


def _blob_table(dump: Dump) -> str:
    """The table that holds `experience_bytes`; "" if there is none.

    Raises:
      InputError: damaged, or several such tables.
    """
    try:
        with closing(_connect(dump)) as database:
            tables = database.execute(
                "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c "
                "WHERE m.type = 'table' AND c.name = 'experience_bytes' ORDER BY m.name"
            ).fetchall()
    except sqlite3.Error as error:
        raise InputError(f"cannot be read as SQLite ({error})", dump.name) from error
    if len(tables) > 1:
        several = ", ".join(name for (name,) in tables)
        raise InputError(f"holds several buffers ({several})", dump.name, "export one of them")
    return str(tables[0][0]) if tables else ""


FORMAT = Format(
    name="trinity",
    title="Trinity-RFT experiences",
    writer="trinity-rft 0.6.0",
    recognises=_recognises,
    read=_read,
    group="`eid.batch`/`eid.task`",
    rollout="`eid.run`",
    step="`eid.step`",
    state="`info.env_state_hash`, else the prompt",
)
