"""JSON lines as rows, block by block, and what is tolerated in them.

`NaN` and `Infinity` are not JSON but common: a line that fails strict decoding is tried once more
with them allowed. A last line that the writer did not finish is torn, which is a remark; any other
line that is not one JSON object in UTF-8 is an error.
"""

import io
import json
import math
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import IO, Any

import msgspec

from crbc_cli.errors import BadLineError, InputError
from crbc_cli.logs.sources import Source

__all__ = ["LineDecoder", "LineReport", "Numbers", "blocks", "decode_lines"]

Numbers = range | list[int]
"""Line numbers, from 1."""

_BLOCK_BYTES = 16 << 20
_BOM = b"\xef\xbb\xbf"
_SURROGATES = str.maketrans(dict.fromkeys(range(55296, 57344), "�"))


@dataclass
class LineReport:
    """What was tolerated while reading one file; filled as batches are consumed.

    Attributes:
      torn: line number of a bad last line, or None.
      skipped: line numbers left out under --skip-bad-lines.
      surrogates: lines in which a lone surrogate was replaced by U+FFFD.
      non_finite: lines with NaN or an infinity.
    """

    torn: int | None = None
    skipped: list[int] = dataclass_field(default_factory=list)
    surrogates: int = 0
    non_finite: int = 0


@dataclass(frozen=True, slots=True)
class _BadLine:
    number: int
    problem: str
    torn: bool


def blocks(source: Source, size: int = 0) -> Generator[bytes]:
    """Whole lines, `size` bytes (0: some megabytes) and what is left of a line at a time, without a
    byte order mark.

    Raises:
      InputError: the file cannot be opened; the compressed stream is cut or corrupt.
    """
    with source.open() as stream:
        first = True
        while block := _block(stream, source, size or _BLOCK_BYTES):
            yield block.removeprefix(_BOM) if first else block
            first = False


def _block(stream: IO[bytes], source: Source, size: int) -> bytes:
    try:
        if source.compression is not None:
            return stream.read(size) + stream.readline()
        start = stream.tell()
        stream.seek(size, os.SEEK_CUR)
        stream.readline()
        size = stream.tell() - start
        stream.seek(start)
        return stream.read(size)
    except OSError as error:
        raise InputError(
            f"compressed data is cut or corrupt ({error})",
            source.name,
            "check that the writer finished it",
        ) from error


def decode_lines(
    source: Source,
    row_type: Any,
    skip_bad_lines: bool,
    report: LineReport,
    size: int = 0,
) -> Iterator[tuple[Numbers, list[Any]]]:
    """Blocks of (line numbers, decoded rows); blank lines are passed over.

    Args:
      source: file to read.
      row_type: what msgspec makes of a line.
      skip_bad_lines: count bad inner lines in `report` instead of raising.
      report: filled while reading.
      size: as in `blocks`.
    Raises:
      BadLineError: a bad line that is not the last one.
      InputError: as `blocks`.
    """
    decoder = LineDecoder(source, row_type, skip_bad_lines, report)
    for block in blocks(source, size):
        numbers, rows = decoder.decode(block)
        if rows:
            yield numbers, rows
    decoder.end()


class LineDecoder:
    """Rows of consecutive blocks; arguments as in `decode_lines`.

    Attributes:
      line: number of the next block's first line.
    """

    def __init__(
        self, source: Source, row_type: Any, skip_bad_lines: bool, report: LineReport
    ) -> None:
        self.line = 1
        self._name = source.name
        self._strict = msgspec.json.Decoder(row_type)
        self._skip = skip_bad_lines
        self._report = report
        self._bad: _BadLine | None = None

    def decode(self, block: bytes) -> tuple[Numbers, list[Any]]:
        """Line numbers and rows of a block.

        Raises:
          BadLineError: a bad line that is not the last one of the block.
        """
        lines = io.BytesIO(block).readlines()
        first, self.line = self.line, self.line + len(lines)
        rows = _strict_rows(lines, block, self._strict)
        if len(rows) == len(lines):
            self._refuse_bad()
            return range(first, first + len(lines)), rows
        rows, numbers = [], []
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            self._refuse_bad()
            row = _lenient_row(line, number, self._strict, self._report)
            if isinstance(row, _BadLine):
                self._bad = row
            else:
                rows.append(row)
                numbers.append(number)
        return numbers, rows

    def passed(self, lines: int) -> None:
        """The next lines were good, and decoded elsewhere.

        Raises:
          BadLineError: the line before them was bad.
        """
        self._refuse_bad()
        self.line += lines

    def end(self) -> None:
        """There are no more lines.

        Raises:
          BadLineError: the last one was bad, and not because it was cut.
        """
        if self._bad is not None and self._bad.torn:
            self._report.torn = self._bad.number
        else:
            self._refuse_bad()

    def _refuse_bad(self) -> None:
        bad, self._bad = self._bad, None
        if bad is None:
            return
        if not self._skip:
            raise BadLineError(
                f"not a JSON object ({bad.problem})",
                f"{self._name}:{bad.number}",
                "mend the line, or leave such lines out with --skip-bad-lines",
            )
        self._report.skipped.append(bad.number)


def _strict_rows(
    lines: list[bytes], block: bytes, strict: "msgspec.json.Decoder[Any]"
) -> list[Any]:
    """Rows of a block, one per line; another number of them if a line is not strict JSON.

    The parser splits at objects, not at lines: a blank line could make up for two objects on one.
    """
    if min(map(len, lines)) < len(b"{}\n"):
        return []
    try:
        _ = block.isascii() or block.decode()  # the parser does not look into members it skips
        return strict.decode_lines(block)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _lenient_row(
    line: bytes, number: int, strict: "msgspec.json.Decoder[Any]", report: LineReport
) -> Any:
    """The row of one line, or what is wrong with it."""
    # A machine that loses power can leave zero bytes where the line was to be.
    opened = line.lstrip(b"\0 \t\r\n")[:1] in (b"{", b"")
    try:
        text = line.decode()
        try:
            return strict.decode(text)
        except msgspec.DecodeError as error:
            problem = str(error)
        value = json.loads(text)
        if not isinstance(value, dict):
            return _BadLine(number, f"a JSON {_JSON_NAMES[type(value)]}", False)
        return _tolerated(value, strict, report)
    except UnicodeDecodeError:
        return _BadLine(number, "not UTF-8", opened)
    except json.JSONDecodeError as error:
        return _BadLine(number, problem, opened and not error.msg.startswith("Extra data"))
    except ValueError as error:
        return _BadLine(number, str(error), False)
    except RecursionError:
        return _BadLine(number, "nested too deeply", False)


def _tolerated(
    value: dict[str, Any], strict: "msgspec.json.Decoder[Any]", report: LineReport
) -> Any:
    """The row of an object that is not strict JSON. NaN and infinities become null where the row
    holds raw JSON."""
    cleaned = _without_surrogates(value)
    finite = _finite(cleaned)
    report.surrogates += cleaned is not value
    report.non_finite += finite != cleaned
    if isinstance(strict.type, type) and issubclass(strict.type, msgspec.Struct):
        return msgspec.convert(cleaned, strict.type)
    return strict.decode(json.dumps(finite))


_JSON_NAMES: dict[type, str] = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def _without_surrogates(value: Any) -> Any:
    """The same object if nothing was replaced."""
    text = json.dumps(value, ensure_ascii=False)
    clean = text.translate(_SURROGATES)
    return value if clean == text else json.loads(clean)


def _finite(value: Any) -> Any:
    """The value with null for NaN and infinities."""
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
