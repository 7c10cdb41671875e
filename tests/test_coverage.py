"""Coverage: how many rollouts' evidence reaches a visit at each closure depth.

Source of the definition: CRBC (arXiv 2609.35082), appendix D.2 and figure 5.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from helpers import (
    GOLDEN,
    INF,
    Rows,
    one,
    oracle_options,
    package_credit,
    prepared,
    process_of,
    rollout,
    write_log,
)
from strategies import TEXTS, build_log, seeded

from crbc_cli.api import coverage
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.coverage import CoverageReport
from crbc_cli.errors import OptionError
from crbc_cli.process.coverage import coverage_by_depth, reachable_rollouts


def report(rows: Rows, folder: Path, **options: Any) -> CoverageReport:
    return coverage([str(write_log(rows, folder / "log.jsonl"))], **options)


def reached(rows: Rows, depth: float, **options: Any) -> list[int | None]:
    """Rollouts reached from each row; None where it is no visit."""
    log = prepared(rows, **options)
    result: list[int | None] = [None] * len(rows)
    for chunk in log.chunks(Clock()):
        counts = reachable_rollouts(chunk.process, depth)[chunk.process.state]
        for row, count in zip(log.rollouts.row[chunk.position], counts, strict=True):
            result[row] = int(count)
    return result


def test_golden_counts(tmp_path: Path) -> None:
    """S is visited by 4 rollouts, M by 3, N by 2; S leads to M and N, N to M. Only N gains."""
    assert reached(GOLDEN, 0) == [4, 3, 4, 3, 4, 2, 3, 4, 2]
    for depth in (1, 2, 3, INF):
        assert reached(GOLDEN, depth) == [4, 3, 4, 3, 4, 4, 3, 4, 4]
    assert package_credit(GOLDEN)["reachable_rollouts"] == [4, 3, 4, 3, 4, 4, 3, 4, 4]
    found = report(GOLDEN, tmp_path)
    assert found.depths == [0, 1, INF]
    assert found.settled == 1
    assert (found.total, found.seen) == (9, 9)
    assert found.full.tolist() == [4, 6, 6]
    assert found.counts.tolist() == [[0, 0, 2, 3, 4], [0, 0, 0, 3, 6], [0, 0, 0, 3, 6]]
    assert found.paired == {(4, 4): 4, (3, 3): 3, (2, 4): 2}
    assert found.expanded == 2
    assert found.means() == pytest.approx([29 / 9, 33 / 9, 33 / 9])


def test_report_as_dict(tmp_path: Path) -> None:
    found = json.loads(json.dumps(report(GOLDEN, tmp_path).to_dict(), allow_nan=False))
    assert found["expanded_share"] == pytest.approx(2 / 9)
    assert [d["depth"] for d in found["depths"]] == [0, 1, "inf"]
    assert [d["full_coverage_share"] for d in found["depths"]] == pytest.approx(
        [4 / 9, 6 / 9, 6 / 9]
    )
    for entry in found["depths"]:
        assert sum(cell["share"] for cell in entry["distribution"]) == pytest.approx(1)
    assert sum(cell["count"] for cell in found["paired"]) == found["eligible_units"]
    rows = report(GOLDEN, tmp_path).rows()
    assert [row["count"] for row in rows if row["depth"] == 0] == [0, 2, 3, 4]


def test_direction_and_boundaries(tmp_path: Path) -> None:
    """Evidence flows backwards only: A reaches B, B does not reach A; outcomes connect nothing."""
    rows = rollout(0, "A-x B-x", True) + rollout(1, "B-y", True) + rollout(2, "C-y", True)
    assert reached(rows, 0) == [1, 2, 2, 1]
    assert reached(rows, INF) == [2, 2, 2, 1]
    found = report(rows, tmp_path)
    assert (found.total, found.seen) == (2, 4)  # only B has two actions
    assert report(rows, tmp_path, eligible="all").total == 4
    assert report(rows, tmp_path, eligible="all", unit="anchors").total == 3
    assert report(rows, tmp_path, eligible="successors").total == 0
    empty = report(rows, tmp_path, eligible="successors").to_dict()
    assert empty["expanded_share"] is None
    with pytest.raises(OptionError, match="--unit"):
        report(rows, tmp_path, unit="rows")


def test_a_long_chain_is_reached_one_anchor_per_backup() -> None:
    """Rollout i visits i, i + 1 and nothing else: at depth K an anchor sees K + 2 rollouts."""
    size = 70
    rows = [row for i in range(size) for row in rollout(i, f"{i}-x {i + 1}-x", True)]
    for depth in (0, 1, 5, 64, INF):
        counts = reached(rows, depth)[::2]  # of anchor i, visited by rollouts i - 1 and i
        for i, count in enumerate(counts):
            assert count == min((i > 0) + 1 + depth, (i > 0) + size - i)


@pytest.mark.parametrize("size", [63, 64, 65, 130])
def test_groups_of_any_size(size: int) -> None:
    """Rollouts are counted in words of 64 bits; all meet at one hub, and half go on."""
    rows: Rows = []
    for i in range(size):
        rows += rollout(i, f"own{i}-x hub-x" + (" late-x" if i % 2 else ""), True)
    table = package_credit(rows)
    for row, reached in zip(rows, table["reachable_rollouts"], strict=True):
        assert reached == (size // 2 if row["observation"] == "late" else size)
    process = process_of(rows)
    own = np.arange(process.states) == process.state[0]
    depths = [reach[own[states]].tolist() for states, reach in coverage_by_depth(process)]
    assert depths == [[1], [size]]


def bounded_log(seed: int) -> Rows:
    kinds = ([f"place {i}" for i in range(14)], TEXTS)
    return build_log(seeded(seed), rollouts=9, steps=6, kinds=kinds, duplicates=False).rows


ENDINGS = ("fail", "censor", "exclude", "bootstrap")


def endings_of(rows: Rows) -> tuple[str, ...]:
    has = {name for row in rows for name in row}
    return ENDINGS if has & {"done", "truncated"} else ("fail",)


@pytest.mark.parametrize("seed", range(20))
def test_against_breadth_first_search(seed: int) -> None:
    """Per visit, at every depth and under every ending; monotone in K and bounded by the group."""
    rows = bounded_log(seed)
    for ending in endings_of(rows):
        before = [0] * len(rows)
        for depth in (0, 1, 2, 3, INF):
            counts = reached(rows, depth, truncated=ending)
            assert counts == oracle.coverage_counts(rows, depth, truncated=ending)
            assert all(a <= b for a, b in zip(before, counts, strict=True) if b is not None)
            before = [count or 0 for count in counts]


@pytest.mark.parametrize("seed", range(20))
def test_pooled_tables_against_the_oracle(seed: int, tmp_path: Path) -> None:
    rows = bounded_log(seed)
    for ending in endings_of(rows):
        options = {"truncated": ending, "unscored": "fail"}
        expected = oracle.coverage_table(rows, range(30), **oracle_options(options))
        found = report(rows, tmp_path, **options)
        assert found.total == expected.eligible
        assert found.expanded == expected.expanded
        for depth, counts, full in zip(found.depths, found.counts, found.full, strict=True):
            assert {j: n for j, n in enumerate(counts) if n} == expected.distribution[depth]
            assert full == expected.full[depth]
        assert found.paired == expected.paired


def test_depth_zero_is_who_visits() -> None:
    for seed in range(5):
        rows = bounded_log(seed)
        visitors: dict[Any, set[Any]] = {}
        for row in rows:
            anchor = row["group_id"], row["observation"]
            visitors.setdefault(anchor, set()).add(row["rollout_id"])
        expected = [
            None if row["observation"] is None
            else len(visitors[row["group_id"], row["observation"]])
            for row in rows
        ]  # fmt: skip
        assert reached(rows, 0, unscored="fail") == expected


@pytest.mark.parametrize(
    ("depths", "listed"),
    [
        ((0, INF), [0, 1, INF]),
        ((0, 0), [0]),
        ((1, 2), [1, 2]),
        ((INF, INF), [INF]),
        ((3, 4), [3, 4]),
        ((2, INF), [INF]),
    ],
)
def test_depths_asked_for(depths: tuple[float, float], listed: list[float], tmp_path: Path) -> None:
    """The golden group settles at depth 1; deeper ones repeat it."""
    found = report(GOLDEN, tmp_path, depths=depths)
    assert found.depths == listed
    full = {0: 4, 1: 6, 2: 6, 3: 6, 4: 6, INF: 6}
    assert found.full.tolist() == [full[depth] for depth in listed]
    assert found.expanded == 2


def test_groups_do_not_reach_each_other(tmp_path: Path) -> None:
    rows = GOLDEN + [row | {"group_id": "h"} for row in GOLDEN]
    assert package_credit(rows)["reachable_rollouts"] == [4, 3, 4, 3, 4, 4, 3, 4, 4] * 2
    assert report(rows, tmp_path).full.tolist() == [8, 12, 12]
    lone = [one(0, "s", "a", True), one(1, "s", "b", False, group_id="h")]
    assert package_credit(lone)["reachable_rollouts"] == [1, 1]
