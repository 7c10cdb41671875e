"""Spans of text that change from step to step without telling anything: clocks, counters, ids.

A span is known by its kind and by what stands around it (`Step `…` of`). What counts is how its
values run along rollouts: a counter rises with nearly every step, an id hardly ever comes twice.
Numbers that commands name (`drawer 2`) are none of these.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from crbc_cli.anchors.ops import apply_ops, option_ops
from crbc_cli.anchors.rulefile import Op, RuleFile
from crbc_cli.engine.suggestions.frames import escaped
from crbc_cli.engine.suggestions.runs import LEAST_ROWS, Run
from crbc_cli.engine.suggestions.sample import Sample

__all__ = ["SPAN", "Mask", "common_beginning", "masks", "reply_texts", "span_kind"]

SPAN = re.compile(
    r"(?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})"
    r"|(?P<timestamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"|(?P<date>\d{4}-\d\d-\d\d)"
    r"|(?P<clock>\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?\b)"
    r"|(?P<id>\b(?=[0-9A-Za-z]*\d)(?=[0-9A-Za-z]*[A-Za-z])[0-9A-Za-z]{6,}\b)"
    r"|(?P<number>(?:(?<!\w)-)?\d+(?:\.\d+)?)"
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
_INTRODUCTION = re.compile(r"(?:^|(?<=\s))[(\[{<|]?(?:[^\W\d][\w-]*?[\s:=#-]+){0,3}[^\w\s]*\s*$")
_AFTER = re.compile(r"[^\w\n]{0,3}")
_CLOSING = re.compile(r"[)\]}>|,;.:]*\s*")
_OUT_OF = re.compile(r"\s*(?:of|/)\s*\d+[)\]}>|,;.:]*\s*")
_MOST_ROWS = 4000
_BEHIND = 60
_MOST_CONTEXTS = 200
_NEW = 0.5
_TIMES = ("timestamp", "date", "clock")
_PLAIN = ("uuid", "timestamp", "clock")
"""What is volatile by its form, if no value comes twice."""


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
    """One occurrence: its value, the text since the span before, some text behind it, and whether
    it is the first of its text."""

    kind: str
    value: str
    left: str
    right: str
    first: bool

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
    found: dict[str, Mask] = {}
    for context, seen in frequent:
        mask = _judged(sample, texts, context, seen)
        if mask is not None:
            found.setdefault(mask.pattern, mask)
    return sorted(found.values(), key=lambda mask: not mask.certain)


def _spans(text: str) -> Iterator[_Span]:
    end = 0
    for match in SPAN.finditer(text):
        left, right = text[end : match.start()], text[match.end() : match.end() + _BEHIND]
        yield _Span(span_kind(match), match[0], left, right, end == 0)
        end = match.end()


def _judged(
    sample: Sample,
    texts: pl.Series,
    context: tuple[str, str, str],
    seen: Sequence[tuple[str, _Span]],
) -> Mask | None:
    """The mask for a context if its values run like those of something volatile."""
    values = {text: span.value for text, span in seen}
    if len(seen) > 1.5 * len(values) or len(set(values.values())) < 2:
        return None
    table = pl.DataFrame({"text": list(values), "value": list(values.values())})
    value = texts.to_frame("text").join(table, on="text", how="left", maintain_order="left")[
        "value"
    ]
    row = np.flatnonzero(value.is_not_null().to_numpy())
    run = Run.of(sample, row, value)
    plainly = context[0] in _PLAIN and run.new == 1.0
    if not plainly and (len(row) < LEAST_ROWS or len(set(values.values())) < 3):
        return None
    kind, certain = _verdict(context, run, values.values())
    pattern = _pattern(context[0], [span for _, span in seen]) if kind else ""
    if not pattern:
        return None
    return Mask(
        kind, pattern, certain, f"{run.told}, in {100 * len(row) / len(texts):.0f} % of the rows"
    )


def _verdict(context: tuple[str, str, str], run: Run, values: Iterable[str]) -> tuple[str, bool]:
    """(kind of volatile span, whether that is certain); no kind where it is not volatile."""
    kind, label, _ = context
    if run.named:
        return "", False
    if kind == "number":
        if run.rises:
            return "counter", True
        labelled = re.search(r"[^\W\d_][^\w\n]*[:=]\s*$", label)
        return ("labelled number", False) if labelled else ("", False)
    if kind == "id" and not _look_random(values):
        return "", False
    moves = run.advances if kind in _TIMES else run.rises
    return (kind, True) if moves or run.new >= _NEW else ("", False)


def _look_random(ids: Iterable[str]) -> bool:
    """Whether most ids change between letters and digits at least twice."""
    changes = [sum(a.isdigit() != b.isdigit() for a, b in pairwise(i)) for i in ids]
    return bool(np.median(changes) >= 2)


def _pattern(kind: str, spans: Sequence[_Span]) -> str:
    """Regular expression for spans in one context, with what always stands around them; empty
    where that is too little to know them by."""
    left = common_beginning([span.left[::-1] for span in spans])[::-1]
    right = common_beginning([span.right for span in spans])
    at_start = all(span.first and span.left == left for span in spans) and "\n" not in left.strip()
    if not at_start:
        introduction = _INTRODUCTION.search(re.split(r"[\n.!?]", left)[-1])
        left = introduction[0] if introduction else ""
    closing = _OUT_OF.match(right) or _CLOSING.match(right)
    right = closing[0] if closing else ""
    at_end = all(not span.right[len(right) :].strip() for span in spans)
    core = _PATTERNS[kind]
    if kind == "number" and not any("." in span.value for span in spans):
        core = r"-?\d+" if any(span.value[0] == "-" for span in spans) else r"\d+"
    body = escaped(left) + core + escaped(right.rstrip())
    if at_end and left + right:
        return rf"\s*{body.lstrip()}\s*$"
    if at_start:
        body = rf"^\s*{body.lstrip()}"
    elif not left.strip():
        return ""
    return body + (r"\s*" if right != right.rstrip() else "")


def common_beginning(texts: Sequence[str]) -> str:
    """Longest common beginning."""
    low, high = min(texts), max(texts)
    size = 0
    while size < min(len(low), len(high)) and low[size] == high[size]:
        size += 1
    return low[:size]
