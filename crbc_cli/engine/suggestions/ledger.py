"""What was suggested so far, each change with numbers before and after it."""

from collections.abc import Mapping
from dataclasses import dataclass

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.engine.suggestions.sample import Sample
from crbc_cli.engine.suggestions.trial import Trial

__all__ = ["Numbers", "Search", "Suggestion"]


@dataclass(frozen=True)
class Numbers:
    """A trial in numbers.

    Attributes:
      visits, anchors: sizes on the sample.
      shared: share of the visits on anchors of several rollouts.
      conflict_rate: see `crbc_cli.process.quality`; None where no pair is visited twice.
      foretold: expected visits that other rollouts foretell.
      wrong: expected visits that they foretell wrongly.
    """

    visits: int
    anchors: int
    shared: float
    conflict_rate: float | None
    foretold: float
    wrong: float

    @classmethod
    def of(cls, trial: Trial) -> "Numbers":
        return cls(
            trial.visits,
            trial.anchors,
            trial.shared,
            trial.conflicts.rate,
            round(trial.hits, 3),
            round(trial.misses, 3),
        )


@dataclass(frozen=True)
class Suggestion:
    """One change of the rules.

    Attributes:
      kind: clock, counter, uuid, whitespace, task, thought, missing, no-op, slot, key, …
      why: the evidence.
      change: entries of a rule file; lists of patterns and the key are whole, tables are added.
      option: the same as a command-line option, "" if there is none.
      before, after: numbers on the sample.
    """

    kind: str
    why: str
    change: Mapping[str, object]
    option: str
    before: Numbers
    after: Numbers


@dataclass
class Search:
    """Rules under construction.

    Attributes:
      sample: what rules are tried on.
      rules: rules so far.
      now: their trial.
      found: what was suggested so far.
    """

    sample: Sample
    rules: RuleFile
    now: Trial
    found: list[Suggestion]

    def take(
        self,
        kind: str,
        why: str,
        rules: RuleFile,
        trial: Trial,
        change: Mapping[str, object],
        option: str = "",
    ) -> None:
        """Keeps a change."""
        before, after = Numbers.of(self.now), Numbers.of(trial)
        self.found.append(Suggestion(kind, why, change, option, before, after))
        self.rules, self.now = rules, trial
