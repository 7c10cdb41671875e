"""Which files a command was given, in which order, and how to open each.

Paths, directories, quoted globs, `@list.txt` and `-` become `Source`s. File names sort naturally
(9 before 10). Compression and container are found by their first bytes, never by the suffix.
"""

import functools
import glob
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
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


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key under which digit runs compare by value: `9.jsonl` before `10.jsonl`."""
    parts = re.split(r"(\d+)", text)
    return [(1, int(p), p) if p.isdigit() else (0, 0, p) for p in parts if p]


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

    def digest(self) -> str:
        """XXH3-128 of the bytes on disk, 32 hex digits: identifies this input in metadata."""
        import xxhash

        state = xxhash.xxh3_128()
        with self.path.open("rb") as file:
            while block := file.read(_COPY_BYTES):
                state.update(block)
        return state.hexdigest()


def resolve(inputs: Sequence[str], stdin: IO[bytes] | None = None) -> list[Source]:
    """Sources in the order they will be read.

    Args:
      inputs: paths, directories, globs, `@list` files or `-`; empty means stdin if it is piped.
      stdin: stream used for `-`; the process's own by default.
    Raises:
      InputError: nothing matches, a path is missing, or a container is not recognised.
      OptionError: no input given and stdin is a terminal.
    """
    if not inputs:
        if stdin is None and sys.stdin.isatty():
            raise OptionError("no log given", todo="name a file, a directory or pipe one in")
        inputs = ["-"]
    names = list(_expand(inputs))
    if names.count("-") > 1:
        raise OptionError("stdin (-) is given more than once")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"{twice} is given more than once", todo="name each log once")
    return [_stdin_source(stdin) if name == "-" else _file_source(name) for name in names]


def _expand(inputs: Iterable[str]) -> Iterable[str]:
    for item in inputs:
        path = Path(item)
        if item == "-":
            yield item
        elif item.startswith("@") and not path.exists():
            yield from _expand(_read_list(item[1:]))
        elif path.is_dir():
            found = sorted(
                (
                    str(p)
                    for p in path.rglob("*")
                    if p.name.endswith(_LOG_SUFFIXES) and not _is_own_output(p) and p.is_file()
                ),
                key=natural_key,
            )
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


def _is_own_output(path: Path) -> bool:
    """Credit tables written beside their input are not logs."""
    return ".credit." in path.name or path.name.startswith(".")


def _read_list(name: str) -> list[str]:
    try:
        text = Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"list of inputs cannot be read ({error})", name) from error
    return [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]


def _file_source(name: str) -> Source:
    path = Path(name)
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", name) from error
    return _from_head(name, path, head)


def _stdin_source(stdin: IO[bytes] | None) -> Source:
    """Spools stdin to a temporary file: Parquet needs seeking, and rows are read twice."""
    path = _temporary(stdin or sys.stdin.buffer)
    with path.open("rb") as file:
        return _from_head("-", path, file.read(8))


def _from_head(name: str, path: Path, head: bytes) -> Source:
    if head.startswith(b"PAR1"):
        return Source(name, path, "parquet")
    compression = (
        "gzip"
        if head.startswith(b"\x1f\x8b")
        else "zstd"
        if head.startswith(b"\x28\xb5\x2f\xfd")
        else None
    )
    if compression is None:
        return Source(name, path, "jsonl")
    packed = Source(name, path, "jsonl", compression)
    with packed.open() as stream:
        try:
            inner = stream.read(4)
        except OSError as error:
            raise InputError(f"cannot be decompressed ({error})", name) from error
    if inner != b"PAR1":
        return packed
    with packed.open() as stream:
        return Source(name, _temporary(stream), "parquet")


def _temporary(stream: IO[bytes]) -> Path:
    """Copies a stream to a file that is removed when the program ends."""
    handle, name = tempfile.mkstemp(dir=_temporary_folder().name)
    with os.fdopen(handle, "wb") as file:
        shutil.copyfileobj(stream, file, _COPY_BYTES)
    return Path(name)


@functools.cache
def _temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="crbc-")
