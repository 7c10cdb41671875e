"""The package against the oracle on random logs, over every option that changes a number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from helpers import Columns, Rows, annotated_rows, oracle_credit, package_credit, same_credit
from hypothesis import given, settings
from oracle import OracleError
from strategies import (
    MIXED,
    NUMBERS,
    STRUCTS,
    TEXTS,
    Log,
    build_log,
    build_options,
    logs_and_options,
    seeded,
)

from crbc_cli.errors import CrbcError
from crbc_cli.options import CreditOptions, GroupAdvantageOptions, OutcomeOptions

BLOCKS = range(0, 480, 40)


def agree(
    rows: Rows,
    options: dict[str, Any],
    compute: Callable[..., Columns] = package_credit,
    *more: Any,
) -> None:
    """The same credit as the oracle's to 1e-10, or an error on both sides."""
    try:
        expected = oracle_credit(rows, **options)
    except OracleError:
        with pytest.raises(CrbcError):
            compute(rows, *more, **options)
        return
    same_credit(compute(rows, *more, **options), expected)


@pytest.mark.parametrize("block", BLOCKS)
def test_in_memory(block: int) -> None:
    for seed in range(block, block + BLOCKS.step):
        choose = seeded(seed)
        log = build_log(choose)
        options = build_options(choose, log.columns)
        agree(log.rows, options)


@given(logs_and_options())
@settings(max_examples=150, derandomize=True, deadline=None)
def test_in_memory_shrinking(drawn: tuple[Log, dict[str, Any]]) -> None:
    log, options = drawn
    agree(log.rows, options)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("block", [0, 1, 2])
def test_through_files(suffix: str, files: int, block: int, tmp_path: Path) -> None:
    """Ids repeat in each file; observations of JSON lines may be of any type."""
    kinds = (MIXED, TEXTS) if suffix == ".jsonl" else (TEXTS, NUMBERS, STRUCTS)
    for seed in range(1000 + 12 * block, 1012 + 12 * block):
        choose = seeded(seed)
        log = build_log(choose, kinds=kinds, files=files)
        options = build_options(choose, log.columns, files=files)
        agree(log.rows, options, annotated_rows, tmp_path, suffix)


def test_larger_groups() -> None:
    """More than 24 anchors, where the oracle solves in floating point."""
    for seed in range(5):
        choose = seeded(seed)
        log = build_log(choose, groups=2, rollouts=40, steps=30, kinds=(tuple(range(60)),))
        options = build_options(choose, log.columns)
        agree(log.rows, options)


def test_random_options_have_every_value() -> None:
    """No option with a fixed set of values is left out of the comparison."""
    drawn: dict[str, set[Any]] = defaultdict(set)
    for block in BLOCKS:
        for seed in range(block, block + BLOCKS.step):
            choose = seeded(seed)
            columns = build_log(choose).columns
            for name, value in build_options(choose, columns).items():
                drawn[name].add(value)
    for kind in (OutcomeOptions, GroupAdvantageOptions, CreditOptions):
        for field in fields(kind):
            if field.name == "success_when":  # an expression; tested with the worked cases
                continue
            wanted = field.metadata["choices"] or ((False, True) if field.type is bool else ())
            assert drawn[field.name] >= set(wanted), field.name
            assert len(drawn[field.name]) >= 2, field.name
