"""Which files a command was given, in which order, and how to open each.

Paths, directories, quoted globs, `@list.txt` and `-` become `Source`s. File names sort naturally
(9 before 10). Compression and container are found by their first bytes, never by the suffix.
"""

import functools
import glob
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from crbc_cli.errors import InputError, OptionError
from crbc_cli.logs.scratch import scratch_folder

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "Source",
    "file_source",
    "input_names",
    "named_source",
    "natural_key",
    "refuse_changed",
    "resolve",
    "temporary_file",
]

_LOG_SUFFIXES = (
    ".parquet",
    ".jsonl",
    ".ndjson",
    ".jsonl.gz",
    ".jsonl.zst",
    ".ndjson.gz",
    ".ndjson.zst",
    ".parquet.gz",
    ".parquet.zst",
)
_DUMP_SUFFIXES = (
    *(".json", ".json.gz", ".json.zst", ".pt", ".pth", ".pkl"),
    *(".eval", ".db", ".sqlite", ".hdf5", ".h5"),
)
"""Files of a folder that count where they are a known dump: much else is called so."""

_COPY_BYTES = 1 << 20
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FOREIGN = {
    b"BZh": "bzip2 data; use gzip or zstd",
    b"\xfd7zXZ": "xz data; use gzip or zstd",
    b"PARE": "an encrypted Parquet file; decrypt it first",
    b"ARROW1": "an Arrow file; write it as Parquet",
    b"\xff\xff\xff\xff": "an Arrow stream; write it as Parquet",
    b"\xff\xfe": "UTF-16 text; write it as UTF-8",
    b"\xfe\xff": "UTF-16 text; write it as UTF-8",
}
"""First bytes -> what such a file is, and what to do."""

_CONTAINERS = {
    b"PAR1": "parquet",
    b"PK\x03\x04": "zip",
    b"SQLite f": "sqlite",
    b"\x89HDF": "hdf5",
    b"\x80": "pickle",
}
"""First bytes -> container. JSON that is no line per record is told by its first character."""

