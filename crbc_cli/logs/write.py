"""Tables -> files and pipes: whole or not at all."""

import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from glob import escape as glob_escape
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal

import polars as pl

from crbc_cli.errors import OptionError, OutputError
from crbc_cli.logs.columns import holds_bytes
from crbc_cli.logs.encode import BLOCK_ROWS, Compression, Encoder, encoder
from crbc_cli.logs.scratch import remove_unlocked, unfinished

__all__ = [
    "METADATA_KEY",
    "Format",
    "TableWriter",
    "Target",
    "open_table",
    "table_metadata",
    "write_lines",
    "write_table",
]

METADATA_KEY = "crbc"
Format = Literal[
    "parquet", "jsonl", "arrow", "csv", "toml", "html", "svg", "png", "pdf", "safetensors", "pt"
]
_BINARY = ("parquet", "arrow", "safetensors", "pt", "png", "pdf")

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".csv": "csv",
}
_TEMPORARY = ".crbc.tmp"
_IN_MEMORY = 1 << 26


@dataclass(frozen=True)
class Target:
    """Where and how an output is written.

    Attributes:
      name: path, or `-` for stdout.
      format: container.
      force: replace an existing file.
      make_folder: make its folder if it does not exist.
    """

    name: str
    format: Format
    force: bool = False
    make_folder: bool = False

    @classmethod
    def parse(
        cls, name: str, to: str | None, force: bool, *, make_folder: bool = False
    ) -> "Target":
        """Format from `to`, else from the suffix; stdout defaults to Arrow.

        Raises:
          OptionError: the suffix says nothing and `to` is not given.
        """
        if to is not None:
            if to not in _SUFFIXES.values():
                raise OptionError(
                    f"--to {to!r} is not known",
                    todo=f"use one of {', '.join(dict.fromkeys(_SUFFIXES.values()))}",
                )
            return cls(name, to, force, make_folder)  # type: ignore[arg-type]
        if name == "-":
            return cls(name, "arrow", force)
        suffix = Path(name).suffix.lower()
        if suffix not in _SUFFIXES:
            raise OptionError(
                f"output {name} has no known suffix", todo="add --to parquet|jsonl|arrow|csv"
            )
        return cls(name, _SUFFIXES[suffix], force, make_folder)

    @property
    def beside(self) -> "Target | None":
        """Where metadata goes if the format has no place for it: `NAME.meta.json`."""
        if self.format not in ("jsonl", "csv") or self.is_stream:
            return None
        return Target(f"{self.name}.meta.json", "jsonl", self.force, self.make_folder)

    @property
    def place(self) -> str:
        """Its name in messages."""
        return "stdout" if self.name == "-" else self.name

    @property
    def is_stream(self) -> bool:
        """Stdout, a named pipe or a device: written as it comes, never replaced."""
        path = Path(self.name)
        return self.name == "-" or (path.exists() and not (path.is_file() or path.is_dir()))

    @property
    def exists(self) -> bool:
        """A file stands under its name."""
        return not self.is_stream and Path(self.name).is_file()

    def check(self) -> None:
        """Refuses before any work is done.

        Raises:
          OutputError: the file exists, its folder does not, stdout is closed, or binary data would
            go to a terminal.
        """
        if self.is_stream:
            if self.name == "-" and getattr(sys.stdout, "name", "") == os.devnull:  # see cli.main
                raise OutputError("stdout is closed", todo="name a file with -o")
            if self.name == "-" and self.format in _BINARY and sys.stdout.isatty():
                raise OutputError(
                    f"{self.format} is binary and stdout is a terminal",
                    todo="pipe it, or use --to jsonl",
                )
            return
        for target in filter(None, (self, self.beside)):
            target._check_path()

    def _check_path(self) -> None:
        path = Path(self.name)
        if path.is_dir():
            raise OutputError("is a directory", self.name, "name a file")
        if path.exists() and not self.force:
            raise OutputError("exists already", self.name, "use --force to replace it")
        if not self.make_folder and not path.absolute().parent.is_dir():
            raise OutputError("its folder does not exist", self.name, "make the folder first")

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """A binary stream; a file appears under its name only when complete and on disk.

        Raises:
          OutputError: it cannot be written.
        """
        try:
            if self.is_stream:
                # A pipe cannot take back what it was given before something went wrong.
                with tempfile.SpooledTemporaryFile(_IN_MEMORY) as whole:
                    yield whole
                    whole.seek(0)
                    with self._stream() as stream:
                        shutil.copyfileobj(whole, stream, 1 << 20)
                        stream.flush()
            else:
                with self._replacement() as stream:
                    yield stream
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(
                f"cannot be written ({error.strerror or error})",
                self.place,
                "check space and permissions",
            ) from error

    def _stream(self) -> AbstractContextManager[IO[bytes]]:
        return nullcontext(sys.stdout.buffer) if self.name == "-" else Path(self.name).open("wb")

    @contextmanager
    def _replacement(self) -> Iterator[IO[bytes]]:
        """A temporary file beside the final one, which it becomes once it is on disk."""
        path = Path(os.path.realpath(self.name))  # a link stays a link
        if self.make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}")
        with unfinished(temporary) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
            if self.beside is not None:  # it says how the old file was made
                Path(self.beside.name).unlink(missing_ok=True)
            _take_place(temporary, path)

    @property
    def interrupted(self) -> bool:
        """A run was killed after this file took its place and before its metadata did."""
        return self.beside is not None and not self.beside.exists and bool(self.beside._leftovers())

    def clean(self) -> bool:
        """Removes what killed runs left beside this file: temporary files nobody holds open.

        Returns:
          Whether none are left.
        """
        targets = filter(None, (self, self.beside))
        removed = [remove_unlocked(left) for t in targets for left in t._leftovers()]
        return all(removed)

    def _leftovers(self) -> list[Path]:
        path = Path(os.path.realpath(self.name))
        with suppress(OSError):
            return [*path.parent.glob(f".{glob_escape(path.name)}.*{_TEMPORARY}")]
        return []


