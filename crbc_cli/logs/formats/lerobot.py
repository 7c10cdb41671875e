"""LeRobot data sets, version 3: a folder, or one of its Parquet files.

Writer: lerobot 0.4.4, lerobot/datasets. `data/chunk-000/file-000.parquet` has one row per frame
with frame_index, episode_index, task_index, `observation.*`, `action` and, where a policy acted,
`next.reward`, `next.done`, `next.success`; `meta/tasks.parquet` names the tasks. Camera pictures
are video files or struct columns and no part of the observation here.
"""

from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks
from crbc_cli.logs.sources import natural_key
from crbc_cli.notes import counted

__all__ = ["DATASET", "FILE"]

_FRAME = {"frame_index", "episode_index", "task_index"}


def _is_dataset(dump: Dump) -> bool:
    info = dump.path / "meta" / "info.json"
    return (
        dump.container == "folder"
        and info.is_file()
        and b'"codebase_version"' in info.read_bytes()
        and (dump.path / "data").is_dir()
    )


def _read_dataset(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    files = sorted((dump.path / "data").rglob("*.parquet"), key=lambda p: natural_key(str(p)))
    if not files:
        raise InputError("holds no data/*.parquet", dump.name)
    frames = [dump.child(str(path.relative_to(dump.path))).table for path in files]
    table = pl.concat(frames, how="diagonal_relaxed")
    tasks = dump.path / "meta" / "tasks.parquet"
    names = _tasks(dump.child("meta/tasks.parquet").table) if tasks.is_file() else {}
    return _steps(table, names, remarks)


def _tasks(table: pl.DataFrame) -> dict[int, str]:
    """Task number -> text; pandas stores the text as an index column."""
    texts = [name for name in table.columns if table[name].dtype == pl.String]
    if not texts or "task_index" not in table.columns:
        return {}
    return dict(zip(table["task_index"].to_list(), table[texts[0]].to_list(), strict=True))


def _steps(table: pl.DataFrame, tasks: dict[int, str], remarks: Remarks) -> pl.DataFrame:
    seen = [name for name in table.columns if name.startswith("observation.")]
    shown = [name for name in seen if isinstance(table[name].dtype, pl.Struct)]
    states = [name for name in seen if name not in shown]
    if shown:
        remarks.say("images", f"{', '.join(shown)} left out: pictures are no part of the anchor")
    if not states:
        raise InputError("has no observation.* column but pictures", remarks.name)
    members = [_listed(table, name).alias(name.removeprefix("observation.")) for name in states]
    observation = members[0] if len(members) == 1 else pl.struct(members)
    last = pl.col("episode_index") != pl.col("episode_index").shift(-1, fill_value=-1)
    marked = "next.done" in table.columns
    over = _scalar(table, "next.done").cast(pl.Boolean) if marked else last
    columns = {
        "group_id": pl.col("task_index"),
        "rollout_id": pl.col("episode_index"),
        "step": pl.col("frame_index"),
        "observation": observation,
        "action": _listed(table, "action"),
        "done": last & over,
        "truncated": last & ~over,
        "source_record": pl.int_range(pl.len(), dtype=pl.Int64),
    }
    if "next.reward" in table.columns:
        columns["reward"] = _scalar(table, "next.reward").cast(pl.Float64)
    if "next.success" in table.columns:
        columns["success"] = _scalar(table, "next.success").cast(pl.Boolean)
        remarks.say("outcome", "success is next.success of the last frame")
    if tasks:
        columns["prompt"] = pl.col("task_index").replace_strict(tasks, default=None)
    made = table.select(**columns)
    cut = int(made["truncated"].sum())
    if cut:
        remarks.say("cut", f"{counted(cut, 'rollout')} cut: the last frame is not next.done")
    return made


def _listed(table: pl.DataFrame, name: str) -> pl.Expr:
    column = pl.col(name)
    return column.arr.to_list() if isinstance(table[name].dtype, pl.Array) else column


def _scalar(table: pl.DataFrame, name: str) -> pl.Expr:
    """A feature of shape (1,) may be stored as a list."""
    column = _listed(table, name)
    return column.list.first() if isinstance(table[name].dtype, pl.List | pl.Array) else column


_WHERE: dict[str, Any] = {
    "writer": "lerobot 0.4.4, data set version 3.0",
    "group": "`task_index`",
    "rollout": "`episode_index`",
    "step": "`frame_index`",
    "state": "`observation.*` but pictures",
}

DATASET = Format(
    name="lerobot",
    title="LeRobot data set",
    recognises=_is_dataset,
    read=_read_dataset,
    whole_folder=True,
    **_WHERE,
)
FILE = Format(
    name="lerobot-file",
    title="LeRobot frames",
    recognises=lambda dump: dump.keys >= _FRAME,
    read=lambda dump, remarks: _steps(_frames(dump), {}, remarks),
    **_WHERE,
)


def _frames(dump: Dump) -> pl.DataFrame:
    if dump.container == "parquet":
        return dump.table
    return pl.DataFrame([record for _, record in dump.records()], infer_schema_length=None)
