"""`crbc gate`: signals worked by hand, savings counted by hand, the choice of a threshold."""

from __future__ import annotations

import math
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, crbc
from helpers import Rows, rollout, write_log
from scipy import stats

import crbc_cli
from crbc_cli.cli.gate import SIGNAL_NAMES
from crbc_cli.engine.gate import GateReport
from crbc_cli.errors import ColumnError, CrbcError, IdentityError, OptionError
from crbc_cli.methods import selective_rollout
from crbc_cli.methods.gate_rule import Evidence, cut_groups, measure, separation
from crbc_cli.methods.selective_rollout import SIGNALS, Heads, signal

END = None


# --- signals --------------------------------------------------------------------------------------


def heads(*groups: list[str], depth: int = 12) -> Heads:
    """Groups of rollouts, each a string of one-letter actions; observations are upper case."""
    paths = [path.split() for group in groups for path in group]
    names = sorted({a for path in paths for a in path})
    window = np.full((len(paths), depth), -1, np.int32)
    for row, path in enumerate(paths):
        window[row, : len(path)] = [names.index(a) for a in path][:depth]
    group = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return Heads(window, window, np.array([len(p) for p in paths]), group)


THREE = ["u v w", "u x w", "u v"]
"""At K = 4 the padded prefixes are uvwE, uxwE and uvEE."""


def at(k: int, name: str = "distance", *, group: list[str] = THREE, pad: bool = True) -> float:
    [value] = signal(heads(group), name, k, pad=pad).tolist()
    return float(value)


@pytest.mark.parametrize(
    ("k", "padded", "unpadded"),
    [
        # u, u, u.
        (1, 0, 0),
        # uv, ux, uv: 1/2, 0, 1/2.
        (2, 1 / 3, 1 / 3),
        # Padded uvw, uxw, uvE: 1/3, 1/3 (w-E), 2/3 (x-v, w-E). Unpadded uvw, uxw, uv: 1/3, 1/3
        # (w deleted), 2/3 (x-v, w deleted).
        (3, 4 / 9, 4 / 9),
        # Padded 1/4, 1/4, 2/4. Unpadded as at 3: the longer length stays 3.
        (4, 1 / 3, 4 / 9),
        # Padded 1/10, 1/10, 2/10.
        (10, 2 / 15, 4 / 9),
    ],
)
def test_distance_by_hand(k: int, padded: float, unpadded: float) -> None:
    assert at(k) == pytest.approx(padded, abs=1e-15)
    assert at(k, pad=False) == pytest.approx(unpadded, abs=1e-15)


def test_distance_is_an_edit_distance_and_not_a_count_of_places() -> None:
    # Deleting l in front and adding r behind: 2 edits, though all four places differ.
    assert at(4, group=["l u v w", "u v w r"]) == 2 / 4


def test_ended_rollouts_agree_on_the_padding_only() -> None:
    # u and x, both over: one substitution in ten padded places, or in one real one.
    assert at(10, group=["u", "x"]) == 1 / 10
    assert at(10, group=["u", "x"], pad=False) == 1
    # Unpadded lengths 1 and 3 of the same walk: two deletions over 3.
    assert at(3, group=["u", "u v w"], pad=False) == 2 / 3


def test_equal_rollouts_are_at_distance_zero() -> None:
    for pad in (True, False):
        assert at(5, group=["u v w"] * 4, pad=pad) == 0


@pytest.mark.parametrize(
    ("name", "k", "value"),
    [
        # Second actions v, x, v.
        ("unique_action", 2, 2 / 3),
        ("unique_observation", 2, 2 / 3),
        # Third: w, w, END.
        ("unique_action", 3, 2 / 3),
        # Shares 2/3 and 1/3 to base 3.
        ("entropy", 2, -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)) / math.log(3)),
        ("entropy", 1, 0),
        ("unique_prefix", 1, 1 / 3),
        ("unique_prefix", 2, 2 / 3),
        ("unique_prefix", 3, 1),
        # No bigrams in one action.
        ("bigram_jaccard", 1, 0),
        # {uv}, {ux}, {uv}: 1, 0, 1.
        ("bigram_jaccard", 2, 2 / 3),
        # {uv vw}, {ux xw}, {uv vE}: 1, 1 - 1/3, 1.
        ("bigram_jaccard", 3, 8 / 9),
        # Shares of rollouts with at most K - 1 steps.
        ("terminated", 2, 0),
        ("terminated", 3, 1 / 3),
        ("terminated", 4, 1),
    ],
)
def test_other_signals_by_hand(name: str, k: int, value: float) -> None:
    assert at(k, name) == pytest.approx(value, abs=1e-15)


