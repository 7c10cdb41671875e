"""What numbers must not depend on: chunks, threads, repetition, neighbours, row order, labels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import INF, Rows, by_key, package_credit, rollout, same_credit, write_log
from strategies import TEXTS, build_log, seeded

from crbc_cli.api import annotate
from crbc_cli.process.closure import _DENSE_LIMIT

OPTIONS: dict[str, dict[str, Any]] = {
    "closure": {},
    "undiscounted": {"discount": 1.0},
    "depth 2": {"depth": 2, "episode_stats": "rows"},
    "censor": {"truncated": "censor", "unscored": "fail"},
    "bootstrap": {"truncated": "bootstrap", "sigma": "closure", "depth": 1},
    "jackknife": {"uncertainty": True, "truncated": "censor"},
    "resampled": {"uncertainty": True, "resampling": "bootstrap", "resamples": 7, "seed": 5},
}


def many_groups(seed: int, **bounds: Any) -> Rows:
    """Up to 24 small groups with every column, cut ends among them, and no duplicate rows."""
    choose = seeded(seed)
    while True:
        log = build_log(choose, duplicates=False, kinds=(TEXTS,), **({"groups": 24} | bounds))
        if log.columns >= {"truncated", "next_observation"} and len(log.rows) > 60:
            return log.rows


def large_group(seed: int) -> Rows:
    """One group with more branching anchors than a dense solve takes, and one just below.

    Multithreaded linear algebra starts at sizes like these.
    """
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for group, anchors in (("large", 300), ("dense", _DENSE_LIMIT)):
        for number in range(30):
            path = " ".join(f"{rng.integers(anchors)}-{rng.integers(2)}" for _ in range(40))
            rows += rollout(number, path, bool(rng.integers(2)), group=group)
    return rows


def text_ids(rows: Rows) -> Rows:
    return relabelled(rows, group_id=str, rollout_id=str)


def relabelled(rows: Rows, **labels: Callable[[Any], Any]) -> Rows:
    """Rows with the values of some columns replaced, one for one."""
    return [
        row | {name: label(row[name]) for name, label in labels.items() if row[name] is not None}
        for row in rows
    ]


def written(log: Path, output: Path, **options: Any) -> bytes:
    annotate([str(log)], str(output), force=True, **options)
    return output.read_bytes()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_the_same_bytes_for_any_chunk_size(
    options: dict[str, Any], suffix: str, tmp_path: Path
) -> None:
    log = write_log(many_groups(5), tmp_path / f"log{suffix}")
    output = tmp_path / f"credit{suffix}"
    whole = written(log, output, chunk_rows=10**9, **options)
    for chunk_rows in (1, 50, 10**9):
        assert written(log, output, chunk_rows=chunk_rows, **options) == whole


def test_the_same_bytes_for_any_chunk_size_of_large_groups(tmp_path: Path) -> None:
    once = large_group(1)
    rows = once + relabelled(once, group_id=lambda name: f"again {name}")
    log, output = write_log(rows, tmp_path / "log.parquet"), tmp_path / "credit.parquet"
    whole = written(log, output, chunk_rows=10**9)
    assert written(log, output, chunk_rows=1) == whole
    table = package_credit(rows)
    for name, values in table.items():
        assert repr(values[: len(once)]) == repr(values[len(once) :]), name


def test_the_same_bytes_for_any_number_of_threads(tmp_path: Path) -> None:
    log = write_log(text_ids(large_group(2) + many_groups(7)), tmp_path / "log.parquet")
    output = tmp_path / "credit.parquet"
    results = []
    for threads in ("1", "2"):
        names = ("POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
        env = os.environ | dict.fromkeys(names, threads) | {"PYTHONHASHSEED": threads}
        command = [sys.executable, "-m", "crbc_cli", "annotate", str(log), "-o", str(output)]
        subprocess.run([*command, "--force"], check=True, capture_output=True, env=env)
        results.append(output.read_bytes())
    assert results[0] == results[1]
    assert written(log, output) == results[0]


def bits(rows: Rows, **options: Any) -> dict[Any, str]:
    """Credit cells of each (file, group, rollout, step); repr tells every float from every other,
    -0.0 from 0.0 included."""
    cells = by_key(rows, package_credit(rows, **options))
    assert len(cells) == len(rows)
    return {key: repr(values) for key, values in cells.items()}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_row_order_does_not_matter(options: dict[str, Any], seed: int) -> None:
    rows = many_groups(seed)
    expected = bits(rows, **options)
    assert bits(rows[::-1], **options) == expected
    order = np.random.default_rng(seed).permutation(len(rows))
    assert bits([rows[i] for i in order], **options) == expected


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_group_order_does_not_matter(options: dict[str, Any]) -> None:
    rows = sorted(many_groups(11), key=lambda row: str(row["group_id"]))
    backwards = sorted(rows, key=lambda row: str(row["group_id"]), reverse=True)
    assert bits(backwards, **options) == bits(rows, **options)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_neighbours_do_not_matter(options: dict[str, Any]) -> None:
    """Each group alone gives the same bits as all of them together."""
    rows = text_ids(many_groups(13) + large_group(4))
    names = {name for row in rows for name in row}
    rows = [dict.fromkeys(names) | row for row in rows]
    alone: dict[Any, str] = {}
    for group in dict.fromkeys(row["group_id"] for row in rows):
        alone |= bits([row for row in rows if row["group_id"] == group], **options)
    assert alone == bits(rows, **options)


@pytest.mark.parametrize("depth", [0, 2, INF])
def test_labels_do_not_matter(depth: float) -> None:
    """Names of observations, actions and rollouts, up to 1e-12."""
    for seed in range(5):
        rows = many_groups(seed, groups=10)
        columns = package_credit(rows, depth=depth, truncated="bootstrap")

        def content(value: Any) -> str:
            return f"<{value[::-1]}>"

        observed = relabelled(rows, observation=content, next_observation=content, action=content)
        named = package_credit(observed, depth=depth, truncated="bootstrap")
        same_credit(named, columns, 1e-12)
        # Rollouts that sort the other way round: only the numbering of anchors follows.
        backwards = relabelled(rows, rollout_id=lambda name: 100 - int(name))
        other = package_credit(backwards, depth=depth, truncated="bootstrap")
        same_credit(other | {"anchor": columns["anchor"]}, columns, 1e-12)
        groups = [row["group_id"] for row in rows]
        matched = set(zip(groups, columns["anchor"], other["anchor"], strict=True))
        assert len({(g, a) for g, a, _ in matched}) == len(matched)
        assert len({(g, b) for g, _, b in matched}) == len(matched)


@pytest.mark.parametrize("depth", [0, 1, INF])
def test_two_copies_of_all_rollouts(depth: float) -> None:
    """V, Q, A and A_S stay, counts and coverage double."""
    for seed in range(5):
        rows = many_groups(seed, groups=10)
        again = relabelled(rows, rollout_id=lambda name: f"copy of {name}")
        both = relabelled(rows, rollout_id=str) + again
        options = {"depth": depth, "singleton": "raw", "truncated": "bootstrap"}
        once, twice = package_credit(rows, **options), package_credit(both, **options)
        for name in ("state_value", "action_value", "credit", "step_credit"):
            for copy in (twice[name][: len(rows)], twice[name][len(rows) :]):
                filled = [0.0 if v is None else v for v in copy]
                expected = [0.0 if v is None else v for v in once[name]]
                np.testing.assert_allclose(filled, expected, rtol=0, atol=1e-12)
        for name in ("visits", "reachable_rollouts"):
            doubled = [None if v is None else 2 * v for v in once[name]]
            assert twice[name] == doubled * 2
        assert twice["anchor"] == once["anchor"] * 2
        assert twice["actions"] == once["actions"] * 2
