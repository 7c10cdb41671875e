"""Conflict rate, Markov test, agreement and truth scores, as arrays."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import permutations

import numpy as np
import pytest
from helpers import GOLDEN, process_of, rollout

from crbc_cli.process.agreement import agreement, truth_scores
from crbc_cli.process.quality import (
    START,
    Conflicts,
    ContingencyTables,
    entries,
    holm,
    markov_test,
    pair_outcomes,
)


def conflicts_of(*paths: tuple[str, int]) -> Conflicts:
    """Conflicts of one group given as (path, success)."""
    rows = [row for i, (path, won) in enumerate(paths) for row in rollout(f"t{i}", path, bool(won))]
    return pair_outcomes(process_of(rows)).conflicts


def test_golden_conflicts() -> None:
    """(S,a) led to M twice, (S,b) to N twice, (M,p) to success twice; nothing else repeats."""
    assert pair_outcomes(process_of(GOLDEN)).conflicts == Conflicts(0, 6)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        # (S,a) leads to M, M and N: its three visits conflict; (M,p) repeats without conflict.
        ([("S-a M-p", 1), ("S-a M-p", 1), ("S-a N-q", 1)], Conflicts(3, 5)),
        # A failure may be a limit's: it does not differ from an anchor, nor from a failure.
        ([("S-a M-p", 0), ("S-a", 0)], Conflicts(0, 2)),
        # It differs from a success, and a success differs from an anchor.
        ([("S-a", 1), ("S-a", 0)], Conflicts(2, 2)),
        ([("S-a", 1), ("S-a M-p", 1)], Conflicts(2, 2)),
        ([("S-a S-a S-a", 1)], Conflicts(3, 3)),
        ([("S-a", 1), ("S-b", 1)], Conflicts(0, 0)),
    ],
)
def test_conflicts(paths: list[tuple[str, int]], expected: Conflicts) -> None:
    assert conflicts_of(*paths) == expected


def test_conflicts_add_up_and_have_a_rate() -> None:
    assert (Conflicts(1, 4) + Conflicts(2, 2)).rate == pytest.approx(0.5)
    assert Conflicts().rate is None
    assert Conflicts(1, 8).told.startswith("conflict rate 12.5 %")


def test_entries() -> None:
    """Pair before each visit; t2 is S-b N-c M-p, and pairs count from 0 by first visit."""
    process = process_of(GOLDEN)
    # pairs: S-a 0, M-p 1, M-q 2, S-b 3, N-c 4, N-d 5
    assert process.pair.tolist() == [0, 1, 0, 2, 3, 4, 1, 3, 5]
    assert entries(process).tolist() == [START, 0, START, 0, START, 3, 4, START, 3]


@pytest.mark.parametrize(
    ("row", "column"),
    [("001122", "010011"), ("0000111", "0011222"), ("0112", "0101"), ("000011", "012345")],
)
def test_moments_of_chi_square_over_all_permutations(row: str, column: str) -> None:
    """Mean and variance against every permutation of the columns."""
    rows, columns = (np.array(list(map(int, text))) for text in (row, column))
    statistics = []
    for order in set(permutations(columns.tolist())):
        seen = Counter(zip(rows.tolist(), order, strict=True))
        size = len(rows)
        total = sum(
            count**2 / ((rows == r).sum() * (columns == c).sum()) for (r, c), count in seen.items()
        )
        statistics.append(size * (total - 1))
    table = ContingencyTables.of(np.zeros(len(rows), np.int64), rows, columns)
    assert table.mean[0] == pytest.approx(np.mean(statistics))
    assert table.variance[0] == pytest.approx(np.var(statistics))
    assert min(statistics) - 1e-9 <= table.chi_square[0] <= max(statistics) + 1e-9


def aliased_log(visits: int, *, hidden: bool, seed: int = 0) -> list[dict[str, object]]:
    """Rollouts enter X from A or B, then go; where that leads depends on the way in if `hidden`,
    and on a coin otherwise."""
    coin = np.random.default_rng(seed)
    rows = []
    for i in range(visits):
        way = "AB"[i % 2]
        told = way == "A" if hidden else bool(coin.integers(2))
        rows += rollout(f"t{i}", f"{way}-in X-go {'P' if told else 'Q'}-stop", True)
    return rows


def test_what_depends_on_the_way_in_is_found() -> None:
    """Twelve visits, entries and successors in step: of 12!/(6!)² = 924 arrangements of the
    entries two are as extreme, so the exact p-value is 2/924 = 0.0022."""
    process = process_of(aliased_log(12, hidden=True))
    test = markov_test(process)
    [anchor] = test.state.tolist()
    assert anchor == process.state[1]  # X is the second visit
    assert test.statistic[0] == pytest.approx(12.0)
    assert 0 < test.p_value[0] < 0.01


def test_a_coin_does_not_depend_on_the_way_in() -> None:
    """p-values of 200 logs in which it makes no difference: a tenth of them may be below 0.1."""
    p_values = [
        markov_test(process_of(aliased_log(16, hidden=False, seed=seed))).p_value
        for seed in range(200)
    ]
    small = np.concatenate(p_values) < 0.1
    assert len(small) > 180
    assert small.mean() < 0.15


def test_nothing_is_tested_without_a_conflict_or_with_one_way_in() -> None:
    assert not len(markov_test(process_of(GOLDEN)).state)
    rows = [r for i in range(8) for r in rollout(f"t{i}", f"A-in X-go {'PQ'[i % 2]}-stop", True)]
    assert not len(markov_test(process_of(rows)).state)


def test_holm() -> None:
    """0.005·4 = 0.02, 0.01·3 = 0.03, then max(0.03·2, …) = 0.06, which 0.04·1 may not undercut."""
    adjusted = holm(np.array([0.01, 0.04, 0.03, 0.005]))
    assert adjusted.tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]
    assert len(holm(np.empty(0))) == 0


def test_agreement_against_counting() -> None:
    random = np.random.default_rng(3)
    pair, who, saw = (random.integers(0, high, 60) for high in (6, 4, 3))
    found = agreement(pair, who, saw)
    for i in range(60):
        others = saw[(pair == pair[i]) & (who != who[i])]
        assert found.known[i] == bool(len(others))
        expected = (others == saw[i]).mean() if len(others) else 0.0
        assert found.hit[i] == pytest.approx(expected)
        assert found.miss[i] == pytest.approx(1 - expected if len(others) else 0.0)
    assert found.hits + found.misses == pytest.approx(found.known.sum())


def test_a_split_in_vain_keeps_the_error_rate_and_a_split_by_the_truth_does_not() -> None:
    random = np.random.default_rng(1)
    who, hidden, noise = (random.integers(0, high, 4000) for high in (20, 2, 2))
    pair = np.zeros(4000, np.int64)
    whole, vain, true = (agreement(p, who, hidden) for p in (pair, noise, hidden))
    assert whole.misses / (whole.hits + whole.misses) == pytest.approx(0.5, abs=0.01)
    assert vain.misses / (vain.hits + vain.misses) == pytest.approx(0.5, abs=0.02)
    assert true.misses == 0


def test_truth_scores_against_counting() -> None:
    random = np.random.default_rng(5)
    group = np.sort(random.integers(0, 3, 80))
    anchor = group * 10 + random.integers(0, 6, 80)
    who = group * 10 + random.integers(0, 3, 80)
    truth = random.integers(0, 5, 80)
    held: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    keys: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for g, a, r, s in zip(*(x.tolist() for x in (group, anchor, who, truth)), strict=True):
        held[a].append((r, s))
        keys[g, s].add(a)
    repeated = [seen for seen in held.values() if len(seen) > 1]
    aliased = sum(len(seen) for seen in repeated if len({s for _, s in seen}) > 1)
    shared = sum(len(seen) for seen in held.values() if len({r for r, _ in seen}) > 1)
    scores = truth_scores(group, anchor, who, truth)
    assert scores.visits == 80
    assert scores.aliased == pytest.approx(aliased / sum(map(len, repeated)))
    assert scores.shared == pytest.approx(shared / 80)
    assert scores.keys_per_state == pytest.approx(np.mean([len(k) for k in keys.values()]))


def test_truth_scores_of_nothing() -> None:
    nothing = np.empty(0, np.int64)
    scores = truth_scores(nothing, nothing, nothing, nothing)
    assert (scores.visits, scores.aliased, scores.shared, scores.keys_per_state) == (
        0,
        None,
        None,
        None,
    )
