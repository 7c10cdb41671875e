"""Texts of one group that differ only in how they are laid out.

White space, case and Unicode forms; the order of a list; and a first observation that says the task
before or after the text that the same situation has later.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from crbc_cli.anchors.rulefile import Op, RuleFile
from crbc_cli.engine.suggestions.frames import escaped
from crbc_cli.engine.suggestions.sample import Sample
from crbc_cli.engine.suggestions.volatile import common_beginning, reply_texts

__all__ = ["Layout", "layouts"]

_SEPARATORS = (", ", "\n", "; ", " | ", ",")
_LEAST_TEXTS = 3
_SHORTEST = 20
_MOST_GROUPS = 60
_MARK = 40


@dataclass(frozen=True)
class Layout:
    """Text operations that may join texts.

    Attributes:
      kind: what the texts differ in.
      ops: the operations.
      why: the evidence.
    """

    kind: str
    ops: tuple[Op, ...]
    why: str


def layouts(sample: Sample, rules: RuleFile) -> list[Layout]:
    """Operations that would make texts of one group equal."""
    texts = reply_texts(sample, rules)
    table = pl.DataFrame({"group": sample.group, "text": texts, "first": sample.first}).drop_nulls()
    distinct = table.select("group", "text").unique(maintain_order=True)
    return [
        *_white_space(distinct),
        *_lists(distinct),
        *_tasks(table.filter(pl.col("group") < _MOST_GROUPS)),
    ]


def _white_space(distinct: pl.DataFrame) -> Iterator[Layout]:
    forms = {
        "nfc": pl.col("text").str.normalize("NFC"),
        "whitespace": pl.col("text").str.replace_all(r"\s+", " ").str.strip_chars(),
        "case": pl.col("text").str.to_lowercase(),
    }
    for name, form in forms.items():
        joined = distinct.height - distinct.select("group", form).n_unique()
        if joined:
            why = f"{joined} texts are another text of their group but for {name}"
            yield Layout(name, (Op(op=name),), why)  # type: ignore[arg-type]


def _lists(distinct: pl.DataFrame) -> Iterator[Layout]:
    for separator in _SEPARATORS:
        ordered = pl.col("text").str.split(separator).list.sort().list.join(separator)
        joined = distinct.height - distinct.select("group", ordered).n_unique()
        if joined >= _LEAST_TEXTS:
            why = f"{joined} texts are another text of their group with its parts in other order"
            yield Layout("list order", (Op(op="sort_list", separator=separator),), why)


def _tasks(table: pl.DataFrame) -> Iterator[Layout]:
    """Text around what a rollout's first observation has in common with a later one."""
    others: defaultdict[int, set[str]] = defaultdict(set)
    firsts: defaultdict[int, set[str]] = defaultdict(set)
    for group, text, first in table.unique(maintain_order=True).iter_rows():
        (firsts if first else others)[group].add(text.strip())
    before, behind = list[tuple[str, str]](), list[tuple[str, str]]()
    for group, texts in firsts.items():
        for text in sorted(texts):
            found = max(_inside(text, others[group]), key=len, default="")
            if found and text.endswith(found):
                before.append((text[: -len(found)], found))
            elif found:
                behind.append((found, text[len(found) :].lstrip()))
    later = table.filter(~pl.col("first"))["text"]
    mark = _whole_words(common_beginning([task for _, task in behind])) if behind else ""
    if len(mark) >= 4 and not later.str.contains(mark, literal=True).any():
        ops = (Op(op="cut_after", text=mark), Op(op="strip"))
        why = f'{len(behind)} first observations end with a task ("{mark}…")'
        yield Layout("task", ops, why)
    head = common_beginning([task.lstrip() for task, _ in before]) if before else ""
    mark = common_beginning([rest for _, rest in before])[:_MARK] if before else ""
    if len(head.strip()) >= 4 and len(mark.strip()) >= 2:
        words, rest = escaped(" ".join(head.split()[:2])), escaped(mark.split("\n", 1)[0])
        pattern = rf"(?s)^\s*{words}.*?(?<rest>{rest})"
        if not later.str.contains(pattern).any():
            why = f"{len(before)} first observations begin with a text that does not come again"
            yield Layout("task", (Op(op="replace", pattern=pattern, to="${rest}"),), why)


def _inside(text: str, others: set[str]) -> Iterator[str]:
    """Other texts that a longer one begins or ends with."""
    for other in others:
        if _SHORTEST <= len(other) < len(text) and (text.endswith(other) or text.startswith(other)):
            yield other


def _whole_words(text: str) -> str:
    """A common beginning, cut behind its last whole word."""
    text = text[:_MARK].split("\n", 1)[0]
    cut = re.match(r"(.*[^\w\s]|.*\w(?=\s))", text)
    return cut[0].rstrip() if cut else ""
