"""Tables -> files and pipes: whole or not at all."""

import base64
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import polars as pl

from crbc_cli.errors import OptionError, OutputError
from crbc_cli.logs.columns import holds_bytes

__all__ = ["METADATA_KEY", "Format", "Target", "parquet_metadata", "write_lines", "write_table"]

METADATA_KEY = "crbc"
Format = Literal["parquet", "jsonl", "arrow", "csv", "toml"]

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".csv": "csv",
}
# Row groups this small keep the writer's memory flat; the size never depends on threads.
_ROW_GROUP = 1 << 18


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
        if self.format in ("parquet", "arrow", "toml") or self.is_stream:
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

    def check(self) -> None:
        """Refuses before any work is done.

        Raises:
          OutputError: the file exists, its folder does not, or binary data would go to a terminal.
        """
        if self.is_stream:
            if self.name == "-" and self.format in ("parquet", "arrow") and sys.stdout.isatty():
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
                with self._stream() as stream:
                    yield stream
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
        handle = tempfile.NamedTemporaryFile(  # noqa: SIM115 - renamed, so not deleted
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
        )
        try:
            with handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            _take_place(handle.name, path)
        finally:
            Path(handle.name).unlink(missing_ok=True)


def _take_place(temporary: str, path: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(temporary, 0o666 & ~umask)
    os.replace(temporary, path)


@contextmanager
def _opened(target: Target, metadata: str) -> Iterator[IO[bytes]]:
    """The target's stream; metadata beside it appears together with it."""
    beside = target.beside
    with target.open() as stream, nullcontext() if beside is None else beside.open() as note:
        yield stream
        if note is not None:
            note.write(metadata.encode() + b"\n")


def write_table(
    frames: Sequence[pl.DataFrame], target: Target, metadata: Mapping[str, Any]
) -> None:
    """Writes frames of one schema as one table.

    Args:
      frames: at least one frame, in order; for JSONL columns may differ.
      target: destination.
      metadata: how the table was made; stored under the key `crbc` as JSON in Parquet and Arrow,
        beside the file as `NAME.meta.json` for JSONL and CSV.
    Raises:
      OutputError: it cannot be written, or has a column the format has no type for; nothing is
        left under the final name.
    """
    for frame in frames:
        _refuse_types(frame.schema, target)
    text = json.dumps(metadata, ensure_ascii=False, sort_keys=True)
    with _opened(target, text) as stream:
        match target.format:
            case "parquet":
                _write_parquet(frames, stream, text)
            case "arrow":
                _write_arrow(frames, stream, text)
            case "jsonl":
                for piece in _pieces(frames):
                    stream.write(piece.write_ndjson().encode())
            case "csv":
                for number, piece in enumerate(_pieces(frames)):
                    stream.write(piece.write_csv(include_header=number == 0).encode())


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
    with _opened(target, json.dumps(metadata, ensure_ascii=False, sort_keys=True)) as stream:
        for line in lines:
            stream.write(line)
            stream.write(b"\n")


def _write_parquet(frames: Sequence[pl.DataFrame], stream: IO[bytes], metadata: str) -> None:
    frame = pl.concat(frames, rechunk=False)
    # Through memory: polars reports a full disk or a closed pipe without the error's number.
    encoded = io.BytesIO()
    frame.write_parquet(
        encoded,
        compression="zstd",
        compression_level=3,
        row_group_size=_ROW_GROUP,
        metadata=parquet_metadata(frame, {METADATA_KEY: metadata}),
    )
    stream.write(encoded.getbuffer())


def parquet_metadata(frame: pl.DataFrame, metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata of a Parquet file, in its Arrow schema too: pyarrow and pandas show no other."""
    schema = frame.clear().to_arrow().schema.with_metadata(dict(metadata))
    return dict(metadata) | {
        "ARROW:schema": base64.b64encode(schema.serialize().to_pybytes()).decode()
    }


def _write_arrow(frames: Sequence[pl.DataFrame], stream: IO[bytes], metadata: str) -> None:
    import pyarrow as pa

    writer = None
    for frame in frames:
        table = frame.to_arrow().replace_schema_metadata({METADATA_KEY: metadata})
        writer = writer or pa.ipc.new_stream(stream, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _pieces(frames: Sequence[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Frames cut into pieces whose text fits in memory; an empty table is one empty piece."""
    for frame in frames:
        yield from frame.iter_slices(1 << 15) if frame.height else (frame,)