def test_bigrams_without_padding() -> None:
    # {uv vw}, {ux xw}, {uv}: 1, 1 - 1/2, 1.
    assert at(3, "bigram_jaccard", pad=False) == pytest.approx(5 / 6, abs=1e-15)


def slow_signals(paths: list[list[str]], k: int, pad: bool) -> dict[str, float]:
    """The definitions, one rollout and one pair at a time; the padding is None."""
    ended = [(path + [END] * k)[:k] for path in paths]
    prefixes: list[Any] = ended if pad else [path[:k] for path in paths]
    size = len(paths)
    kth = [prefix[k - 1] for prefix in ended]
    shares = [kth.count(a) / size for a in set(kth)]
    bigrams = [set(pairwise(p)) for p in prefixes]
    pairs = list(combinations(range(size), 2))
    jaccard = [
        1 - len(bigrams[i] & bigrams[j]) / len(bigrams[i] | bigrams[j])
        if bigrams[i] | bigrams[j]
        else 0
        for i, j in pairs
    ]
    edits = [
        levenshtein(prefixes[i], prefixes[j]) / max(len(prefixes[i]), len(prefixes[j]))
        for i, j in pairs
    ]
    return {
        "distance": sum(edits) / len(pairs),
        "unique_action": len(set(kth)) / size,
        "unique_observation": len(set(kth)) / size,
        "entropy": -sum(p * math.log(p, size) for p in shares),
        "unique_prefix": len({tuple(p) for p in ended}) / size,
        "bigram_jaccard": sum(jaccard) / len(pairs),
        "terminated": sum(len(path) <= k - 1 for path in paths) / size,
    }


