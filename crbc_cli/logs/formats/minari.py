"""Minari data sets: a folder (arrow, parquet or HDF5 inside), its HDF5 file, or its rows.

Writer: minari 0.5.4, minari/dataset/_storages. `data/metadata.json` describes the set;
`data/{episode}/part-0.arrow` (or `.parquet`) has T + 1 rows, since there is one more observation
than actions: everything else in the last row is padding. `data/main_data.hdf5` has a group
`episode_N` per episode. HDF5 files without such groups are flat tables, as D4RL has them.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.episodes import Episode, episode_table, flat_episodes
from crbc_cli.logs.formats.format import Format, Remarks
from crbc_cli.logs.sources import natural_key

__all__ = ["DATASET", "HDF5", "ROWS"]

_MAIN = "main_data.hdf5"
_PARTS = (".arrow", ".parquet")
_COLUMNS = {"observations", "actions", "rewards", "terminations", "truncations"}
_OUTCOMES = ("success", "is_success")
"""Members of infos that say the outcome."""


def _data_folder(dump: Dump) -> Path | None:
    """The folder with metadata.json, of the data set or itself."""
    if dump.container != "folder":
        return None
    for folder in (dump.path / "data", dump.path):
        described = folder / "metadata.json"
        if described.is_file() and b'"total_episodes"' in described.read_bytes():
            return folder
    return None


def _read_dataset(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    folder = _data_folder(dump)
    if folder is None:
        raise InputError("holds no data/metadata.json of Minari", dump.name)
    try:
        described = msgspec.json.decode((folder / "metadata.json").read_bytes())
    except msgspec.DecodeError as error:
        raise InputError(f"metadata.json is no JSON ({error})", dump.name) from error
    group = str(described.get("dataset_id") or dump.path.name)
    main = folder / _MAIN
    episodes = _hdf5_episodes(main, dump.name) if main.is_file() else _parts(folder)
    return episode_table(dump, episodes, group, remarks)


def _parts(folder: Path) -> Iterator[Episode]:
    for name in sorted((p.name for p in folder.iterdir() if p.is_dir()), key=natural_key):
        files = sorted(p for p in (folder / name).iterdir() if p.suffix in _PARTS)
        if not files or not name.isdecimal():
            continue
        table = pl.concat([_part(path) for path in files])
        about = folder / name / "metadata.json"
        seed = msgspec.json.decode(about.read_bytes()).get("seed") if about.is_file() else None
        yield _padded(table, int(name), seed)


def _part(path: Path) -> pl.DataFrame:
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path, hive_partitioning=False)
        return pl.read_ipc(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"cannot be read ({error})", str(path)) from error


def _padded(table: pl.DataFrame, number: int, seed: Any) -> Episode:
    """An episode from a table whose last row is padding but for its observation."""
    steps = max(table.height - 1, 0)
    infos = table["infos"] if "infos" in table.columns else None
    return Episode(
        number=number,
        observations=table["observations"],
        actions=table["actions"].head(steps),
        rewards=table["rewards"].head(steps).to_list(),
        terminated=table["terminations"].head(steps).to_list(),
        truncated=table["truncations"].head(steps).to_list(),
        success=_outcome(infos),
        seed=seed,
    )


def _outcome(infos: pl.Series | None) -> bool | None:
    """The last value of infos.success or infos.is_success."""
    if infos is None or not isinstance(infos.dtype, pl.Struct) or not len(infos):
        return None
    names = {f.name for f in infos.dtype.fields}
    name = next((n for n in _OUTCOMES if n in names), None)
    return None if name is None else _flag(infos.struct.field(name)[-1])


def _flag(value: Any) -> bool | None:
    while isinstance(value, pl.Series | list) and len(value) == 1:
        value = value[0]
    return bool(value) if isinstance(value, bool | int | float) else None


# --- HDF5 -----------------------------------------------------------------------------------------


def _h5py(name: str) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise InputError(
            "is an HDF5 file, which needs h5py", name, "pip install 'crbc-cli[hdf5]'"
        ) from error
    return h5py


def _read_hdf5(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    with _opened(dump.path, dump.name) as file:
        flat = "observations" in file
    group = Path(dump.name).stem
    if flat:
        return episode_table(dump, _flat(dump.path, dump.name), group, remarks)
    return episode_table(dump, _hdf5_episodes(dump.path, dump.name), group, remarks)


def _opened(path: Path, name: str) -> Any:
    try:
        return _h5py(name).File(path, "r")
    except OSError as error:
        raise InputError(f"cannot be read as HDF5 ({error})", name) from error


def _hdf5_episodes(path: Path, name: str) -> Iterator[Episode]:
    with _opened(path, name) as file:
        names = [n for n in file if n.startswith("episode_") and n[8:].isdecimal()]
        if not names:
            raise InputError("holds neither episodes nor observations", name)
        for episode in sorted(names, key=natural_key):
            group = file[episode]
            infos = group.get("infos", {})
            outcome = next((infos[n][-1] for n in _OUTCOMES if n in infos), None)
            seed = group.attrs.get("seed")
            yield Episode(
                number=int(episode[8:]),
                observations=_series(group["observations"]),
                actions=_series(group["actions"]),
                rewards=group["rewards"][:].tolist(),
                terminated=group["terminations"][:].tolist(),
                truncated=group["truncations"][:].tolist(),
                success=None if outcome is None else bool(outcome),
                seed=None if seed is None else int(seed),
            )


def _series(stored: Any) -> pl.Series:
    """One value per row; members of a group become members of the value."""
    if hasattr(stored, "keys"):
        return pl.DataFrame([_series(stored[k]).alias(k) for k in stored]).to_struct("value")
    values = stored[()].tolist()
    return pl.Series("value", [v.decode() if isinstance(v, bytes) else v for v in values])


def _flat(path: Path, name: str) -> Iterator[Episode]:
    with _opened(path, name) as file:
        absent = [n for n in ("actions", "rewards", "terminals") if n not in file]
        if absent:
            raise InputError(f"has no {', '.join(absent)}", name)
        timeouts = file["timeouts"][:].tolist() if "timeouts" in file else None
        yield from flat_episodes(
            _series(file["observations"]),
            _series(file["actions"]),
            file["rewards"][:].tolist(),
            file["terminals"][:].tolist(),
            timeouts,
        )


# --- rows -----------------------------------------------------------------------------------------


def _read_rows(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    """Rows of the arrow backend as JSON lines or one Parquet file, with the padding row."""
    records: dict[Any, list[Mapping[str, Any]]] = {}
    for _, record in dump.records():
        records.setdefault(record["episode_id"], []).append(record)
    episodes = [_of_records(number, rows) for number, rows in enumerate(records.values())]
    return episode_table(dump, episodes, Path(dump.name).stem, remarks)


def _of_records(number: int, rows: Sequence[Mapping[str, Any]]) -> Episode:
    steps = rows[:-1] if len(rows) > 1 else rows
    seen = rows if len(rows) > 1 else [*rows, {"observations": None}]
    ids = rows[0]["episode_id"]
    return Episode(
        number=ids if isinstance(ids, int) else number,
        observations=pl.Series("value", [row["observations"] for row in seen], strict=False),
        actions=pl.Series("value", [row["actions"] for row in steps], strict=False),
        rewards=[row["rewards"] for row in steps],
        terminated=[bool(row["terminations"]) for row in steps],
        truncated=[bool(row["truncations"]) for row in steps],
    )


_WHERE: dict[str, Any] = {
    "group": "the data set (`--key seed`)",
    "rollout": "episode",
    "step": "row",
    "state": "`observations`",
    "writer": "minari 0.5.4",
}

DATASET = Format(
    name="minari",
    title="Minari data set",
    recognises=lambda dump: _data_folder(dump) is not None,
    read=_read_dataset,
    whole_folder=True,
    **_WHERE,
)
ROWS = Format(
    name="minari-rows",
    title="Minari rows",
    recognises=lambda dump: {"episode_id", *_COLUMNS} <= dump.keys,
    read=_read_rows,
    **_WHERE,
)
HDF5 = Format(
    name="hdf5",
    title="HDF5 of Minari or D4RL",
    recognises=lambda dump: dump.container == "hdf5",
    read=_read_hdf5,
    **{
        **_WHERE,
        "writer": "minari 0.5.4; D4RL (observations, actions, rewards, terminals, timeouts)",
    },
)
