"""Templates of commands and of the replies that acknowledge them.

A command is its first word, the small words after it and the phrases between them: `take apple 1
from desk 2` is `take {0} from {1}`. A reply that repeats the phrases of the command before it
becomes a template in the same way: `You pick up the {0} from the {1}.` Verbs are never confused,
since replies to different commands are looked at apart.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.suggestions.sample import Sample

__all__ = ["Event", "Frames", "Template", "command_frame", "escaped"]

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
_LONGEST_REPLY = 400
_USUAL = 0.05
_HEADER = r"^\s*(?<before>[^\w\s][^\w\n]*)(?<name>\w[^\n]{0,40}?)(?<behind>[^\w\n]*)\n"
_MOST_TEMPLATES = 30
_LEAST_ROWS = 3
_PHRASE = r"[^.,:!\n]+?"
_NAMES = "abcdef"

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Template:
    """Text with holes for phrases.

    Attributes:
      on: what it is a template of.
      words: the text, with {a}, {b}, … for the holes in order, and no articles before them.
      rows: rows of the sample it was seen on.
      start: regular expression for what stands before the words.
    """

    on: Literal["reply", "action"]
    words: str
    rows: int
    start: str

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
            if self.on == "reply":
                pattern += r"(?:the |an? )?" if i > 1 or pieces[0] else r"(?:[Tt]he |[Aa]n? )?"
            pattern += f"(?<{piece}>{_PHRASE})" if first else f"(?:{_PHRASE})"
        if self.on == "action":
            return rf"{self.start}{pattern}\s*$"
        return self.start + pattern + (r"(?:[.,:!]|\s*$)" if self.words.endswith("}") else "")

    @property
    def unnamed(self) -> str:
        """The pattern without names, for lists of patterns."""
        return re.sub(r"\(\?<\w>", "(?:", self.pattern)


def escaped(text: str) -> str:
    """Text as a regular expression (Rust syntax), runs of white space as one space."""
    inner = " ".join(re.sub(r"([\\.+*?()|\[\]{}^$#&\-~])", r"\\\1", w) for w in text.split())
    before, behind = (" " if edge.isspace() else "" for edge in (text[:1], text[-1:]))
    return before + inner + behind if inner else before


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
    return (" ".join(frame), tuple(phrases)) if len(phrases) <= len(_NAMES) else (text, ())


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


@dataclass(frozen=True)
class Frames:
    """Templates of a sample and where they hold, most frequent first.

    Attributes:
      replies: replies that repeat phrases of the command before.
      commands: commands with one phrase or more.
      headers: replies that begin with a line of their own between marks, `-= Kitchen =-`.
    """

    replies: list[Event]
    commands: list[Event]
    headers: list[Event]

    @classmethod
    def of(cls, sample: Sample, step: Bools) -> "Frames":
        """Finds templates.

        Args:
          sample: rows.
          step: bool (n,), rows whose action is an environment step.
        """

        def events(templates: Iterable[Template]) -> list[Event]:
            return [_event(sample, template, step) for template in templates]

        return cls(
            events(_reply_templates(sample, step)),
            events(_command_templates(sample, step)),
            events(_headers(sample)),
        )


def _event(sample: Sample, template: Template, step: Bools) -> Event:
    text = sample.observation if template.on == "reply" else sample.action
    found = pl.DataFrame({"text": text}).with_columns(
        groups=pl.col("text").str.extract_groups(template.pattern)
    )
    groups = found["groups"].struct.unnest()
    holds = groups.select(pl.any_horizontal(pl.all().is_not_null())).to_series().to_numpy()
    if template.on == "action":
        row = np.flatnonzero(holds & step & ~sample.last)
        return Event(template, row + 1, [groups[name].gather(row) for name in groups.columns])
    row = np.flatnonzero(holds)
    return Event(template, row, [groups[name].gather(row) for name in groups.columns])


def _reply_templates(sample: Sample, step: Bools) -> list[Template]:
    answered = np.flatnonzero(step & ~sample.last)
    table = pl.DataFrame(
        {
            "action": sample.action.gather(answered),
            "reply": sample.plain.gather(answered + 1).str.strip_chars().str.head(_LONGEST_REPLY),
        }
    )
    rows: Counter[str] = Counter()
    for action, reply, count in table.drop_nulls().group_by(pl.all()).len().iter_rows():
        _, phrases = command_frame(action)
        words = _clause(reply, phrases) if phrases else ""
        if words:
            rows[words] += count
    return _frequent("reply", rows, sample.start)


def _command_templates(sample: Sample, step: Bools) -> list[Template]:
    counts = sample.action.filter(pl.Series(step)).drop_nulls().value_counts()
    rows: Counter[str] = Counter()
    for action, count in counts.iter_rows():
        frame, phrases = command_frame(action)
        if phrases:
            rows[re.sub(r"\{(\d)\}", lambda m: f"{{{_NAMES[int(m[1])]}}}", frame)] += count
    return _frequent("action", rows, r"^[>\s]*")


def _headers(sample: Sample) -> list[Template]:
    lines = sample.plain.str.extract_groups(_HEADER).struct.unnest()
    marks = lines.drop_nulls().group_by("before", "behind", maintain_order=True)
    found = marks.agg(pl.len().alias("rows"), pl.col("name").n_unique().alias("names"))
    usual = found.filter(
        (pl.col("names") >= _LEAST_ROWS) & (pl.col("rows") >= _USUAL * len(sample.rollout))
    )
    return [
        Template("reply", f"{before.strip()} {{a}} {behind.strip()}".strip(), rows, sample.start)
        for before, behind, rows, _ in usual.iter_rows()
    ]


def _frequent(on: Literal["reply", "action"], rows: Counter[str], start: str) -> list[Template]:
    """The most frequent templates; of equally frequent ones the first by words."""
    order = sorted(rows.items(), key=lambda item: (-item[1], item[0]))[:_MOST_TEMPLATES]
    return [Template(on, words, count, start) for words, count in order if count >= _LEAST_ROWS]


def _clause(reply: str, phrases: tuple[str, ...]) -> str:
    """First clause of a reply with the command's phrases as holes; empty if it repeats none."""
    text = reply
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