def _read_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


_UMASK = _read_umask()
"""Once, while there is one thread: it cannot be read without being changed."""


def _take_place(temporary: Path, path: Path) -> None:
    os.chmod(temporary, 0o666 & ~_UMASK)
    os.replace(temporary, path)


@contextmanager
def _opened(target: Target) -> Iterator[tuple[IO[bytes], IO[bytes] | None]]:
    """The target's stream and that of the metadata beside it, which takes its place last."""
    with ExitStack() as last, ExitStack() as first:
        stream = first.enter_context(target.open())
        beside = target.beside
        yield stream, None if beside is None else last.enter_context(beside.open())


class TableWriter:
    """One table, written as its rows come; bytes do not depend on how they come."""

    def __init__(
        self,
        target: Target,
        stream: IO[bytes],
        note: IO[bytes] | None,
        block_rows: int,
        compression: Compression,
    ) -> None:
        self._target = target
        self._stream = stream
        self._note = note
        self._block_rows = block_rows
        self._compression = compression
        self._encoder: Encoder | None = None

    def write(self, frame: pl.DataFrame) -> None:
        """Appends rows; all frames have one schema, but for JSONL.

        Raises:
          OutputError: a column the format has no type for.
        """
        if self._encoder is None or self._target.format == "jsonl":
            _refuse_types(frame.schema, self._target)
        if self._encoder is None:
            self._encoder = encoder(
                self._target.format, self._stream, frame, self._block_rows, self._compression
            )
        self._encoder.write(frame)

    def line(self, line: bytes) -> None:
        """Appends one line of text."""
        self._stream.write(line)
        self._stream.write(b"\n")

    def finish(
        self, metadata: Mapping[str, Any], more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Ends the table; `metadata` says how it was made. It stands under the key `crbc` as JSON
        in Parquet and Arrow, beside the file as `NAME.meta.json` for JSONL and CSV. `more` are
        further keys of Parquet and Arrow."""
        keyed = table_metadata(metadata, more)
        if self._encoder is not None:
            self._encoder.finish(keyed)
            self._encoder = None
        if self._note is not None:
            self._note.write(keyed[METADATA_KEY].encode() + b"\n")

    def close(self) -> None:
        """Lets go of what was not finished."""
        if self._encoder is not None:
            self._encoder.abandon()


def table_metadata(metadata: Mapping[str, Any], more: Mapping[str, str]) -> dict[str, str]:
    """Keys of a Parquet or Arrow file; see `TableWriter.finish`."""
    return {METADATA_KEY: json.dumps(metadata, ensure_ascii=False, sort_keys=True), **more}


@contextmanager
def open_table(
    target: Target, block_rows: int = BLOCK_ROWS, compression: Compression = "zstd"
) -> Iterator[TableWriter]:
    """A writer for `target`, which appears under its name only when finished; rows of Parquet and
    Arrow are encoded `block_rows` at a time, Parquet with this compression.

    Raises:
      OutputError: it cannot be written.
    """
    with _opened(target) as (stream, note):
        writer = TableWriter(target, stream, note, block_rows, compression)
        try:
            yield writer
        finally:
            writer.close()


def write_table(
    frames: Iterable[pl.DataFrame], target: Target, metadata: Mapping[str, Any]
) -> None:
    """Writes at least one frame as one table; see `TableWriter`.

    Raises:
      OutputError: it cannot be written, or has a column the format has no type for; nothing is
        left under the final name.
    """
    with open_table(target) as writer:
        for frame in frames:
            writer.write(frame)
        writer.finish(metadata)


def _refuse_types(schema: Mapping[str, Any], target: Target) -> None:
    for name, dtype in schema.items():
        todo = "use --to parquet or arrow"
        if target.format == "csv":
            fits = not dtype.is_nested() and dtype not in (pl.Binary, pl.Duration)
        elif target.format == "jsonl":
            fits = not holds_bytes(dtype)
        else:
            fits, todo = not _holds_wide(dtype), "use --to jsonl"
        if not fits:
            raise OutputError(
                f"column {name} has type {dtype}, which {target.format} cannot hold",
                target.place,
                todo,
            )


def _holds_wide(dtype: Any) -> bool:
    """Whether values are whole numbers of 128 bits, at any depth: Arrow has none."""
    if isinstance(dtype, pl.Struct):
        return any(_holds_wide(field.dtype) for field in dtype.fields)
    inner = getattr(dtype, "inner", None)
    wide = dtype.is_integer() and str(dtype).endswith("128")
    return wide or (inner is not None and _holds_wide(inner))


def write_lines(lines: Iterable[bytes], target: Target, metadata: Mapping[str, Any]) -> None:
    """Writes JSON lines; metadata goes beside the file. Raises OutputError as `write_table`."""
    with open_table(target) as writer:
        for line in lines:
            writer.line(line)
        writer.finish(metadata)
