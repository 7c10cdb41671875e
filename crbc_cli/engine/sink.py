"""Where the rows of a credit table go as they come: alone, or with the log's own columns."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import polars as pl

from crbc_cli.engine.output import OutputPlan
from crbc_cli.errors import OutputError
from crbc_cli.logs.passthrough import as_frame, raw_lines
from crbc_cli.logs.sources import Source
from crbc_cli.logs.spans import Spans
from crbc_cli.logs.write import TableWriter, open_table

__all__ = ["Shape", "Sink", "Sinks", "Wider", "table_sinks"]

_IDENTITY = ("source_file", "source_row", "group_id", "rollout_id", "step")


class Sink(Protocol):
    """Takes the tables of one output's inputs, one input after the other."""

    def write(self, source: Source, table: pl.DataFrame) -> None:
        """Appends rows of one input, in its order."""

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Ends the output, which appears when its context ends."""


class Sinks(Protocol):
    """Opens the sink of an output; `schema` is one that holds all its tables, where known."""

    def __call__(
        self, plan: OutputPlan, schema: pl.Schema | None
    ) -> AbstractContextManager[Sink]: ...


class Wider(Exception):  # noqa: N818 - not an error: the output is begun again
    """Tables of one output have types that only a wider schema holds."""

    def __init__(self, plan: OutputPlan, schema: pl.Schema) -> None:
        super().__init__()
        self.plan, self.schema = plan, schema


@dataclass(frozen=True)
class Shape:
    """What stands in an output.

    Attributes:
      all_columns: the input's rows and columns too, unchanged.
      prefix: put before each credit column's name (identity columns keep theirs).
      skip_bad_lines: as the log is read.
    """

    all_columns: bool = False
    prefix: str = ""
    skip_bad_lines: bool = False


def table_sinks(shape: Shape) -> Sinks:
    """Sinks that write tables of this shape."""

    @contextmanager
    def opened(plan: OutputPlan, schema: pl.Schema | None) -> Iterator[Sink]:
        lines = plan.target.format == "jsonl" and all(s.container == "jsonl" for s in plan.sources)
        with open_table(plan.target) as writer:
            if shape.all_columns and lines:
                yield _Lines(shape, writer)
            else:
                yield _Table(plan, shape, writer, schema)

    return opened


def _renamed(table: pl.DataFrame, prefix: str) -> pl.DataFrame:
    return table.rename({n: prefix + n for n in table.columns if n not in _IDENTITY})


class _Table:
    """Rows as a table of one schema; JSONL needs none."""

    def __init__(
        self, plan: OutputPlan, shape: Shape, writer: TableWriter, schema: pl.Schema | None
    ) -> None:
        self._plan = plan
        self._shape = shape
        self._writer = writer
        self._schema = schema
        self._seen: dict[str, tuple[str, Any]] = {}
        self._log: _LogRows | None = None
        self._empty: pl.DataFrame | None = None
        self._rows = 0

    def write(self, source: Source, table: pl.DataFrame) -> None:
        table = _renamed(table, self._shape.prefix)
        if self._shape.all_columns:
            if self._log is None or self._log.source is not source:
                self._end_log()
                self._log = _LogRows(source, self._shape.skip_bad_lines)
            table = self._log.with_columns(table)
        if not table.height:
            self._empty = table if self._empty is None else self._empty
            return
        if self._plan.target.format != "jsonl":
            table = self._fitted(table, source)
        self._rows += table.height
        self._writer.write(table)

    def finish(self, metadata: Mapping[str, Any]) -> None:
        self._end_log()
        if not self._rows and self._empty is not None:
            self._writer.write(self._empty)
        self._writer.finish(metadata)

    def _end_log(self) -> None:
        if self._log is not None:
            self._log.end()

    def _fitted(self, table: pl.DataFrame, source: Source) -> pl.DataFrame:
        if self._schema is None:
            self._schema = table.schema
        if table.schema == self._schema:
            self._seen = self._seen or {n: (source.name, t) for n, t in table.schema.items()}
            return table
        for name, dtype in table.schema.items():
            where, other = self._seen.setdefault(name, (source.name, dtype))
            if other.is_numeric() != dtype.is_numeric() and pl.Null not in (other, dtype):
                raise self._refused(
                    f"column {name} is {other} in {where} and {dtype} in {source.name}"
                )
        both = [pl.DataFrame(schema=self._schema), table.clear()]
        try:
            schema = pl.concat(both, how="diagonal_relaxed").schema
        except pl.exceptions.PolarsError as error:
            raise self._refused(
                f"columns have types that do not go together ({str(error).splitlines()[0]})"
            ) from error
        for name, dtype in schema.items():
            if dtype == pl.Int128:  # signed and unsigned integers: one of them, if it holds all
                schema[name] = self._narrow(name, table)
        if schema != self._schema:
            raise Wider(self._plan, schema)
        return table.select(
            pl.col(n).cast(t) if n in table.columns else pl.lit(None, t).alias(n)
            for n, t in schema.items()
        )

    def _narrow(self, name: str, table: pl.DataFrame) -> Any:
        assert self._schema is not None
        now = self._schema[name]
        for narrow in (pl.Int64, pl.UInt64) if now != pl.UInt64 else (pl.UInt64,):
            if table[name].cast(narrow, strict=False).null_count() == table[name].null_count():
                return narrow
        raise self._refused(f"column {name} needs more than 64 bits")

    def _refused(self, what: str) -> OutputError:
        return OutputError(
            what,
            self._plan.target.name,
            "write one output per input: leave -o away, or use -o FOLDER/",
        )


class _LogRows:
    """The log's own columns, in step with credit rows."""

    def __init__(self, source: Source, skip_bad_lines: bool) -> None:
        self.source = source
        self._spans = Spans.of(source)
        self._whole = as_frame(source, skip_bad_lines) if self._spans is None else None
        self._next = 0

    def with_columns(self, table: pl.DataFrame) -> pl.DataFrame:
        """The next rows: the log's columns, then the credit columns.

        Raises:
          OutputError: both have a column of one name.
          InputError: the log has fewer rows by now.
        """
        if self._spans is not None:
            log = self._spans.columns(self._next, table.height)
        else:
            assert self._whole is not None
            log = self._whole.slice(self._next, table.height)
        if log.height != table.height:
            raise self.source.changed()
        self._next += table.height
        added = table.drop(_IDENTITY)
        _refuse_clash(added.columns, log.columns, self.source.name)
        return pl.concat([log, added], how="horizontal")

    def end(self) -> None:
        """Raises InputError if the log has more rows by now."""
        whole = self._whole
        rows = whole.height if whole is not None else Spans(self.source).rows
        if rows != self._next:
            raise self.source.changed()