_TABLE = re.compile(rb"(?:\xef\xbb\xbf)?\"?[A-Za-z_][\w. -]*\"?[,;\t]")
"""A header line of CSV."""
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\[|\{\s*[\r\n])")
_HEAD_BYTES = 64


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key under which digit runs compare by value: `9.jsonl` before `10.jsonl`."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(p), p) if p.isdecimal() else (1, 0, p) for p in parts if p]


@dataclass(frozen=True, eq=False)
class Source:
    """One input.

    Attributes:
      name: the path as the user gave it, `-` for stdin; the credit table's `source_file`.
      path: a plain, seekable file with its content (a temporary copy for stdin, compressed
        Parquet and dumps of other programs, which are turned into step tables), or a folder.
      container: "parquet", "jsonl" or "memory"; before `crbc_cli.logs.open` has looked into it
        also "json", "zip", "sqlite", "hdf5", "pickle" or "folder".
      compression: "gzip", "zstd" or None; only for JSON, which is decompressed while read.
      frame: the rows themselves, for "memory".
      format: name of the format it was turned from, "" for a step table.
      records: container of the dump it was turned from.
      stateless: its format logs nothing that anchors could be made of.
      outcome_rule: what --success-when could be, where its reader found no outcome.
    """

    name: str
    path: Path
    container: str
    compression: str | None = None
    frame: "pl.DataFrame | None" = None
    format: str = ""
    records: str = ""
    stateless: bool = False
    outcome_rule: str = ""

    def open(self) -> IO[bytes]:
        """The decompressed bytes, from the start.

        Raises:
          InputError: the file cannot be opened.
        """
        try:
            if self.compression is None:
                return self.path.open("rb")
            import pyarrow as pa

            return io.BufferedReader(pa.input_stream(str(self.path), self.compression))
        except OSError as error:
            raise InputError(f"cannot be opened ({error.strerror or error})", self.name) from error

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Differs once the file was written to or replaced; zeros for rows in memory."""
        try:
            status = self.path.stat()
        except OSError:
            return 0, 0, 0
        return status.st_ino, status.st_size, status.st_mtime_ns

    def where(self, row: int) -> str:
        """Place of a source row, for messages; of a dump, its record."""
        if self.format:
            record = self._record[row]
            lines = self.records == "jsonl"
            return f"{self.name}:{record + 1}" if lines else f"{self.name} record {record}"
        return f"{self.name}:{row + 1}" if self.container == "jsonl" else f"{self.name} row {row}"

    @functools.cached_property
    def _record(self) -> "pl.Series":
        import polars as pl

        return pl.read_parquet(self.path, columns=["source_record"]).to_series()

    def changed(self) -> InputError:
        """The error for rows that are not those of the first reading."""
        return InputError("changed while it was read", self.name, "run again when it is complete")

    @functools.cached_property
    def digest(self) -> str:
        """XXH3-128 of the bytes as given, 32 hex digits: identifies this input in metadata."""
        import xxhash

        state = xxhash.xxh3_128()
        given = Path(self.name)
        inside = given.is_dir() and [p for p in sorted(given.rglob("*")) if p.is_file()]
        for path in inside or [given if given.is_file() else self.path]:
            with path.open("rb") as file:
                while block := file.read(_COPY_BYTES):
                    state.update(block)
        return state.hexdigest()

    def note_digest(self, digest: str) -> None:
        """Spares reading all of it once more, as somebody has."""
        self.__dict__["digest"] = digest


def refuse_changed(stamps: Mapping[Source, tuple[int, int, int]]) -> None:
    """Raises InputError for an input that has another stamp by now."""
    for source, stamp in stamps.items():
        if source.stamp != stamp:
            raise source.changed()


def resolve(
    inputs: str | Sequence[str],
    stdin: IO[bytes] | None = None,
    is_dump: Callable[[Path], bool] = lambda path: False,
) -> list[Source]:
    """Sources in the order they will be read.

    Args:
      inputs: paths, directories, globs, `@list` files or `-`; empty means stdin if it is piped;
        a string is one input.
      stdin: stream used for `-`; the process's own by default.
      is_dump: whether a folder is one input, or a file of a folder a known dump.
    Raises:
      InputError: nothing matches, a path is missing, or a container is not recognised.
      OptionError: no input given and stdin is a terminal.
    """
    return [named_source(name, stdin) for name in input_names(inputs, stdin, is_dump)]


def input_names(
    inputs: str | Sequence[str],
    stdin: IO[bytes] | None = None,
    is_dump: Callable[[Path], bool] = lambda path: False,
) -> list[str]:
    """The paths (or `-`) that inputs stand for; arguments and errors as those of `resolve`."""
    if not inputs:
        if stdin is None and sys.stdin.isatty():
            raise OptionError("no log given", todo="name a file, a directory or pipe one in")
        inputs = ["-"]
    names = list(_expand([inputs] if isinstance(inputs, str) else inputs, is_dump))
    _refuse_undecodable(names)
    _refuse_repeats(names)
    return names


def named_source(name: str, stdin: IO[bytes] | None = None) -> Source:
    """The source of a path or of `-`. Raises InputError as `file_source`."""
    return _stdin_source(stdin) if name == "-" else file_source(name)


def _refuse_undecodable(names: Sequence[str]) -> None:
    """Names stand in outputs and messages, so they must be text."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                "its name is not UTF-8", name, "rename it, or pipe its content in"
            ) from error


def _refuse_repeats(names: Sequence[str]) -> None:
    """The same bytes under two names would count twice."""
    seen: dict[tuple[int, int] | str, str] = {}
    for name in names:
        status = None if name == "-" else os.stat(name)
        file = name if status is None else (status.st_dev, status.st_ino)
        if file in seen:
            again = "" if seen[file] == name else f", also as {name}"
            raise OptionError(
                f"{seen[file]} is given more than once{again}", todo="name each log once"
            )
        seen[file] = name


def _expand(
    inputs: Iterable[str], is_dump: Callable[[Path], bool], lists: tuple[str, ...] = ()
) -> Iterable[str]:
    for item in inputs:
        path = Path(item)
        if item == "-":
            yield item
        elif not item:
            raise InputError("an input has an empty name", todo="name a file, a folder or -")
        elif item.startswith("@") and not path.exists():
            if item in lists:
                raise InputError("list of inputs names itself", item[1:])
            yield from _expand(_read_list(item[1:]), is_dump, (*lists, item))
        elif path.is_dir():
            if is_dump(path):
                yield item
                continue
            found = sorted(_logs_below(path, is_dump), key=natural_key)
            if not found:
                raise InputError("holds no .parquet or .jsonl file and no known dump", item)
            yield from found
        elif path.exists():
            yield item
        elif glob.has_magic(item):
            found = sorted(
                (
                    p
                    for p in glob.glob(item, recursive=True)
                    if os.path.isfile(p) and not _is_own_output(Path(p))
                ),
                key=natural_key,
            )
            if not found:
                raise InputError("matches no file", item)
            yield from found
        else:
            raise InputError("no such file or directory", item)


