"""A file or folder before anybody knows what wrote it: its first record, and all of them."""

import functools
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from crbc_cli.errors import CrbcError, InputError
from crbc_cli.logs.formats import parquet
from crbc_cli.logs.formats.jsonl import LineReport, decode_lines
from crbc_cli.logs.sources import Source, file_source, natural_key

__all__ = ["Dump"]


class Dump:
    """One input as given.

    Attributes:
      source: where its bytes are.
      name: the path as the user gave it, `-` for stdin.
      path: a seekable file with its content, or the folder.
      container: "jsonl", "json" (one document: an object, or an array of records), "parquet",
        "zip", "torch" (a zip archive of torch.save), "pickle", "sqlite", "hdf5" or "folder".
      compression: "gzip" or "zstd" of a JSON file, else None.
      skip_bad_lines: leave out and count bad lines instead of raising.
      report: what reading the lines tolerated.
    """

    def __init__(self, source: Source, *, skip_bad_lines: bool = False) -> None:
        self.source = source
        self.name, self.path, self.compression = source.name, source.path, source.compression
        torch = source.container == "zip" and _is_torch_archive(source.path)
        self.container = "torch" if torch else source.container
        self.skip_bad_lines = skip_bad_lines
        self.report = LineReport()

    @functools.cached_property
    def first(self) -> Any:
        """The first record, decoded: the object of the first JSON line, the first element of an
        array, the document itself, a Parquet file's first row. None where there is none, or none
        that can be read."""
        try:
            if self.container == "jsonl":
                for _, rows in decode_lines(self.source, dict[str, Any], True, LineReport()):
                    return rows[0]
                return None
            if self.container == "parquet":
                return next(iter(self.table.head(1).iter_rows(named=True)), None)
            document = self.document
        except (CrbcError, RecursionError):
            return None
        return next(iter(document), None) if isinstance(document, list) else document

    @functools.cached_property
    def keys(self) -> frozenset[str]:
        """Names of the first record's members; of a Parquet file with rows, its columns."""
        if self.container == "parquet":
            try:
                rows = parquet.scan(self.source)
                with parquet.polars_errors(self.name):
                    empty = rows.head(1).select(pl.len()).collect().item() == 0
                return frozenset(() if empty else rows.collect_schema().names())
            except CrbcError:
                return frozenset()
        return frozenset(self.first) if isinstance(self.first, dict) else frozenset()

    @functools.cached_property
    def metadata(self) -> Mapping[str, str]:
        """Key-value metadata of a Parquet file."""
        if self.container != "parquet":
            return {}
        with parquet.polars_errors(self.name):
            return pl.read_parquet_metadata(self.path)

    @functools.cached_property
    def table(self) -> pl.DataFrame:
        """All columns of a Parquet file.

        Raises:
          InputError: it cannot be read.
        """
        scanned = parquet.scan(self.source)
        with parquet.polars_errors(self.name):
            return scanned.collect()

    @functools.cached_property
    def document(self) -> Any:
        """What a "json", "torch" or "pickle" file holds as a whole; None for others.

        Classes of a pickle are inert; see `crbc_cli.logs.formats.unpickle`.

        Raises:
          InputError: it is damaged.
        """
        from crbc_cli.logs.formats.unpickle import UnpickleError, load_pickle, load_torch

        try:
            if self.container == "json":
                with self.source.open() as stream:
                    return msgspec.json.decode(stream.read().removeprefix(b"\xef\xbb\xbf"))
            if self.container == "torch":
                return load_torch(self.path)
            if self.container == "pickle":
                return load_pickle(self.path.read_bytes())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(
                f"is no complete JSON document ({error})", self.name, "check that it is whole"
            ) from error
        except UnpickleError as error:
            raise InputError(str(error), self.name) from error
        return None

    @property
    def is_whole(self) -> bool:
        """Whether the document can be read; what only begins like one may be lines of JSON."""
        try:
            return self.document is not None
        except InputError:
            return False

    @functools.cached_property
    def files(self) -> list[str]:
        """Names of the files in a folder, or of the members of a zip archive, in natural order."""
        if self.container == "folder":
            names = [p.name for p in self.path.iterdir() if p.is_file()]
        elif self.container == "zip":
            try:
                with zipfile.ZipFile(self.path) as archive:
                    names = archive.namelist()
            except (zipfile.BadZipFile, OSError):
                return []
        else:
            return []
        return sorted(names, key=natural_key)

    def child(self, name: str) -> "Dump":
        """A file of the folder, named relative to it."""
        source = file_source(str(self.path / name))
        return Dump(source, skip_bad_lines=self.skip_bad_lines)

    def records(self) -> Iterator[tuple[int, Any]]:
        """(index from 0, decoded record): lines of JSONL (the line number minus 1), elements of a
        JSON array, the document alone, rows of a Parquet file.

        A torn last line is left out and reported.

        Raises:
          BadLineError: another line that is no JSON object.
          InputError: the file is damaged.
        """
        if self.container == "jsonl":
            blocks = decode_lines(self.source, dict[str, Any], self.skip_bad_lines, self.report)
            for numbers, rows in blocks:
                for number, row in zip(numbers, rows, strict=True):
                    yield number - 1, row
        elif self.container == "parquet":
            yield from enumerate(self.table.iter_rows(named=True))
        elif isinstance(self.document, list):
            yield from enumerate(self.document)
        elif self.document is not None:
            yield 0, self.document

    def where(self, index: int) -> str:
        """Place of a record, for messages."""
        if self.container == "jsonl":
            return f"{self.name}:{index + 1}"
        return f"{self.name} {'row' if self.container == 'parquet' else 'record'} {index}"


def _is_torch_archive(path: Path) -> bool:
    """Whether a zip archive was written by `torch.save`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False
