"""Dumps of other programs for tests, and what `crbc` makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from crbc_cli.logs.open import open_logs
from crbc_cli.notes import Notes
from crbc_cli.options import LogOptions


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    """Records as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def write_document(path: Path, document: Any) -> Path:
    """One JSON document, indented."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2), "utf-8")
    return path


def read_dump(path: Path, **options: Any) -> tuple[pl.DataFrame, Notes]:
    """The step table of a dump of one known format, and the remarks made while reading it."""
    notes = Notes()
    [source] = open_logs(str(path), LogOptions(**options), notes)
    assert source.format, f"{path} was taken for a step table"
    return pl.read_parquet(source.path), notes


def columns_of(table: pl.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Rows of some columns."""
    return table.select(names).rows()


def said(notes: Notes) -> dict[str, str]:
    """Code -> message of each remark."""
    return {note.code: note.message for note in notes.items}