def _logs_below(folder: Path, is_dump: Callable[[Path], bool]) -> Iterator[str]:
    """Log files of a folder and of those inside it, hidden ones left out, and folders in it that
    are one dump.

    Raises:
      InputError: a folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise InputError(f"cannot be listed ({error.strerror})", str(error.filename)) from error

    for where, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if Path(where) != folder and is_dump(Path(where)):
            folders[:] = []
            yield where
            continue
        for path in (Path(where, name) for name in files):
            if _is_own_output(path) or not path.is_file():
                continue
            if path.name.endswith(_LOG_SUFFIXES) or (
                path.name.endswith(_DUMP_SUFFIXES) and is_dump(path)
            ):
                yield str(path)


def _is_own_output(path: Path) -> bool:
    """Credit tables written beside their input are not logs, and a filtered copy beside its log
    holds nothing that the log does not."""
    name = path.name
    copied = ".filtered." in name and path.with_name(name.replace(".filtered.", ".")).is_file()
    return copied or ".credit." in name or name.startswith(".") or name.endswith(".meta.json")


def _read_list(name: str) -> list[str]:
    try:
        lines = Path(name).read_text("utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(
            f"list of inputs cannot be read ({error.strerror or error})", name
        ) from error
    except UnicodeDecodeError as error:
        raise InputError("list of inputs is not UTF-8", name) from error
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise InputError("list of inputs is empty", name)
    return names


def file_source(name: str) -> Source:
    """The source of one existing path.

    Raises:
      InputError: it cannot be opened, or holds something else than a log.
    """
    path = Path(name)
    if path.is_dir():
        return Source(name, path, "folder")
    try:
        if not path.is_file():  # a pipe or a device gives its bytes once
            with path.open("rb") as stream:
                path = _temporary(stream, name)
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", name) from error
    return _from_head(name, path, head)


def _stdin_source(stdin: IO[bytes] | None) -> Source:
    """Spools stdin to a temporary file: Parquet needs seeking, and rows are read twice."""
    path = _temporary(stdin or sys.stdin.buffer, "-")
    if not path.stat().st_size:
        raise InputError("stdin is empty", "-", "name a log, or pipe one in")
    with path.open("rb") as file:
        return _from_head("-", path, file.read(_HEAD_BYTES))


def _from_head(name: str, path: Path, head: bytes) -> Source:
    known = next((kind for magic, kind in _CONTAINERS.items() if head.startswith(magic)), None)
    if known is not None:
        return Source(name, path, known)
    foreign = next((what for magic, what in _FOREIGN.items() if head.startswith(magic)), None)
    if foreign is not None:
        raise InputError(f"is neither JSONL nor Parquet but {foreign}", name)
    if _TABLE.match(head):
        raise InputError(
            "is neither JSONL nor Parquet but CSV",
            name,
            "write it as Parquet, for example with polars: read_csv, then write_parquet",
        )
    compression = next((c for magic, c in _COMPRESSIONS.items() if head.startswith(magic)), None)
    if compression is None:
        return Source(name, path, "json" if _JSON.match(head) else "jsonl")
    packed = Source(name, path, "jsonl", compression)
    with packed.open() as stream:
        inside = _read(stream, name, _HEAD_BYTES)
    if any(inside.startswith(magic) for magic in _COMPRESSIONS):
        raise InputError("is compressed twice", name, "unpack it once")
    known = next((kind for magic, kind in _CONTAINERS.items() if inside.startswith(magic)), None)
    if known is None:
        return replace(packed, container="json") if _JSON.match(inside) else packed
    with packed.open() as stream:
        return Source(name, _temporary(stream, name), known)


def _temporary(stream: IO[bytes], source: str) -> Path:
    """Copies a stream to a file that is removed when the program ends."""
    try:
        handle, name = tempfile.mkstemp(dir=scratch_folder())
        with os.fdopen(handle, "wb") as file:
            while block := _read(stream, source):
                file.write(block)
    except OSError as error:
        raise InputError(
            f"no room for a copy in {tempfile.gettempdir()} ({error.strerror or error})",
            source,
            "make room there, or set TMPDIR",
        ) from error
    return Path(name)


def temporary_file(suffix: str) -> Path:
    """A new empty file that is removed when the program ends."""
    handle, name = tempfile.mkstemp(suffix=suffix, dir=scratch_folder())
    os.close(handle)
    return Path(name)


def _read(stream: IO[bytes], source: str, size: int = _COPY_BYTES) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise InputError(
            f"cannot be read ({error})", source, "check that the writer finished it"
        ) from error
