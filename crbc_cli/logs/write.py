"""Tables -> files and pipes: whole or not at all."""

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import polars as pl

from crbc_cli.errors import OptionError, OutputError

__all__ = ["METADATA_KEY", "Format", "Target", "write_lines", "write_table"]

METADATA_KEY = "crbc"
Format = Literal["parquet", "jsonl", "arrow", "csv"]

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
    """

    name: str
    format: Format
    force: bool = False

    @classmethod
    def parse(cls, name: str, to: str | None, force: bool) -> "Target":
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
            return cls(name, to, force)  # type: ignore[arg-type]
        if name == "-":
            return cls(name, "arrow", force)
        suffix = Path(name).suffix.lower()
        if suffix not in _SUFFIXES:
            raise OptionError(
                f"output {name} has no known suffix", todo="add --to parquet|jsonl|arrow|csv"
            )
        return cls(name, _SUFFIXES[suffix], force)

    def check(self) -> None:
        """Refuses before any work is done.

        Raises:
          OutputError: the file exists, its folder does not, or binary data would go to a terminal.
        """
        if self.name == "-":
            if self.format in ("parquet", "arrow") and sys.stdout.isatty():
                raise OutputError(
                    f"{self.format} is binary and stdout is a terminal",
                    todo="pipe it, or use --to jsonl",
                )
            return
        path = Path(self.name)
        if path.is_dir():
            raise OutputError("is a directory", self.name, "name a file")
        if path.exists() and not self.force:
            raise OutputError("exists already", self.name, "use --force to replace it")
        if not path.absolute().parent.is_dir():
            raise OutputError("its folder does not exist", self.name, "make the folder first")

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """A binary stream; a file appears under its name only when complete and on disk.

        Raises:
          OutputError: it cannot be written.
        """
        if self.name == "-":
            try:
                yield sys.stdout.buffer
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OutputError(
                    f"stdout cannot be written ({error.strerror or error})"
                ) from error
            return
        path = Path(self.name)
        handle = None
        try:
            handle = tempfile.NamedTemporaryFile(  # noqa: SIM115 - renamed, so not deleted
                dir=path.absolute().parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
            )
            with handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            _take_place(handle.name, path)
        except OSError as error:
            raise OutputError(
                f"cannot be written ({error.strerror or error})",
                self.name,
                "check space and permissions",
            ) from error
        finally:
            if handle is not None:
                Path(handle.name).unlink(missing_ok=True)


def _take_place(temporary: str, path: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(temporary, 0o666 & ~umask)
    os.replace(temporary, path)


def write_table(
    frames: Iterable[pl.DataFrame], target: Target, metadata: Mapping[str, Any]
) -> None:
    """Writes frames of one schema as one table.

    Args:
      frames: at least one frame, in order.
      target: destination.
      metadata: how the table was made; stored under the key `crbc` as JSON in Parquet and Arrow,
        beside the file as `NAME.meta.json` for JSONL and CSV.
    Raises:
      OutputError: it cannot be written; nothing is left under the final name.
    """
    text = json.dumps(metadata, ensure_ascii=False, sort_keys=True)
    with target.open() as stream:
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
    _write_beside(target, text)


def write_lines(lines: Iterable[bytes], target: Target, metadata: Mapping[str, Any]) -> None:
    """Writes JSON lines; metadata goes beside the file. Raises OutputError as `write_table`."""
    with target.open() as stream:
        for line in lines:
            stream.write(line)
            stream.write(b"\n")
    _write_beside(target, json.dumps(metadata, ensure_ascii=False, sort_keys=True))


def _write_parquet(frames: Iterable[pl.DataFrame], stream: IO[bytes], metadata: str) -> None:
    frame = pl.concat(list(frames), rechunk=False)
    # Through memory: polars reports a full disk or a closed pipe without the error's number.
    encoded = io.BytesIO()
    frame.write_parquet(
        encoded,
        compression="zstd",
        compression_level=3,
        row_group_size=_ROW_GROUP,
        metadata={METADATA_KEY: metadata},
    )
    stream.write(encoded.getbuffer())


def _write_arrow(frames: Iterable[pl.DataFrame], stream: IO[bytes], metadata: str) -> None:
    import pyarrow as pa

    writer = None
    for frame in frames:
        table = frame.to_arrow().replace_schema_metadata({METADATA_KEY: metadata})
        writer = writer or pa.ipc.new_stream(stream, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _pieces(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Frames cut into pieces whose text fits in memory; an empty table is one empty piece."""
    for frame in frames:
        yield from frame.iter_slices(1 << 15) if frame.height else (frame,)


def _write_beside(target: Target, metadata: str) -> None:
    if target.name == "-" or target.format in ("parquet", "arrow"):
        return
    beside = Target(f"{target.name}.meta.json", "jsonl", True)
    with beside.open() as stream:
        stream.write(metadata.encode() + b"\n")
