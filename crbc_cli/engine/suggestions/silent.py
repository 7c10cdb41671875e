"""Replies that say nothing about the situation, and actions that are no steps.

* An empty reply is no state.
* Actions that begin alike, hardly ever repeat, and get nothing but an empty reply (or one that no
  other action gets, such as "OK.") are thoughts.
* A reply that comes in many situations may say that nothing changed. If it does, the rollout goes
  on as others do from the situation before: inheriting that anchor lets them foretell it.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.engine.suggestions.frames import Frames, command_frame, escaped
from crbc_cli.engine.suggestions.sample import Sample
from crbc_cli.engine.suggestions.slots import REFUSAL
from crbc_cli.engine.suggestions.trial import Trial
from crbc_cli.process.agreement import agreement, codes

__all__ = [
    "EMPTY",
    "Pattern",
    "no_op_candidates",
    "plausible",
    "situated",
    "thoughts",
    "worth_inheriting",
]

EMPTY = r"^\s*$"

_HEAD = r"^[>\s]*(<?[A-Za-z_]+)\s*([\[\(:>])"
_SENTENCE = r"^\s*([^\n]*?[.!?:](?:\s|$)|[^\n]*)"
_LEAST_ROWS = 5
_LEAST_SHARE = 0.002
_MOST = 16
_LONGEST = 80

_SURE = 0.95
_DISTINCT = 0.2
_FORETOLD = 0.9
_VERBS = 3
_OFTEN = 0.3

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pattern:
    """A pattern that a rule file may hold.

    Attributes:
      pattern: regular expression.
      why: what in the log speaks for it.
      general: many different commands get this reply, so that all of its rows are evidence.
      plain: and it says by itself that nothing happened.
    """

    pattern: str
    why: str
    general: bool = False
    plain: bool = False


def thoughts(sample: Sample) -> list[Pattern]:
    """Patterns of actions that look like thoughts."""
    table = pl.DataFrame(
        {
            "action": sample.action,
            "reply": sample.plain.shift(-1).str.strip_chars(),
            "last": sample.last,
        }
    ).with_columns(
        head=pl.col("action").str.extract(_HEAD, 1).str.to_lowercase(),
        mark=pl.col("action").str.extract(_HEAD, 2),
    )
    answered = table.filter(~pl.col("last")).drop_nulls(["action", "reply"])
    heads = (
        answered.drop_nulls("head")
        .group_by("head", "mark", maintain_order=True)
        .agg(
            pl.len().alias("rows"),
            pl.col("action").n_unique().alias("distinct"),
            (pl.col("reply") == "").mean().alias("empty"),
            pl.col("reply").mode().alias("usual"),
        )
        .filter(pl.col("rows") >= _LEAST_ROWS)
    )
    found = []
    for head, mark, rows, distinct, empty, usual in heads.iter_rows():
        own = answered.filter((pl.col("head") == head) & (pl.col("mark") == mark))["reply"]
        reply = "" if empty >= _SURE else min(usual)
        share = (own == reply).sum() / len(own)
        elsewhere = int((answered["reply"] == reply).sum()) - int((own == reply).sum())
        alone = reply == "" or elsewhere <= 0.02 * len(own)
        if share < _SURE or not alone or distinct < _DISTINCT * rows:
            continue
        pattern = rf"(?i)^[>\s]*{escaped(head)}\s*{escaped(mark)}"
        told = "an empty reply" if reply == "" else f'"{reply[:_LONGEST]}"'
        why = (
            f"{distinct} different actions in {rows} rows, {100 * share:.0f} % of them answered "
            f"by {told}"
        )
        found.append(Pattern(pattern, why))
    return found


def no_op_candidates(sample: Sample, frames: Frames, rules: RuleFile, now: Trial) -> list[Pattern]:
    """Patterns of replies that come in many situations, the most frequent first.

    A reply may say that nothing changed if commands with different verbs get it, or if commands of
    one frame often do, whatever they name ("inventory", `put {0} on {1}`), or if it refuses what a
    command names. A reply that is another one for each thing that a command names is its effect.

    Args:
      sample: rows.
      frames: its templates.
      rules: rules so far; replies they already know are left out.
      now: their trial.
    """
    follows = ~sample.first & np.roll(~now.rows.thought, 1)
    known = [*rules.no_op, *rules.missing]
    if known:
        told = sample.observation.str.contains("|".join(f"(?:{p})" for p in known))
        follows &= ~told.fill_null(False).to_numpy()
    table = pl.DataFrame(
        {
            "head": sample.plain.str.extract(_SENTENCE, 1).str.strip_chars(),
            "group": sample.group,
            "before": np.roll(now.rows.anchor, 1),
            "command": sample.action.shift(1),
        }
    ).filter(pl.Series(follows))
    least_groups = max(2, table["group"].n_unique() / 3) if table["group"].n_unique() > 1 else 1
    heads = (
        table.filter(
            pl.col("head").str.len_chars().is_between(2, _LONGEST)
            & ~pl.col("head").str.contains(r"^[\[{<]")
        )
        .with_columns(pl.col("command").str.extract(r"(\w+)", 1).alias("verb"))
        .group_by("head", maintain_order=True)
        .agg(
            pl.len().alias("rows"),
            pl.col("before").n_unique().alias("situations"),
            pl.col("command").drop_nulls().unique(maintain_order=True).alias("commands"),
            pl.col("verb").n_unique().alias("verbs"),
            pl.col("group").n_unique().alias("groups"),
        )
        .filter(
            (pl.col("rows") >= max(_LEAST_ROWS, _LEAST_SHARE * len(follows)))
            & (pl.col("situations") >= _LEAST_ROWS)
            & (pl.col("groups") >= least_groups)
        )
        .sort("rows", descending=True, maintain_order=True)
    )
    asked_rows = Counter[str]()
    for command, count in table["command"].drop_nulls().value_counts().iter_rows():
        asked_rows[command_frame(command)[0]] += count
    found = []
    for head, rows, situations, commands, verbs, _ in heads.iter_rows():
        asked = {command_frame(command)[0] for command in commands}
        if verbs < _VERBS and rows < _OFTEN * sum(asked_rows[frame] for frame in asked):
            continue
        if verbs < _VERBS and any(_names(command, head) for command in commands):
            continue
        why = (
            f'"{head}" answers {len(commands)} different commands in {situations} situations '
            f"({rows} rows)"
        )
        general = verbs >= _VERBS or len(commands) >= _LEAST_ROWS
        plain = general and REFUSAL.search(head) is not None
        found.append(Pattern(sample.start + escaped(head), why, general, plain))
    refusals = [
        Pattern(t.unnamed, f"`{t.words}` refuses what commands name ({t.rows} rows)")
        for t in (event.template for event in frames.replies)
        if REFUSAL.search(t.words) and t.unnamed not in known
    ]
    return [*found[:_MOST], *refusals]


def _names(command: str, reply: str) -> bool:
    """Whether the reply repeats a phrase of the command."""
    return any(phrase.lower() in reply.lower() for phrase in command_frame(command)[1])


def plausible(before: Trial, after: Trial, pattern: Pattern) -> bool:
    """Whether inheriting lets other rollouts foretell more visits, and no larger a share of them
    wrongly; where a reply says by itself that nothing happened, whether nothing speaks against it.
    """
    gained, worse = after.hits - before.hits, after.misses - before.misses
    return (gained > 0 or pattern.plain) and worse <= _rate(before) * max(gained, 0.0) + 1


def worth_inheriting(before: Trial, after: Trial, evidence: Bools, pattern: Pattern) -> bool:
    """Whether rollouts go on after the reply as they do from the situation before it.

    Args:
      before, after: trials without and with the no-op.
      evidence: bool (n,), rows with the reply that count.
      pattern: it.
    """
    at = after.at[evidence[after.at]]
    hit, miss = (_per_row(after, name)[at].sum() for name in ("hit", "miss"))
    right = miss <= (hit + miss) * max(_rate(before), 0.1)
    return bool(
        plausible(before, after, pattern) and right and (pattern.plain or hit + miss >= _LEAST_ROWS)
    )


def _rate(trial: Trial) -> float:
    return trial.wrong_share or 0.0


def situated(sample: Sample, trial: Trial, base: Ints) -> Bools:
    """Rows whose outcome the command alone does not foretell, bool (n,).

    `go to desk 1` leads to the same text from everywhere: such rows look right whatever anchor
    they are given.
    """
    at = trial.at
    command = codes(sample.group[at], trial.rows.action[at])
    alone = agreement(command, sample.rollout[at], sample.outcome(base)[at])
    rows = np.ones(len(base), bool)
    rows[at] = alone.hit < _FORETOLD
    return rows


def _per_row(trial: Trial, name: str) -> Floats:
    whole = np.zeros(len(trial.rows.visit))
    whole[trial.at] = getattr(trial.agreement, name)
    return whole
