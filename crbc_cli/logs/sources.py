"""Which files a command was given, in which order, and how to open each.

Paths, directories, quoted globs, `@list.txt` and `-` become `Source`s. File names sort naturally
(9 before 10). Compression and container are found by their first bytes, never by the suffix.
"""

import atexit
import functools
import glob
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from crbc_cli.errors import InputError, OptionError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Source", "natural_key", "resolve"]

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
_COPY_BYTES = 1 << 20
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FOREIGN = {
    b"BZh": "bzip2 data; use gzip or zstd",
    b"\xfd7zXZ": "xz data; use gzip or zstd",
    b"PK\x03\x04": "a zip archive; name the files in it",
    b"PARE": "an encrypted Parquet file; decrypt it first",
    b"ARROW1": "an Arrow file; write it as Parquet",
    b"\xff\xff\xff\xff": "an Arrow stream; write it as Parquet",
    b"\xff\xfe": "UTF-16 text; write it as UTF-8",
    b"\xfe\xff": "UTF-16 text; write it as UTF-8",
}
"""First bytes -> what such a file is, and what to do."""


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key under which digit runs compare by value: `9.jsonl` before `10.jsonl`."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(p), p) if p.isdecimal() else (1, 0, p) for p in parts if p]


@dataclass(frozen=True, eq=False)
class Source:
    """One input.

    Attributes:
      name: the path as the user gave it, `-` for stdin; the credit table's `source_file`.
      path: a plain, seekable file with its content (a temporary copy for stdin or compressed
        Parquet).
      container: "parquet", "jsonl" or "memory".
      compression: "gzip", "zstd" or None; only for JSONL, which is decompressed while read.
      frame: the rows themselves, for "memory".
    """

    name: str
    path: Path
    container: str
    compression: str | None = None
    frame: "pl.DataFrame | None" = None

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

    def where(self, row: int) -> str:
        """Place of a source row, for messages."""
        return f"{self.name}:{row + 1}" if self.container == "jsonl" else f"{self.name} row {row}"

    def changed(self) -> InputError:
        """The error for rows that are not those of the first reading."""
        return InputError("changed while it was read", self.name, "run again when it is complete")

    def digest(self) -> str:
        """XXH3-128 of the bytes as given, 32 hex digits: identifies this input in metadata."""
        import xxhash

        state = xxhash.xxh3_128()
        given = Path(self.name)
        with (given if given.is_file() else self.path).open("rb") as file:
            while block := file.read(_COPY_BYTES):
                state.update(block)
        return state.hexdigest()


def resolve(inputs: str | Sequence[str], stdin: IO[bytes] | None = None) -> list[Source]:
    """Sources in the order they will be read.

    Args:
      inputs: paths, directories, globs, `@list` files or `-`; empty means stdin if it is piped;
        a string is one input.
      stdin: stream used for `-`; the process's own by default.
    Raises:
      InputError: nothing matches, a path is missing, or a container is not recognised.
      OptionError: no input given and stdin is a terminal.
    """
    if not inputs:
        if stdin is None and sys.stdin.isatty():
            raise OptionError("no log given", todo="name a file, a directory or pipe one in")
        inputs = ["-"]
    names = list(_expand([inputs] if isinstance(inputs, str) else inputs))
    _refuse_undecodable(names)
    _refuse_repeats(names)
    return [_stdin_source(stdin) if name == "-" else _file_source(name) for name in names]


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


def _expand(inputs: Iterable[str], lists: tuple[str, ...] = ()) -> Iterable[str]:
    for item in inputs:
        path = Path(item)
        if item == "-":
            yield item
        elif not item:
            raise InputError("an input has an empty name", todo="name a file, a folder or -")
        elif item.startswith("@") and not path.exists():
            if item in lists:
                raise InputError("list of inputs names itself", item[1:])
            yield from _expand(_read_list(item[1:]), (*lists, item))
        elif path.is_dir():
            found = sorted(_logs_below(path), key=natural_key)
            if not found:
                raise InputError("holds no .parquet or .jsonl file", item)
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


def _logs_below(folder: Path) -> Iterator[str]:
    """Log files of a folder and of those inside it, hidden ones left out.

    Raises:
      InputError: a folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise InputError(f"cannot be listed ({error.strerror})", str(error.filename)) from error

    for where, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(where, name) for name in files):
            if path.name.endswith(_LOG_SUFFIXES) and not _is_own_output(path) and path.is_file():
                yield str(path)


def _is_own_output(path: Path) -> bool:
    """Credit tables written beside their input are not logs."""
    return ".credit." in path.name or path.name.startswith(".")


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


def _file_source(name: str) -> Source:
    path = Path(name)
    try:
        if not path.is_file():  # a pipe or a device gives its bytes once
            with path.open("rb") as stream:
                path = _temporary(stream, name)
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", name) from error
    return _from_head(name, path, head)


def _stdin_source(stdin: IO[bytes] | None) -> Source:
    """Spools stdin to a temporary file: Parquet needs seeking, and rows are read twice."""
    path = _temporary(stdin or sys.stdin.buffer, "-")
    if not path.stat().st_size:
        raise InputError("stdin is empty", "-", "name a log, or pipe one in")
    with path.open("rb") as file:
        return _from_head("-", path, file.read(8))


def _from_head(name: str, path: Path, head: bytes) -> Source:
    if head.startswith(b"PAR1"):
        return Source(name, path, "parquet")
    foreign = next((what for magic, what in _FOREIGN.items() if head.startswith(magic)), None)
    if foreign is not None:
        raise InputError(f"is neither JSONL nor Parquet but {foreign}", name)
    compression = next((c for magic, c in _COMPRESSIONS.items() if head.startswith(magic)), None)
    if compression is None:
        return Source(name, path, "jsonl")
    packed = Source(name, path, "jsonl", compression)
    with packed.open() as stream:
        inside = _read(stream, name, 4)
    if any(inside.startswith(magic) for magic in _COMPRESSIONS):
        raise InputError("is compressed twice", name, "unpack it once")
    if inside != b"PAR1":
        return packed
    with packed.open() as stream:
        return Source(name, _temporary(stream, name), "parquet")


def _temporary(stream: IO[bytes], source: str) -> Path:
    """Copies a stream to a file that is removed when the program ends."""
    try:
        handle, name = tempfile.mkstemp(dir=_temporary_folder())
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


def _read(stream: IO[bytes], source: str, size: int = _COPY_BYTES) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise InputError(
            f"cannot be read ({error})", source, "check that the writer finished it"
        ) from error


@functools.cache
def _temporary_folder() -> str:
    folder = tempfile.TemporaryDirectory(prefix="crbc-")
    atexit.register(folder.cleanup)
    return folder.name
