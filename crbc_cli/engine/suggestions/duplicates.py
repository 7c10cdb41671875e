"""Anchors of one group whose texts are nearly equal, with what they differ in.

Texts are compared by rapidfuzz's normalised Indel similarity inside some groups of a sample. Of
nearly equal texts only those are told that differ in something that never is a state (a clock, a
counter, white space, …), or whose common actions always led to the same reply.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.engine.suggestions.sample import Sample
from crbc_cli.engine.suggestions.trial import Trial
from crbc_cli.engine.suggestions.volatile import SPAN, Mask, reply_texts, span_kind
from crbc_cli.process.agreement import codes, distinct_per

__all__ = ["Duplicate", "near_duplicates"]

_GROUPS = 12
_TEXTS = 120
_LENGTH = 300
_PAIRS = 60
_ALIKE = 0.85
_MOST = 8
_NEVER_STATES = (
    *("clock", "timestamp", "date", "uuid", "id", "counter", "labelled number"),
    *("white space", "case"),
)


Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Duplicate:
    """Two anchors that may be one.

    Attributes:
      kind: what the texts differ in: clock, counter, uuid, id, labelled number, white space, case,
        list order, task text, status line, digits or words.
      group: group of the sample.
      first, second: the texts.
      visits: visits of both.
      same, different: common actions after which both saw the same reply, and another one.
      pairs: how many such pairs there are of this kind.
    """

    kind: str
    group: int
    first: str
    second: str
    visits: int
    same: int
    different: int
    pairs: int

    @property
    def spans(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(begin, end) of what differs, in each text; widened to whole words."""
        return _spans(self.first, self.second)


def near_duplicates(
    sample: Sample, rules: RuleFile, now: Trial, masks: Sequence[Mask]
) -> list[Duplicate]:
    """The clearest pair of each kind, kinds with many pairs first.

    Args:
      sample: rows.
      rules: rules in force.
      now: their trial.
      masks: volatile spans of the sample.
    """
    texts = reply_texts(sample, rules)
    table = (
        pl.DataFrame({"group": sample.group, "anchor": now.rows.anchor, "text": texts})
        .with_row_index("row")
        .filter(pl.Series(now.rows.visit & now.rows.said) & texts.is_not_null())
        .group_by("group", "anchor", maintain_order=True)
        .agg(pl.col("text").first(), pl.len().alias("visits"))
    )
    found: dict[str, list[Duplicate]] = {}
    groups = table["group"].unique(maintain_order=True).head(_GROUPS)
    behaviour = _Behaviour(sample, now, sample.base(rules))
    for group in groups:
        own = table.filter(pl.col("group") == group).sort(
            "visits", descending=True, maintain_order=True
        )
        for duplicate in _pairs_of(own.head(_TEXTS), group, behaviour, masks):
            found.setdefault(duplicate.kind, []).append(duplicate)
    best = [
        replace(max(pairs, key=lambda d: (d.same, d.visits)), pairs=len(pairs))
        for pairs in found.values()
    ]
    return sorted(best, key=lambda d: -d.pairs)[:_MOST]


class _Behaviour:
    """What actions led to at anchors of a sample; only actions that do not lead to the same from
    everywhere in their group."""

    def __init__(self, sample: Sample, now: Trial, base: Ints) -> None:
        rows, at = now.rows, now.at
        outcome = sample.outcome(base)[at]
        command = codes(sample.group[at], rows.action[at])
        telling = (distinct_per(command, outcome) > 1)[command]
        order = np.argsort(rows.anchor[at][telling], kind="stable")
        self._anchor = rows.anchor[at][telling][order]
        self._action, self._outcome = rows.action[at][telling][order], outcome[telling][order]
        self._seen: dict[int, dict[int, set[int]]] = {}

    def of(self, anchor: int) -> dict[int, set[int]]:
        """Action -> what followed."""
        if anchor not in self._seen:
            begin, end = np.searchsorted(self._anchor, [anchor, anchor + 1])
            seen = self._seen[anchor] = {}
            mine = slice(begin, end)
            for action, after in zip(self._action[mine], self._outcome[mine], strict=True):
                seen.setdefault(int(action), set()).add(int(after))
        return self._seen[anchor]


def _pairs_of(
    table: pl.DataFrame, group: int, behaviour: _Behaviour, masks: Sequence[Mask]
) -> Iterator[Duplicate]:
    from rapidfuzz.distance import Indel
    from rapidfuzz.process import cdist

    texts: list[str] = table["text"].to_list()
    anchors, visits = table["anchor"].to_list(), table["visits"].to_list()
    short = [(t if len(t) <= 2 * _LENGTH else t[:_LENGTH] + t[-_LENGTH:]).lower() for t in texts]
    alike = cdist(
        short, short, scorer=Indel.normalized_similarity, score_cutoff=_ALIKE, dtype=np.float32
    )
    first, second = np.nonzero(np.triu(alike, 1))
    order = np.argsort(-alike[first, second], kind="stable")[:_PAIRS]
    for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if texts[i] == texts[j]:
            continue
        kind = _kind(texts[i], texts[j], masks)
        one, two = behaviour.of(anchors[i]), behaviour.of(anchors[j])
        common = one.keys() & two.keys()
        same = sum(one[action] == two[action] for action in common)
        different = sum(not one[action] & two[action] for action in common)
        least = 2 if kind in ("words", "digits") else 1
        if kind in _NEVER_STATES or (same >= least and not different):
            yield Duplicate(
                kind, group, texts[i], texts[j], visits[i] + visits[j], same, different, 1
            )


def _kind(one: str, two: str, masks: Sequence[Mask]) -> str:
    if " ".join(one.split()) == " ".join(two.split()):
        return "white space"
    if " ".join(one.lower().split()) == " ".join(two.lower().split()):
        return "case"
    for mask in masks:
        if _cut(mask.pattern, one) == _cut(mask.pattern, two):
            return mask.kind
    if sorted(re.split(r"[\s,;|]+", one)) == sorted(re.split(r"[\s,;|]+", two)):
        return "list order"
    short, long = sorted((one.strip(), two.strip()), key=len)
    if long.startswith(short) or long.endswith(short):
        return "task text"
    (begin, end), (start, stop) = _spans(one, two)
    spans = one[begin:end], two[start:stop]
    kinds = [SPAN.fullmatch(span.strip()) for span in spans]
    if kinds[0] and kinds[1] and span_kind(kinds[0]) == span_kind(kinds[1]):
        kind = span_kind(kinds[0])
        return "digits" if kind == "number" else kind
    last_lines = one.rstrip().rfind("\n"), two.rstrip().rfind("\n")
    return "status line" if begin > last_lines[0] > 0 and start > last_lines[1] > 0 else "words"


def _cut(pattern: str, text: str) -> str:
    return re.sub(pattern, "", text).strip()


def _spans(one: str, two: str) -> tuple[tuple[int, int], tuple[int, int]]:
    most = min(len(one), len(two))
    begin = 0
    while begin < most and one[begin] == two[begin]:
        begin += 1
    behind = 0
    while behind < most - begin and one[-1 - behind] == two[-1 - behind]:
        behind += 1
    return _widened(one, begin, len(one) - behind), _widened(two, begin, len(two) - behind)


def _widened(text: str, begin: int, end: int) -> tuple[int, int]:
    """A span made whole: words, and clocks, ids or numbers, are not cut in two."""
    while begin and text[begin - 1].isalnum():
        begin -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    for match in SPAN.finditer(text):
        if match.start() < max(end, begin + 1) and match.end() > begin:
            begin, end = min(begin, match.start()), max(end, match.end())
    return begin, end
