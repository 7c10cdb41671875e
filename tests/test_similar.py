"""--merge-similar: nearly equal texts of a group become one anchor, whatever their order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import ROOT, crbc
from helpers import package_credit, prepared, rollout, write_log
from hypothesis import given
from hypothesis import strategies as st

import crbc_cli
from crbc_cli.engine import merging
from crbc_cli.errors import OptionError
from crbc_cli.methods.similarity import merged_texts

Rows = list[dict[str, Any]]

# 50 letters each; neighbours differ in two of them (similarity 0.96), the outer two in four (0.92).
CHAIN = ["a" * 46 + "wwxx", "a" * 46 + "wwyy", "a" * 46 + "zzyy"]


# --- the rule -------------------------------------------------------------------------------------


def table_similarity(a: str, b: str) -> float:
    """2·LCS/(|a| + |b|) by the textbook table."""
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            table[i, j] = (
                table[i - 1, j - 1] + 1 if x == y else max(table[i - 1, j], table[i, j - 1])
            )
    return 2 * table[-1, -1] / (len(a) + len(b)) if a or b else 1.0


def components_by_hand(texts: list[str], threshold: float) -> list[set[int]]:
    """Connected components by merging sets."""
    parts = [{i} for i in range(len(texts))]
    for i, a in enumerate(texts):
        for j in range(i):
            if table_similarity(a, texts[j]) >= threshold - 1e-9:
                one, other = (next(p for p in parts if k in p) for k in (i, j))
                if one is not other:
                    parts.remove(other)
                    one |= other
    return parts


@given(
    st.lists(st.text("ab\u00e9\U0001f600", max_size=6), max_size=9), st.sampled_from([0.5, 0.8, 1])
)
def test_components_of_alike_texts(texts: list[str], threshold: float) -> None:
    merged = merged_texts(texts, threshold)
    expected = components_by_hand(texts, threshold)
    for part in expected:
        smallest = min((texts[i] for i in part), key=lambda text: text.encode())
        assert len({merged.member[i] for i in part}) == 1
        assert texts[merged.member[next(iter(part))]] == smallest
    pairs = [
        [table_similarity(texts[i], texts[j]) for i in part for j in part if i < j]
        for part in expected
        if len(part) > 1
    ]
    chains = [least for least in map(min, pairs) if least < threshold - 1e-9]
    assert merged.chains == len(chains)
    assert merged.least == pytest.approx(min(chains or map(min, pairs), default=1.0))


def test_more_texts_than_one_block() -> None:
    """600 texts of which each is alike to the next, and to none further on: one chain."""
    texts = [("x" * i + "y" * (600 - i)) for i in range(600)]
    merged = merged_texts(texts, 2 * 599 / 1200)
    assert set(merged.member.tolist()) == {599}  # "xx…xy" sorts first
    assert merged.chains == 1
    assert merged.least == pytest.approx(2 / 1200)


# --- in a log -------------------------------------------------------------------------------------


def log_of(*texts: str, group: str = "g") -> Rows:
    return [
        row | {"observation": text}
        for i, text in enumerate(texts)
        for row in rollout(i, "S-a", i % 2, group=group)
    ]


def anchors_of(rows: Rows, **options: Any) -> list[Any]:
    return package_credit(rows, **options)["anchor"]


def test_it_is_off_unless_asked_for() -> None:
    assert anchors_of(log_of(*CHAIN)) == [0, 1, 2]
    assert anchors_of(log_of(*CHAIN), merge_similar=0.0) == [0, 1, 2]


def test_the_threshold_counts_as_reached() -> None:
    assert anchors_of(log_of(*CHAIN[:2]), merge_similar=0.96) == [0, 0]
    assert anchors_of(log_of(*CHAIN[:2]), merge_similar=0.961) == [0, 1]


def test_what_is_merged_does_not_depend_on_order() -> None:
    for order in ([0, 1, 2], [2, 0, 1], [0, 2, 1]):
        assert anchors_of(log_of(*(CHAIN[i] for i in order)), merge_similar=0.95) == [0, 0, 0]


def test_groups_are_merged_apart() -> None:
    """The text between the outer two stands in another group."""
    rows = log_of(CHAIN[0], CHAIN[2]) + log_of(CHAIN[1], group="h")
    assert anchors_of(rows, merge_similar=0.95) == [0, 1, 0]


def test_operations_come_first() -> None:
    """Masked texts are compared: here 46 of 46 letters in place of 46 of 50."""
    assert anchors_of(log_of(CHAIN[0], CHAIN[2]), merge_similar=0.99, mask=["[w-z]+"]) == [0, 0]


def test_carried_context_still_tells_apart() -> None:
    """Replies merge, anchors with another heading do not."""
    view = "You see a wall 5 steps left.\nYou see a red ball {} steps forward and 1 step left."
    rows = [
        {
            "group_id": "g",
            "rollout_id": 0,
            "step": step,
            "observation": view.format(3 + step % 2),
            "action": action,
            "success": True,
            "done": step == 3,
        }
        for step, action in enumerate(["toggle", "turn left", "toggle", "toggle"])
    ]
    assert anchors_of(rows, preset="minigrid", merge_similar=0.95) == [0, 0, 1, 1]
    assert anchors_of(rows, preset="minigrid") == [0, 1, 2, 3]


def test_json_is_compared_as_text_and_pictures_are_not() -> None:
    rows = log_of("x", "y")
    for row, last in zip(rows, (3, 4), strict=True):
        row["observation"] = {"room": "a long hall with doors", "n": last}
    assert anchors_of(rows, merge_similar=0.9) == [0, 0]
    for row, last in zip(rows, (b"3", b"4"), strict=True):
        row["observation"] = b"the same long bytes, nearly" + last
    assert anchors_of(rows, merge_similar=0.9) == [0, 1]


def test_ids_do_not_depend_on_order(tmp_path: Path) -> None:
    ids = []
    for name, texts in (("one", CHAIN), ("other", CHAIN[::-1])):
        path = write_log(log_of(*texts), tmp_path / f"{name}.parquet")
        output = tmp_path / f"{name}.credit.parquet"
        crbc_cli.annotate([str(path)], str(output), anchor_id=True, merge_similar=0.95)
        ids.append(set(pl.read_parquet(output)["anchor_id"]))
    assert len(ids[0]) == 1
    assert ids[0] == ids[1]


def test_an_observation_after_the_end_joins_what_its_text_joins() -> None:
    """Bootstrapping at a text that was merged elsewhere in the group."""
    rows = log_of(*CHAIN)
    cut = rollout(9, "S-b", 0, done=False, truncated=True, next_observation=CHAIN[2])
    rows += [row | {"observation": "elsewhere"} for row in cut]
    log = prepared(rows, merge_similar=0.95, truncated="bootstrap")
    assert log.next_key[log.continues].tolist() == [log.anchor_key[0]]
    plain = prepared(rows, truncated="bootstrap")
    assert plain.next_key[plain.continues].tolist() == [plain.anchor_key[2]]


def test_row_order_changes_no_number() -> None:
    rows = pl.read_parquet(ROOT / "sample_logs" / "alfworld.parquet").head(800)
    rows = rows.select("group_id", "rollout_id", "step", "observation", "action", "success", "done")
    order = list(range(rows.height))
    random.Random(0).shuffle(order)
    straight = package_credit(rows.to_dicts(), merge_similar=0.9)
    mixed = package_credit(rows[order].to_dicts(), merge_similar=0.9)
    for name in ("anchor", "visits", "credit"):
        assert [straight[name][i] for i in order] == mixed[name], name


# --- what is said ---------------------------------------------------------------------------------


def said(rows: Rows, tmp_path: Path, *options: object) -> list[str]:
    path = write_log(rows, tmp_path / "log.parquet")
    return crbc("coverage", path, *options).stderr.splitlines()


def test_counts_and_chains_are_told(tmp_path: Path) -> None:
    pair = said(log_of(*CHAIN[:2]), tmp_path, "--merge-similar", "0.95")
    [line] = [line for line in pair if "merge-similar" in line]
    assert "joined 1 of 2 different replies to others, in 1 group" in line
    assert line.endswith("the least similar pair in one anchor has 0.960")
    chain = said(log_of(*CHAIN), tmp_path, "--merge-similar", "0.95")
    [warning] = [line for line in chain if line.startswith("warning: ")]
    assert "1 anchors merged by --merge-similar are chains" in warning
    assert "(down to 0.920)" in warning


def test_anchors_without_text_are_told(tmp_path: Path) -> None:
    options = ("--merge-similar", "0.95", "--preset", "tool-calling")
    assert any("changes nothing" in line for line in said(log_of(*CHAIN), tmp_path, *options))


def test_too_many_texts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MOST_TEXTS", 2)
    path = write_log(log_of(*CHAIN), tmp_path / "log.parquet")
    line = crbc("coverage", path, "--merge-similar", "0.95").refused()
    assert "log.parquet row 0: --merge-similar: a group has 3 different replies" in line


@pytest.mark.parametrize("value", ["-0.1", "1.5", "95"])
def test_shares_only(value: str, tmp_path: Path) -> None:
    path = write_log(log_of(*CHAIN), tmp_path / "log.parquet")
    assert "is not between 0 and 1" in crbc("coverage", path, "--merge-similar", value).refused()
    with pytest.raises(OptionError):
        prepared(log_of(*CHAIN), merge_similar=float(value))