def levenshtein(a: list[Any], b: list[Any]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("pad", [True, False])
def test_signals_equal_their_definitions(
    seed: int, pad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random groups of 2 to 6 rollouts of 1 to 9 steps, also with pairs compared 4 at a time."""
    if seed % 2:
        monkeypatch.setattr(selective_rollout, "_PAIRS", 4)
    rng = np.random.default_rng(seed)
    groups = [
        [
            " ".join("abcd"[i] for i in rng.integers(0, rng.integers(1, 5), rng.integers(1, 10)))
            for _ in range(rng.integers(2, 7))
        ]
        for _ in range(5)
    ]
    together = heads(*groups)
    for k in (1, 2, 5, 9, 12):
        slow = [slow_signals([path.split() for path in group], k, pad) for group in groups]
        for name in SIGNALS:
            expected = [values[name] for values in slow]
            np.testing.assert_allclose(
                signal(together, name, k, pad=pad), expected, rtol=0, atol=1e-12, err_msg=name
            )


def test_a_mean_that_equals_the_threshold_is_not_below_it() -> None:
    # Pairs of ten actions at 3, 3 and 3 edits: 0.3 exactly, where adding tenths gives more.
    group = ["a a a u u u u u u u", "b b b u u u u u u u", "c c c u u u u u u u"]
    for pad in (True, False):
        assert at(10, group=group, pad=pad) == 0.3


# --- from logs ------------------------------------------------------------------------------------


def walk(name: str, actions: str, success: Any, group: Any = "g", **last: Any) -> Rows:
    return rollout(name, " ".join(f"o-{a}" for a in actions.split()), success, group=group, **last)


LOG = [
    # Three rollouts that fail alike: distance at 2 is 1/3 (see above), 8 steps.
    *walk("0", "u v w", False, "fails"),
    *walk("1", "u x w", False, "fails"),
    *walk("2", "u v", False, "fails"),
    # Two that differ in outcome and in every action: distance 1, 6 steps.
    *walk("0", "u v w", True, "mixed"),
    *walk("1", "x y z", False, "mixed"),
]


def gate(rows: Rows, folder: Path, suffix: str = ".parquet", **options: Any) -> GateReport:
    return crbc_cli.gate([str(write_log(rows, folder / f"log{suffix}"))], **options)


def test_gate_on_a_log(tmp_path: Path) -> None:
    report = gate(LOG, tmp_path, at=[2], thresholds=(0.3, 0.4))
    [strict, loose] = report.points
    assert report.groups.signals["distance"].tolist() == [[1 / 3, 1]]
    assert report.groups.t_max == 3
    assert strict.metrics.cut == 0
    assert strict.metrics.precision is None
    metrics = loose.metrics
    assert (metrics.cut, metrics.true_positives, metrics.false_positives) == (1, 1, 0)
    # (3 - 2) of 3 steps for one group of two; two of fourteen real steps come after step 2.
    assert metrics.safe == metrics.raw == 1 / 6
    assert metrics.realised == 2 / 14
    assert metrics.l2_preserved == 1
    assert report.groups.names["label"].to_list() == ["all_fail", "mixed"]


def test_step_limit_can_be_given(tmp_path: Path) -> None:
    [point] = gate(LOG, tmp_path, at=[2], thresholds=(0.4,), t_max=10).points
    assert point.metrics.safe == 8 / 20
    assert point.metrics.realised == 2 / 14


def test_actions_are_whole_values_and_the_padding_is_none_of_them(tmp_path: Path) -> None:
    # One action of two differs, though the texts share most letters.
    rows = [
        row | {"action": {"n": "go north", "s": "go south", "e": "<END>"}[row["action"]]}
        for row in [
            *walk("0", "n n", True, "texts"),
            *walk("1", "n s", True, "texts"),
            # An action that is called <END> is not the end: one substitution in two.
            *walk("0", "n e", True, "ends"),
            *walk("1", "n", True, "ends"),
        ]
    ]
    report = gate(rows, tmp_path, at=[2])
    assert report.groups.signals["distance"].tolist() == [[1 / 2, 1 / 2]]


def test_observations_count_as_anchors_do(tmp_path: Path) -> None:
    rows = [
        *rollout("0", "A-u B-u", True),
        *rollout("1", "A-u b-u", True),
        *rollout("2", "A-u C-u", False),
        *rollout("3", "A-u", False),
    ]
    exact = gate(rows, tmp_path, at=[2], signal="unique_observation", thresholds=(0.5,))
    folded = gate(
        rows, tmp_path, at=[2], signal="unique_observation", thresholds=(0.5,), normalize=("case",)
    )
    # B, b, C and the end; then b, c and the end.
    assert exact.groups.signals["unique_observation"].tolist() == [[1.0]]
    assert folded.groups.signals["unique_observation"].tolist() == [[0.75]]


def test_positives_follow_the_reward_that_is_asked_for(tmp_path: Path) -> None:
    rows = [
        *walk("0", "u v", True, reward=0.1),
        *walk("1", "u v", False, reward=0.1),
        *walk("2", "u v", False, reward=0.1),
    ]
    by_outcome = gate(rows, tmp_path, at=[1]).groups
    by_reward = gate(rows, tmp_path, at=[1], reward="last").groups
    # Outcomes 1, 0, 0: 1/3 · 2/3. Three times 0.1 has no variance, whatever their float mean is.
    assert by_outcome.variance == pytest.approx([2 / 9])
    assert by_reward.variance.tolist() == [0.0]


def test_rollouts_that_do_not_count_are_not_compared(tmp_path: Path) -> None:
    rows = [
        *LOG,
        *walk("3", "q q q q q", None, "fails"),
        *walk("4", "r r r r r", False, "fails", done=False),
        *walk("0", "u", True, "alone"),
    ]
    report = gate(rows, tmp_path, at=[2], thresholds=(0.4,), truncated="exclude")
    assert report.groups.names["group_id"].to_list() == ["fails", "mixed"]
    assert report.groups.left_out == 1
    assert report.groups.rollouts.tolist() == [3, 2]
    assert report.groups.signals["distance"].tolist() == [[1 / 3, 1]]
    # The cut rollout counts by default: ux, uv, uv and rr.
    all_cut = gate(rows, tmp_path, at=[2], thresholds=(0.4,))
    assert all_cut.groups.signals["distance"][0, 0] == pytest.approx((0.5 + 0 + 0.5 + 3) / 6)


def test_row_order_does_not_matter(tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(len(LOG))
    first = gate(LOG, tmp_path, at=[1, 2, 3], per_group=True).per_group().sort("group_id", "K")
    (tmp_path / "shuffled").mkdir()
    shuffled = gate(
        [LOG[i] for i in order], tmp_path / "shuffled", at=[3, 1, 2], per_group=True
    ).per_group()
    left, right = (f.drop("source_file") for f in (first, shuffled.sort("group_id", "K")))
    assert left.equals(right)


def test_several_logs_are_one_table(tmp_path: Path) -> None:
    words = write_log(LOG, tmp_path / "words.parquet")
    numbers = write_log([row | {"group_id": 7} for row in LOG[:8]], tmp_path / "numbers.jsonl")
    report = crbc_cli.gate([str(words), str(numbers)], at=[2], thresholds=(0.4,))
    assert report.groups.names["group_id"].to_list() == ["fails", "mixed", "7"]
    assert report.points[0].metrics.cut == 2


# --- from features --------------------------------------------------------------------------------

FEATURES = """\
group,K,prefix_distance,termination_fraction,reward_variance,rollouts,steps,steps_saved
a,2,0.05,0,0,4,20,12
b,2,0.10,0,0,4,20,12
c,2,0.15,0,0,4,20,12
d,2,0.50,0,0,4,12,4
e,2,0.12,0,0.25,4,20,12
f,2,0.30,0,0.1875,4,20,12
g,2,0.60,0,0.1875,4,20,12
h,2,0.70,0,0.1875,4,20,12
i,2,0.80,0,0.25,4,20,12
j,2,0.90,0,0.25,4,20,12
a,4,0.20,0,0,4,20,5
b,4,0.20,0,0,4,20,5
c,4,0.20,0,0,4,20,5
d,4,0.50,1,0,4,12,0
e,4,0.25,0.75,0.25,4,20,5
f,4,0.30,0,0.1875,4,20,5
g,4,0.60,0,0.1875,4,20,5
h,4,0.70,0,0.1875,4,20,5
i,4,0.80,0,0.25,4,20,5
j,4,0.90,0,0.25,4,20,5
"""
"""Ten groups of four, a to d without variance, 192 steps; T_max is 10 in the tests."""


@pytest.fixture
def features(tmp_path: Path) -> str:
    path = tmp_path / "features.csv"
    path.write_text(FEATURES)
    return str(path)


def measured(features: str, **options: Any) -> GateReport:
    return crbc_cli.gate(features=features, t_max=10, **options)


@pytest.mark.parametrize(
    ("k", "threshold", "or_terminated", "tp", "fp", "saved"),
    [
        # a and b; e stands at the threshold and stays.
        (2, 0.12, None, 2, 0, 24),
        (2, 0.13, None, 2, 1, 36),
        (2, 0.16, None, 3, 1, 48),
        (2, 0.04, None, 0, 0, 0),
        (4, 0.21, None, 3, 0, 15),
        # d has ended as a whole; it has nothing left to save.
        (4, 0.21, 0.9, 4, 0, 15),
        (4, 0.21, 0.75, 4, 1, 20),
    ],
)
def test_savings_by_hand(
    features: str,
    k: int,
    threshold: float,
    or_terminated: float | None,
    tp: int,
    fp: int,
    saved: int,
) -> None:
    rule = {"thresholds": (threshold,), "or_terminated": or_terminated}
    [point] = measured(features, at=[k], **rule).points
    m = point.metrics
    assert (m.true_positives, m.false_positives, m.cut) == (tp, fp, tp + fp)
    assert m.precision == (tp / (tp + fp) if tp + fp else None)
    assert m.recall == tp / 4
    # Each group could have gone on for 10 - K of 10 steps.
    assert m.safe == pytest.approx(tp * (10 - k) / 100, abs=1e-15)
    assert m.raw == pytest.approx((tp + fp) * (10 - k) / 100, abs=1e-15)
    assert m.realised == saved / 192
    # Every mixed group has |A|² = G but for the 1e-8, whatever its split.
    assert m.l2_preserved == pytest.approx(math.sqrt((6 - fp) / 6), abs=1e-8)
    assert m.items_dropped == (tp + fp) / 10


def test_terminated_cuts_from_its_threshold_on(features: str) -> None:
    report = measured(features, signal="terminated", thresholds=(0.75, 0.76), at=[4])
    assert [p.metrics.cut for p in report.points] == [2, 1]


def test_choice_of_a_threshold(features: str) -> None:
    report = measured(features, select=True, folds=2)
    # K = 2: 0.11 and 0.12 cut a and b, 0.13 is 2 of 3 and 0.16 3 of 4; the smaller wins the tie.
    # K = 4: 0.21 to 0.25 cut a, b and c; 0.26 is 3 of 4.
    assert [(p.k, p.threshold, p.chosen) for p in report.points] == [
        (2, 0.11, True),
        (4, 0.21, True),
    ]
    # 3 · 6 of 100 steps against 2 · 8.
    assert report.best == 1
    # Precision 3/4 is enough here: 0.16 gives 3 · 8 of 100 steps at K = 2.
    lax = measured(features, select=True, folds=2, min_precision=0.75)
    assert lax.best is not None
    assert (lax.points[lax.best].k, lax.points[lax.best].threshold) == (2, 0.16)


def test_nothing_is_chosen_where_nothing_is_precise(features: str) -> None:
    # Groups without variance are the most diverse ones.
    text = FEATURES.replace(",0.25,4", ",x,4").replace(",0.1875,4", ",x,4")
    swapped = text.replace(",0,4", ",0.25,4").replace(",x,4", ",0,4")
    Path(features).write_text(swapped)
    report = measured(features, select=True, folds=2)
    assert report.best is None
    assert [p.threshold for p in report.points] == [None, None]


def test_nothing_is_chosen_where_every_group_has_variance(features: str) -> None:
    Path(features).write_text(FEATURES.replace(",0,4", ",0.25,4"))
    report = measured(features, select=True, folds=2)
    assert report.best is None
    assert [row.choices for row in report.held_out] == [[None, None]] * 3
    assert [row.metrics.cut for row in report.held_out] == [0, 0, 0]
    assert report.points[0].metrics.recall is None


def test_cross_validation_repeats_the_rule_on_the_other_folds(features: str) -> None:
    report = measured(features, select=True, folds=3, seed=5)
    groups = report.groups
    zero = groups.variance == 0
    folds = np.array_split(np.random.default_rng(5).permutation(10), 3)

    def best(training: np.ndarray, ks: list[int]) -> tuple[int, float] | None:
        found = []
        for step in range(2, 41):
            for k in ks:
                cut = groups.signals["distance"][k][training] < step / 100
                hits = (cut & zero[training]).sum()
                if hits and hits / cut.sum() >= 0.8:
                    found.append((-hits * (10 - groups.at[k]), step, k))
        return (min(found)[2], min(found)[1] / 100) if found else None

    for row, ks in zip(report.held_out, [[0], [1], [0, 1]], strict=True):
        cut, saving = np.zeros(10, bool), 0.0
        for fold, choice in zip(folds, row.choices, strict=True):
            expected = best(np.setdiff1d(np.arange(10), fold), ks)
            if expected is None:
                assert choice is None
                continue
            k, threshold = expected
            assert choice == (groups.at[k], threshold)
            cut[fold] = groups.signals["distance"][k][fold] < threshold
            saving += (cut & zero)[fold].sum() * (10 - groups.at[k]) / 100
        assert row.metrics.cut == cut.sum()
        assert row.metrics.true_positives == (cut & zero).sum()
        assert row.metrics.safe == pytest.approx(saving)


def test_separation_equals_scipy(features: str) -> None:
    report = measured(features)
    variance = report.groups.variance
    for position, row in enumerate(report.separations()):
        distance = report.groups.signals["distance"][position]
        assert row["spearman"] == pytest.approx(stats.spearmanr(distance, variance).statistic)
        u = stats.mannwhitneyu(distance[variance > 0], distance[variance == 0]).statistic
        assert row["auroc"] == pytest.approx(u / 24)
        # Four groups that could go on for 8 or 6 of 10 steps.
        assert row["oracle_safe"] == pytest.approx(0.4 * (10 - row["k"]) / 10)
    # All of a to d: 40 of 192 steps lie beyond 2.
    assert report.separations()[0]["oracle_realised"] == 40 / 192


def test_constant_signal_separates_nothing() -> None:
    flat = Evidence(
        np.array([1]),
        np.full((1, 3), 0.5),
        None,
        None,
        None,
        np.array([0, 0.25, 0.25]),
        np.full(3, 8),
        10,
    )
    assert separation(flat, 0) == (None, 0.5)
    metrics = measure(flat, cut_groups(flat, 0, 0.6, None), 0)
    assert metrics.l2_preserved == 0
    assert metrics.realised is None


def test_per_group_csv_is_a_table_of_features(tmp_path: Path) -> None:
    log = write_log(LOG, tmp_path / "log.parquet")
    table = tmp_path / "groups.csv"
    table.write_text(crbc("gate", log, "--at", "1..3", "--per-group", "--csv").text)
    for name in SIGNALS:
        rule = ("--signal", name, "--threshold", "0.5", "--at", "1..3", "--json")
        direct = crbc("gate", log, *rule).json
        again = crbc("gate", "--features", table, "--t-max", "3", *rule).json
        assert again["points"] == direct["points"]
        assert again["separation"] == direct["separation"]


def test_names_of_the_published_file_are_understood(features: str) -> None:
    ours = measured(features).points
    header, _, rest = FEATURES.partition("\n")
    published = header.replace("group", "task_id").replace("variance", "var")
    published = published.replace("prefix_distance", "prefix_edit_distance_mean")
    Path(features).write_text(f"{published}\n{rest}")
    assert measured(features).points == ours


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("prefix_distance", "other"), ColumnError),
        (("group,", "name,"), ColumnError),
        (("j,4,0.90", "j,4,"), ColumnError),
        (("j,4,0.90", "j,4,much"), ColumnError),
        (("j,4,", "j,4.5,"), ColumnError),
        (("j,4,", "j,0,"), ColumnError),
        (("j,4,", "i,4,"), IdentityError),
        (("j,4,0.90,0,0.25,4,20,5\n", ""), IdentityError),
    ],
)
def test_features_that_cannot_be_used(
    features: str, change: tuple[str, str], error: type[CrbcError]
) -> None:
    assert FEATURES.count(change[0]) >= 1
    Path(features).write_text(FEATURES.replace(*change))
    with pytest.raises(error):
        measured(features)


def test_features_need_a_step_limit_and_known_steps(features: str) -> None:
    with pytest.raises(OptionError, match="--t-max"):
        crbc_cli.gate(features=features)
    with pytest.raises(OptionError, match="K = 2, 4"):
        measured(features, at=[3])


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 200])
def test_tables_fit(features: str, width: int) -> None:
    arguments = ("--t-max", "10", "--or-terminated", "0.9", "--threshold", "0.21", "--select")
    ended = crbc("gate", "--features", features, *arguments, env={"COLUMNS": str(width)})
    assert ended.code == 0
    assert max(map(len, ended.text.splitlines())) <= width
    assert "10 groups, 4 without reward variance (40.0 %)" in ended.text
    assert "Cut after K steps if distance < D or terminated >= 0.9" in ended.text
    row = " 4   0.21    4   4   0  1.0000  1.0000  24.00  24.00   7.81  1.0000  40.0"
    assert row.split() in [line.split() for line in ended.text.splitlines()]


@pytest.mark.parametrize(
    ("folds", "said"),
    [
        (2, "Cross-validation confirms it: on groups that it was not made on, such a choice had "
            "precision 1 and saved 12.0 % safely."),
        (10, "Cross-validation does not confirm it: on groups that it was not made on, such a "
             "choice had precision 0.6667 and saved 12.0 % safely."),
    ],
)  # fmt: skip
def test_a_recommendation_says_whether_it_is_confirmed(
    features: str, folds: int, said: str
) -> None:
    """Against --min-precision 0.8; the numbers are the last row of the cross-validation."""
    metrics = measured(features, select=True, folds=folds).held_out[-1].metrics
    assert metrics.precision == (1 if folds == 2 else 2 / 3)
    assert metrics.safe == pytest.approx(0.12)
    select = ("--t-max", "10", "--select", "--folds", folds)
    text = crbc("gate", "--features", features, *select, env={"COLUMNS": "300"}).text
    assert text.splitlines()[-1].endswith(said)
    assert "TP, FP: cut groups" in text


def test_no_recommendation_is_one_sentence_and_no_table_of_zeros(features: str) -> None:
    Path(features).write_text(FEATURES.replace(",0,4", ",0.25,4"))
    select = ("gate", "--features", features, "--t-max", "10", "--select")
    text = crbc(*select).text
    assert "nothing to recommend" in text.splitlines()[-1]
    assert "recall" not in text
    assert "recall" in crbc(*select, "--threshold", "0.12").text, "what is asked for is shown"


def test_a_step_beyond_all_rollouts_is_warned_of() -> None:
    """The golden group's longest rollout has 3 steps."""
    assert crbc("gate", GOLDEN, "--at", "2,3").stderr == ""
    line = "warning: --at 4 is beyond the longest rollout (3 steps): nothing can be saved there"
    assert crbc("gate", GOLDEN, "--at", "3..5").stderr.splitlines() == [line]


def test_signals_that_completion_knows() -> None:
    assert tuple(SIGNALS) == SIGNAL_NAMES


def test_groups_are_listed(features: str) -> None:
    rule = ("--at", "4", "--threshold", "0.21", "--or-terminated", "0.9")
    ended = crbc("gate", "--features", features, "--t-max", "10", *rule, "--per-group")
    listed = [line.split() for line in ended.text.splitlines()]
    assert ["b", "4", "0.200", "0.000", "0.0000", "cut"] in listed
    assert ["d", "4", "0.500", "1.000", "0.0000", "cut"] in listed
    assert ["e", "4", "0.250", "0.750", "0.2500"] in listed


def test_csv_has_a_row_per_point_and_per_validation(features: str) -> None:
    arguments = ("--t-max", "10", "--threshold", "0.12", "--select", "--folds", "2", "--csv")
    lines = crbc("gate", "--features", features, *arguments).text.splitlines()
    assert lines[0].startswith("kind,k,threshold,groups,cut,")
    assert [line.split(",")[:3] for line in lines[1:]] == [
        ["fixed", "2", "0.12"],
        ["fixed", "4", "0.12"],
        ["chosen", "2", "0.11"],
        ["chosen", "4", "0.21"],
        ["held_out", "2", ""],
        ["held_out", "4", ""],
        ["held_out", "", ""],
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--at", "0"),
        ("--at", "5..3"),
        ("--at", "x"),
        ("--threshold", "low"),
        ("--threshold", "nan"),
        ("--signal", "surprise"),
        ("--signal", "entropy"),
        ("--signal", "terminated", "--threshold", "0.9", "--or-terminated", "0.9"),
        ("--or-terminated", "2"),
        ("--t-max", "-1"),
        ("--select", "--folds", "1"),
        ("--select", "--folds", "2"),
        ("--select", "--seed", "-1"),
        ("--select", "--min-precision", "1.1"),
        ("--per-group", "--threshold", "0.1,0.2"),
        ("--features", GOLDEN, "--t-max", "3"),
    ],
)
def test_refused(arguments: tuple[object, ...]) -> None:
    crbc("gate", GOLDEN, *arguments).refused()


def test_padding_cannot_be_undone_in_features(features: str) -> None:
    line = crbc("gate", "--features", features, "--t-max", "10", "--no-pad").refused()
    assert "--no-pad" in line


def test_features_file_that_is_missing() -> None:
    line = crbc("gate", "--features", "nowhere.csv", "--t-max", "10").refused()
    assert "nowhere.csv" in line


def test_logs_without_groups_to_judge(tmp_path: Path) -> None:
    alone = write_log(walk("0", "u v", True), tmp_path / "alone.jsonl")
    ended = crbc("gate", alone, "--json")
    assert ended.code == 0
    assert ended.json["groups"] == 0
    assert ended.json["groups_left_out"] == 1
    assert ended.json["points"][0]["safe"] is None
    assert "1 group left out" in ended.stderr
