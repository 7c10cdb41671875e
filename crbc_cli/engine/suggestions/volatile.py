"""Spans of text that change from step to step without telling anything: clocks, counters, ids.

A span is known by its kind and by what stands around it (`Step `…` of`). What counts is how its
values run along rollouts: a counter rises with nearly every step, an id hardly ever comes twice.
Numbers that commands name (`drawer 2`) are none of these.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crbc_cli.anchors.ops import apply_ops, option_ops
from crbc_cli.anchors.rulefile import Op, RuleFile
from crbc_cli.engine.suggestions.frames import escaped
from crbc_cli.engine.suggestions.sample import Sample

__all__ = ["SPAN", "Mask", "masks", "reply_texts", "span_kind"]

SPAN = re.compile(
    r"(?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})"
    r"|(?P<timestamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"|(?P<date>\d{4}-\d\d-\d\d)"
    r"|(?P<clock>\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?\b)"
    r"|(?P<id>\b(?=[0-9A-Za-z]*\d)(?=[0-9A-Za-z]*[A-Za-z])[0-9A-Za-z]{6,}\b)"
    r"|(?P<number>-?\d+(?:\.\d+)?)"
)
"""Spans that may be volatile, by kind."""

_PATTERNS = {
    "uuid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "timestamp": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?",
    "date": r"\d{4}-\d\d-\d\d",
    "clock": r"\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?",
    "id": r"[0-9A-Za-z]{6,}",
    "number": r"-?\d+(?:\.\d+)?",
}
_LABEL = re.compile(r"(?:[^\W\d_][\w-]*[^\w\n]*)?[^\w\n]*$")
_AFTER = re.compile(r"[^\w\n]{0,3}")
_CLOSING = re.compile(r"[)\]}>|,;.:]*\s*")
_MOST_ROWS = 6000
_LEAST_ROWS = 10
_MOST_CONTEXTS = 200


@dataclass(frozen=True)
class Mask:
    """A span that seems to be volatile.

    Attributes:
      kind: uuid, timestamp, date, clock, id, counter or labelled number.
      pattern: what to cut, as for `--mask`.
      certain: its values alone show that it is volatile; a labelled number has to prove it.
      why: the evidence.
    """

    kind: str
    pattern: str
    certain: bool
    why: str

    @property
    def op(self) -> Op:
        """The text operation."""
        return Op(op="replace", pattern=self.pattern)


def reply_texts(sample: Sample, rules: RuleFile) -> pl.Series:
    """Replies after the text operations of options and rules, String (n,)."""
    ops = (*option_ops(sample.options), *rules.reply)
    distinct = sample.observation.unique().to_frame("text")
    table = distinct.with_columns(apply_ops(pl.col("text"), ops).alias("after"))
    rows = sample.observation.to_frame("text")
    return rows.join(table, on="text", how="left", nulls_equal=True, maintain_order="left")["after"]


def span_kind(match: "re.Match[str]") -> str:
    """Name of the group that matched."""
    return str(match.lastgroup)


@dataclass(frozen=True)
class _Span:
    """One occurrence: what stands around it, its value, and the text before and after it."""

    kind: str
    value: str
    left: str
    right: str

    @property
    def context(self) -> tuple[str, str, str]:
        label, after = _LABEL.search(self.left), _AFTER.match(self.right)
        before = label[0] if label else ""
        at_start = "^" if before == self.left else ""
        behind = after[0] if after else ""
        at_end = "$" if not self.right[len(behind) :].strip() else ""
        return self.kind, at_start + before[-24:], behind.strip() + at_end


def masks(sample: Sample, rules: RuleFile) -> list[Mask]:
    """Spans that seem volatile, the surest first.

    Args:
      sample: rows.
      rules: rules so far.
    """
    most = min(_MOST_ROWS, len(sample.rollout))
    texts = reply_texts(sample, rules).head(most)
    distinct = texts.drop_nulls().unique(maintain_order=True)
    spans: defaultdict[tuple[str, str, str], list[tuple[str, _Span]]] = defaultdict(list)
    for text in distinct:
        for span in _spans(text):
            spans[span.context].append((text, span))
    frequent = sorted(spans.items(), key=lambda item: -len(item[1]))[:_MOST_CONTEXTS]
    found = [_judged(sample, texts, context, seen) for context, seen in frequent]
    return sorted((mask for mask in found if mask), key=lambda mask: not mask.certain)


def _spans(text: str) -> Iterator[_Span]:
    end = 0
    for match in SPAN.finditer(text):
        following = SPAN.search(text, match.end())
        stop = following.start() if following else len(text)
        yield _Span(span_kind(match), match[0], text[end : match.start()], text[match.end() : stop])
        end = match.end()


def _judged(
    sample: Sample,
    texts: pl.Series,
    context: tuple[str, str, str],
    seen: Sequence[tuple[str, _Span]],
) -> Mask | None:
    """The mask for a context if its values run like those of something volatile."""
    values = {text: span.value for text, span in seen}
    if len(seen) > 1.5 * len(values) or len(set(values.values())) < 3:
        return None
    table = pl.DataFrame({"text": list(values), "value": list(values.values())})
    value = texts.to_frame("text").join(table, on="text", how="left", maintain_order="left")[
        "value"
    ]
    row = np.flatnonzero(value.is_not_null().to_numpy())
    if len(row) < _LEAST_ROWS:
        return None
    kind, label, _ = context
    run = _Run.of(sample, row, value)
    certain = True
    if kind == "number":
        certain = run.rises and not run.named
        kind = "counter" if certain else "labelled number"
        if not certain and (run.named or not re.search(r"[^\W\d_][^\w\n]*[:=]\s*$", label)):
            return None
    elif (kind == "id" and not (run.new >= 0.5 and _mixed(values.values()))) or run.new < 0.05 or run.named:
        return None
    pattern = _pattern(context[0], [span for _, span in seen])
    return Mask(kind, pattern, certain, f"{run.told}, in {len(row) / len(texts):.0%} of the rows")


@dataclass(frozen=True)
class _Run:
    """How the values of a span run along rollouts.

    Attributes:
      new: distinct values per row.
      up, down: shares of steps from row to row that rise and fall.
      steps: number of such steps.
      named: the command before names the value more often than not by chance.
    """

    new: float
    up: float
    down: float
    steps: int
    named: bool

    @classmethod
    def of(cls, sample: Sample, row: Any, value: pl.Series) -> "_Run":
        told = value.gather(row)
        number = told.str.extract(r"^(-?\d+(?:\.\d+)?)$", 1).cast(pl.Float64).to_numpy()
        follows = (np.diff(row) == 1) & (np.diff(sample.rollout[row]) == 0)
        change = np.diff(number)[follows]
        before = row[1:][follows] - 1
        command = sample.action.gather(before).fill_null("")
        words = pl.DataFrame(
            {"command": command, "value": told.gather(1 + np.flatnonzero(follows))}
        )
        named = words.select(
            pl.col("command").str.extract_all(r"[\w.:-]+").list.contains(pl.col("value")).mean()
        ).item()
        steps = len(change)
        return cls(
            told.n_unique() / len(row),
            float((change > 0).mean()) if steps else 0.0,
            float((change < 0).mean()) if steps else 0.0,
            steps,
            bool(named and named > 0.2),
        )

    @property
    def rises(self) -> bool:
        """Like a counter of steps."""
        return self.steps >= _LEAST_ROWS and self.up >= 0.5 and self.down <= 0.02

    @property
    def told(self) -> str:
        if self.rises:
            return f"rises with {self.up:.0%} of the steps and never comes back"
        return f"{self.new:.0%} of its values are new"


def _mixed(values: Any) -> bool:
    """Whether ids look random: most change between letters and digits at least twice."""
    changes = [
        sum(a.isdigit() != b.isdigit() for a, b in zip(v, v[1:], strict=False)) for v in values
    ]
    return bool(np.median(changes) >= 2)


def _pattern(kind: str, spans: Sequence[_Span]) -> str:
    """Regular expression for spans in one context, with what always stands around them."""
    left = _common([span.left[::-1] for span in spans])[::-1]
    right = _common([span.right for span in spans])
    at_start = all(span.left == left for span in spans) and not spans[0].left.strip(" \t\n([{<|")
    left = re.split(r"[\n.!?]", left)[-1]
    closing = _CLOSING.match(right)
    right = closing[0] if closing else ""
    at_end = all(not span.right[len(right) :].strip() for span in spans)
    core = _PATTERNS[kind]
    if kind == "number" and not any("." in span.value for span in spans):
        core = r"-?\d+" if any(span.value[0] == "-" for span in spans) else r"\d+"
    body = escaped(left) + core + escaped(right.rstrip())
    if at_end:
        return rf"\s*{body.lstrip()}\s*$"
    return (rf"^\s*{body.lstrip()}" if at_start else body) + (
        r"\s*" if right != right.rstrip() else ""
    )


def _common(texts: Sequence[str]) -> str:
    """Longest common beginning."""
    low, high = min(texts), max(texts)
    size = 0
    while size < min(len(low), len(high)) and low[size] == high[size]:
        size += 1
    return low[:size]
