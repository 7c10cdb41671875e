"""Templates of commands and of the replies that acknowledge them.

A command is its first word, the small words after it and the phrases between them: `take apple 1
from desk 2` is `take {0} from {1}`. A reply that repeats the phrases of the command before it
becomes a template in the same way: `You pick up the {0} from the {1}.` Verbs are never confused,
since replies to different commands are looked at apart.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.suggestions.sample import Sample

__all__ = [
    "Event",
    "Template",
    "command_frame",
    "command_templates",
    "escaped",
    "events",
    "reply_templates",
]

_SMALL_WORDS = frozenset(
    re.findall(
        r"\S+",
        "a an and at by down for from in in/on inside into of off on onto out over the to toward "
        "towards under up using with",
    )
)
_ARTICLE = re.compile(r"\b(?:the|an|a) (?=\{)", re.IGNORECASE)
_TOKEN = re.compile(r"[\w./'-]+|[^\w\s]")
_CLAUSE = re.compile(r"[.,:;!?](?=\s|$)|\n")
_LONGEST_COMMAND = 80
_LONGEST_CLAUSE = 100
_MOST_TEMPLATES = 30
_LEAST_ROWS = 3
_PHRASE = r"[^.,:;!?\n]+?"
_NAMES = "abcdef"

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Template:
    """Text with holes for phrases.

    Attributes:
      on: what it is a template of.
      words: the text, with {a}, {b}, … for the holes in order, and no articles before them.
      rows: rows of the sample it was seen on.
    """

    on: Literal["reply", "action"]
    words: str
    rows: int

    @property
    def holes(self) -> int:
        """Number of distinct holes."""
        return len(set(re.findall(r"\{(\w)\}", self.words)))

    @property
    def pattern(self) -> str:
        """Regular expression with named groups a, b, …; a repeated phrase is not checked."""
        pieces = re.split(r"\{(\w)\}", self.words)
        pattern = ""
        for i, piece in enumerate(pieces):
            if i % 2 == 0:
                pattern += escaped(piece)
                continue
            first = piece not in pieces[:i]
            pattern += r"(?:(?:[Tt]he|[Aa]n?) )?" if self.on == "reply" else ""
            pattern += f"(?<{piece}>{_PHRASE})" if first else f"(?:{_PHRASE})"
        if self.on == "action":
            return rf"^[>\s]*{pattern}\s*$"
        return rf"^\s*{pattern}" + (r"(?:[.,:;!?]|\s*$)" if self.words.endswith("}") else "")

    @property
    def unnamed(self) -> str:
        """The pattern without names, for lists of patterns."""
        return re.sub(r"\(\?<\w>", "(?:", self.pattern)


def escaped(text: str) -> str:
    """Text as a regular expression (Rust syntax) in which any white space matches any."""
    words = [re.sub(r"([\\.+*?()|\[\]{}^$#&\-~])", r"\\\1", word) for word in text.split()]
    body = " ".join(words)
    if text[:1].isspace() and words:
        body = " " + body
    if text[-1:].isspace() and words:
        body += " "
    return body if words or not text else " "


def command_frame(command: str) -> tuple[str, tuple[str, ...]]:
    """(frame with {0}, {1}, …, phrases) of a command; a long or wordless text has no phrases."""
    text = command.strip().lstrip("> ").strip()
    tokens = _TOKEN.findall(text)
    if not tokens or len(text) > _LONGEST_COMMAND:
        return text, ()
    frame, phrases, phrase = [tokens[0]], list[str](), list[str]()

    def close() -> None:
        if phrase:
            frame.append(f"{{{len(phrases)}}}")
            phrases.append(" ".join(phrase))
            phrase.clear()

    for token in tokens[1:]:
        if token.lower() in _SMALL_WORDS or not re.match(r"\w", token):
            close()
            frame.append(token)
        else:
            phrase.append(token)
    close()
    return " ".join(frame), tuple(phrases)


def reply_templates(sample: Sample, step: NDArray[np.bool_]) -> list[Template]:
    """Templates of replies that repeat phrases of the command before, most frequent first.

    Args:
      sample: rows.
      step: bool (n,), rows whose action is an environment step.
    """
    answered = np.flatnonzero(step & ~sample.last)
    table = (
        pl.DataFrame(
            {
                "action": sample.action.gather(answered),
                "reply": sample.observation.gather(answered + 1),
            }
        )
        .drop_nulls()
        .group_by("action", "reply", maintain_order=True)
        .len()
    )
    rows: Counter[str] = Counter()
    for action, reply, count in table.iter_rows():
        _, phrases = command_frame(action)
        words = _clause(reply, phrases) if phrases else ""
        if words:
            rows[words] += count
    return [
        Template("reply", words, count)
        for words, count in rows.most_common(_MOST_TEMPLATES)
        if count >= _LEAST_ROWS
    ]


def command_templates(sample: Sample, step: NDArray[np.bool_]) -> list[Template]:
    """Templates of commands with one phrase or more, most frequent first."""
    counts = sample.action.filter(pl.Series(step)).drop_nulls().value_counts()
    rows: Counter[str] = Counter()
    for action, count in counts.iter_rows():
        frame, phrases = command_frame(action)
        if phrases:
            words = re.sub(r"\{(\d)\}", lambda m: f"{{{_NAMES[int(m[1]) % 6]}}}", frame)
            rows[words] += count
    return [
        Template("action", words, count)
        for words, count in rows.most_common(_MOST_TEMPLATES)
        if count >= _LEAST_ROWS
    ]


def _clause(reply: str, phrases: tuple[str, ...]) -> str:
    """First clause of a reply with the command's phrases as holes; empty if it repeats none."""
    text = reply.strip()[: 4 * _LONGEST_CLAUSE]
    for number in sorted(range(len(phrases)), key=lambda i: -len(phrases[i])):
        phrase = re.escape(phrases[number]).replace(r"\ ", r"\s+")
        text = re.sub(rf"(?<![\w{{]){phrase}(?![\w}}])", f"{{{number}}}", text, flags=re.IGNORECASE)
    end = _CLAUSE.search(text)
    clause = text if end is None else text[: end.end()].strip()
    order = list(dict.fromkeys(re.findall(r"\{(\d)\}", clause)))
    named = re.sub(r"\{(\d)\}", lambda m: f"{{{_NAMES[order.index(m[1])]}}}", clause)
    words = _ARTICLE.sub("", " ".join(named.split())).rstrip(".,:;!?")
    says_something = re.search(r"[A-Za-z]{2}", re.sub(r"\{\w\}", "", words))
    return words if order and says_something and len(words) <= _LONGEST_CLAUSE else ""


@dataclass(frozen=True, eq=False)
class Event:
    """Rows at which a template holds.

    Attributes:
      template: it.
      row: int64 (k,); for a command the row after it, where its effect shows.
      phrases: String (k,) for each hole.
    """

    template: Template
    row: Ints
    phrases: list[pl.Series]


def events(sample: Sample, template: Template, step: NDArray[np.bool_]) -> Event:
    """Where a template holds."""
    text = sample.observation if template.on == "reply" else sample.action
    groups = text.str.extract_groups(template.pattern).struct.unnest()
    holds = text.str.contains(template.pattern).fill_null(False).to_numpy()
    row = np.flatnonzero(holds & (~sample.last & step if template.on == "action" else True))
    phrases = [groups[name].gather(row) for name in groups.columns]
    return Event(template, row + (template.on == "action"), phrases)
