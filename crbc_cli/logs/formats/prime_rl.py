"""prime-rl: folders of `traces.jsonl`, whose records are those of `crbc_cli.logs.formats.traces`.

prime-rl 0.8.0 has `rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl`: `effective` repeats
what was trained on, so it is read as a flag. Since September 2026 it has `stream*.jsonl` chunks
(sealed ones in zstd) and `annotations/PRODUCER.jsonl` beside them; what those say of a trace's
nodes is joined by trace id. The layout of annotations is known from pull requests 3444 and 3465
alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks
from crbc_cli.logs.formats.traces import WHERE, Reading, add_episode, finished, mean
from crbc_cli.notes import counted

__all__ = ["FOLDER", "STREAM"]

_SETS = ("all", "effective")


def _sets(dump: Dump) -> list[str]:
    """Folders below a step's that hold traces, without the last part."""
    if dump.container != "folder":
        return []
    found = [kind for kind in ("train", "eval")
             if any((dump.path / kind / s / "traces.jsonl").is_file() for s in _SETS)]  # fmt: skip
    direct = any((dump.path / s / "traces.jsonl").is_file() for s in _SETS)
    return [*found, *([""] if direct else [])]


def _read_folder(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    reading = Reading()
    index = 0
    for kind in _sets(dump):
        folder = f"{kind}/" if kind else ""
        files = {s: f"{folder}{s}/traces.jsonl" for s in _SETS}
        present = {s: name for s, name in files.items() if (dump.path / name).is_file()}
        shipped = None
        if "effective" in present:
            effective = dump.child(present["effective"]).records()
            shipped = {t["id"] for _, r in effective for t in r.get("traces") or [r]}
        main = dump.child(present.get("all") or present["effective"])
        for line, record in main.records():
            episode = record if "traces" in record else {**record, "traces": [record]}
            more = {"kind": record.get("kind") or kind or None}
            first = len(reading.rows)
            add_episode(reading, episode, index, main.where(line), more)
            for row in reading.rows[first:]:
                row["effective"] = None if shipped is None else row["trace_id"] in shipped
            index += 1
    if any(row["effective"] is not None for row in reading.rows):
        remarks.say(
            "effective", "effective/ repeats traces of all/: read once, as column effective"
        )
    return finished(dump, reading, remarks)


def _is_stream(dump: Dump) -> bool:
    return dump.container == "folder" and bool(_chunks(dump))


def _chunks(dump: Dump) -> list[str]:
    return [n for n in dump.files
            if n.startswith("stream") and ".jsonl" in n and ".index." not in n]  # fmt: skip


def _read_stream(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    reading = Reading()
    index = 0
    for name in _chunks(dump):
        chunk = dump.child(name)
        for line, record in chunk.records():
            add_episode(reading, record, index, chunk.where(line))
            index += 1
    joined = _annotate(dump, reading.rows)
    if joined:
        remarks.say(
            "annotations",
            f"advantages of {counted(joined, 'step')} joined from annotations/ by trace id: "
            "column logged_advantage",
        )
    return finished(dump, reading, remarks)


def _annotate(dump: Dump, rows: Sequence[dict[str, Any]]) -> int:
    """Puts annotated advantages of nodes into the rows; how many."""
    places = {(row["trace_id"], row["node"]): row for row in rows}
    joined: set[tuple[Any, int]] = set()
    folder = dump.path / "annotations"
    for path in sorted(folder.glob("*.jsonl*")) if folder.is_dir() else []:
        if ".index." in path.name:
            continue
        for _, record in dump.child(f"annotations/{path.name}").records():
            for trace in record.get("traces") or [record]:
                name = trace.get("trace_id") or trace.get("id")
                for node, member in _numbered(trace.get("nodes")):
                    row = places.get((name, node))
                    value = mean(member.get("advantages")) if isinstance(member, Mapping) else None
                    if row is not None and value is not None:
                        row["logged_advantage"] = value
                        joined.add((name, node))
    return len(joined)


def _numbered(nodes: Any) -> Iterator[tuple[int, Any]]:
    """Nodes by number, from a list (`node` or the position) or an object by number."""
    if isinstance(nodes, Mapping):
        yield from ((int(key), member) for key, member in nodes.items() if str(key).isdecimal())
    for position, member in enumerate(nodes if isinstance(nodes, list) else []):
        named = member.get("node") if isinstance(member, Mapping) else None
        yield position if named is None else named, member


FOLDER = Format(
    name="prime-rl",
    title="prime-rl rollouts of a step",
    writer="prime-rl 0.8.0 (559b44772), rollouts/step_N",
    recognises=lambda dump: bool(_sets(dump)),
    read=_read_folder,
    whole_folder=True,
    **WHERE,
)
STREAM = Format(
    name="prime-rl-stream",
    title="prime-rl trace stream",
    writer="prime-rl, pull requests 3444 and 3465, monitors/file/traces",
    recognises=_is_stream,
    read=_read_stream,
    whole_folder=True,
    **WHERE,
)