class _Lines:
    """Each logged line with the credit members appended inside its object."""

    def __init__(self, shape: Shape, writer: TableWriter) -> None:
        self._shape = shape
        self._writer = writer
        self._source: Source | None = None
        self._lines: Iterator[bytes] = iter(())
        self._row = 0

    def write(self, source: Source, table: pl.DataFrame) -> None:
        if source is not self._source:
            self._end()
            self._source, self._row = source, 0
            self._lines = raw_lines(source, self._shape.skip_bad_lines)
        added = _renamed(table, self._shape.prefix).drop(_IDENTITY)
        names = [msgspec.json.encode(c) + b":" for c in added.columns]
        for piece in added.iter_slices(1 << 14):
            for members in piece.write_ndjson().encode().splitlines():
                line = next(self._lines, None)
                if line is None:
                    raise source.changed()
                if any(name in line for name in names):
                    taken = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
                    _refuse_clash(added.columns, list(taken), source.where(self._row))
                self._row += 1
                body = line[:-1]
                self._writer.line(body + (b"," if len(body) > 1 else b"") + members[1:])

    def finish(self, metadata: Mapping[str, Any]) -> None:
        self._end()
        self._writer.finish(metadata)

    def _end(self) -> None:
        if self._source is not None and next(self._lines, None) is not None:
            raise self._source.changed()


def _refuse_clash(added: Sequence[str], taken: Sequence[str], place: str) -> None:
    clash = sorted(set(added) & set(taken))
    if clash:
        raise OutputError(
            f"the log has a column {clash[0]} already",
            place,
            "rename the credit columns with --prefix, for example --prefix crbc_",
        )
