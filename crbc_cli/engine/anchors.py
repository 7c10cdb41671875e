"""`crbc anchors`: how good the anchors of logs are, what speaks against them, what would help."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from crbc_cli.anchors.rulefile import RuleFile, preset_names
from crbc_cli.engine.anchor_quality import Quality, Truth, TruthRows, group_counts, quality_of
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.locate import GroupSearch
from crbc_cli.engine.prepare import Chunk, Prepared
from crbc_cli.engine.reader import Reader
from crbc_cli.engine.suggestions.duplicates import Duplicate, near_duplicates
from crbc_cli.engine.suggestions.sample import SAMPLE_ROWS, Sample
from crbc_cli.engine.suggestions.search import Suggestion, suggest
from crbc_cli.engine.suggestions.toml import change_toml, rules_toml
from crbc_cli.engine.suggestions.volatile import masks
from crbc_cli.engine.worst_anchors import Suspects, WorstAnchor, suspects_of, worst
from crbc_cli.errors import OptionError
from crbc_cli.options import Settings
from crbc_cli.process.agreement import TruthScores
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["AnchorReport", "RuleSet", "compare_rule_sets", "measure_anchors", "with_rules"]

_MOST_WORST = 10


@dataclass(frozen=True)
class RuleSet:
    """One rule set on all logs.

    Attributes:
      name: preset, file, or exact.
      quality: all groups together.
      wrong: of the visits of a sample whose next reply other rollouts foretell, the share that
        they foretell wrongly. Unlike the conflict rate it cannot be lowered by merging what
        follows as well, since replies stay what they are.
      truth: scores against the true state, None if none was named.
    """

    name: str
    quality: Quality
    wrong: float | None
    truth: TruthScores | None

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "rules": self.name,
            **self.quality.to_dict(),
            "foretold_wrongly_share": self.wrong,
            "truth": _truth(self.truth),
        }


@dataclass(frozen=True)
class AnchorReport:
    """What `crbc anchors` found.

    Attributes:
      rules: the rules in force.
      groups: `group_counts` of all logs.
      quality: all groups together.
      tested, dependent: anchors that the Markov test could test, and those at which what follows
        depends on how they were entered (adjusted p below 0.05).
      worst: the most suspicious anchors.
      truth: scores against the true state, None if none was named.
      sample_rows: rows that suggestions were tried on.
      wrong: share of the sample's foretold visits that other rollouts foretell wrongly; see
        `RuleSet`.
      duplicates: anchors whose texts are nearly equal.
      suggestions: changes of the rules, in the order tried.
      suggested: the rules with all of them, None without suggestions.
      improved: all logs under the suggested rules, None without suggestions.
      comparison: rule sets, best first, where some were to be compared.
    """

    rules: RuleFile
    groups: pl.DataFrame
    quality: Quality
    tested: int
    dependent: int
    worst: list[WorstAnchor]
    truth: TruthScores | None = None
    sample_rows: int = 0
    wrong: float | None = None
    duplicates: list[Duplicate] = field(default_factory=list)
    suggestions: list[Suggestion] = field(default_factory=list)
    suggested: RuleFile | None = None
    improved: RuleSet | None = None
    comparison: list[RuleSet] = field(default_factory=list)

    @property
    def logs(self) -> list[tuple[str, Quality]]:
        """(input, its numbers); a group that spans files counts where its first row stands."""
        parts = self.groups.partition_by("source_file", maintain_order=True, as_dict=True)
        return [(str(name[0]), quality_of(counts)) for name, counts in parts.items()]

    @property
    def suggested_toml(self) -> str:
        """The suggested rule file."""
        return "" if self.suggested is None else rules_toml(self.suggested)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "anchors",
            "rules": {"name": self.rules.name, "digest": self.rules.digest()},
            **self.quality.to_dict(),
            "logs": [{"source_file": name, **quality.to_dict()} for name, quality in self.logs],
            "markov_test": {
                "tested": self.tested,
                "dependent": self.dependent,
                "correction": "holm",
            },
            "worst": [anchor.to_dict() for anchor in self.worst],
            "truth": _truth(self.truth),
            "near_duplicates": [asdict(duplicate) for duplicate in self.duplicates],
            "sample_rows": self.sample_rows,
            "foretold_wrongly_share": self.wrong,
            "suggestions": [
                {
                    **asdict(suggestion),
                    "change": change_toml(suggestion.change),
                }
                for suggestion in self.suggestions
            ],
            "suggested_rules": self.suggested_toml or None,
            "under_suggested_rules": self.improved and self.improved.to_dict(),
            "comparison": [rule_set.to_dict() for rule_set in self.comparison],
        }

    def rows(self) -> list[dict[str, Any]]:
        """For `--csv`: one row per group, or per rule set where some were compared."""
        if self.comparison:
            return [
                {name: value for name, value in s.to_dict().items() if name != "truth"}
                | {f"truth_{name}": value for name, value in (_truth(s.truth) or {}).items()}
                for s in self.comparison
            ]
        return [
            {
                "source_file": row["source_file"],
                "group_id": row["group_id"],
                **quality_of(self.groups[i]).to_dict(),
            }
            for i, row in enumerate(self.groups.iter_rows(named=True))
        ]


def _truth(scores: TruthScores | None) -> dict[str, Any] | None:
    return None if scores is None else asdict(scores)


def measure_anchors(
    reader: Reader,
    *,
    group: str | None = None,
    truth: Truth | None = None,
    suggestions: bool = True,
) -> AnchorReport:
    """Quality, suspicious anchors and suggestions.

    Args:
      reader: logs.
      group: look at this group alone.
      truth: what to score against.
      suggestions: also look for better rules.
    Raises:
      CrbcError: see `crbc_cli.errors`.
    """
    measured = _Measured(reader.clock, truth)
    samples: list[Sample] = []
    share = max(SAMPLE_ROWS // len(reader.parts), 1)
    for log in _logs(reader, group, truth):
        measured.add(log, suspicious=True)
        if suggestions and len(log.rollouts.row):
            samples.append(Sample.of(log, share))
    tested, dependent, anchors = worst(measured.suspects, _MOST_WORST)
    report = AnchorReport(
        reader.rules,
        measured.groups,
        quality_of(measured.groups),
        tested,
        dependent,
        anchors,
        measured.scores,
    )
    return (
        _with_suggestions(report, reader, Sample.joined(samples), group, truth)
        if samples
        else report
    )


def _with_suggestions(
    report: AnchorReport, reader: Reader, sample: Sample, group: str | None, truth: Truth | None
) -> AnchorReport:
    start = sample.trial(reader.rules)
    duplicates = near_duplicates(sample, reader.rules, start, masks(sample, reader.rules))
    search = suggest(sample, reader.rules)
    report = replace(
        report, sample_rows=len(sample.group), wrong=start.wrong_share, duplicates=duplicates
    )
    if not search.found:
        return report
    suggested = msgspec.structs.replace(
        search.rules,
        name="suggested",
        title="Rules that the log suggests",
        about="",
        detect=(),
    )
    measured = _Measured(reader.clock, truth)
    for log in _logs(replace(reader, rules=suggested), group, truth):
        measured.add(log, suspicious=False)
    wrong = search.now.wrong_share
    improved = RuleSet("suggested", quality_of(measured.groups), wrong, measured.scores)
    return replace(report, suggestions=search.found, suggested=suggested, improved=improved)


def with_rules(settings: Settings, name: str) -> Settings:
    """The settings with another rule set.

    Args:
      settings: all options.
      name: a preset, `auto`, a rule file, or `exact` for content as logged.
    Raises:
      OptionError: neither a preset nor a file.
    """
    if name == "exact":
        anchor = replace(settings.anchor, preset="", rules="")
    elif name == "auto" or name in preset_names():
        anchor = replace(settings.anchor, preset=name, rules="")
    elif Path(name).is_file():
        anchor = replace(settings.anchor, preset="", rules=name)
    else:
        raise OptionError(
            f"--compare-rules {name!r} is neither a preset nor a file",
            todo=f"use exact, auto, a rule file or one of {', '.join(preset_names())}",
        )
    return replace(settings, anchor=anchor)


def compare_rule_sets(
    readers: Sequence[tuple[str, Reader]], *, group: str | None = None, truth: Truth | None = None
) -> list[RuleSet]:
    """Rule sets on the same logs, best first.

    The order is that of wrongly foretold visits, or of aliased visits if the truth is known; but a
    set under which rollouts share less than half of what they share under another comes last,
    since nothing is foretold wrongly at anchors that nobody shares.
    """
    done = []
    for name, reader in readers:
        measured = _Measured(reader.clock, truth)
        samples = []
        for log in _logs(reader, group, truth):
            measured.add(log, suspicious=False)
            if len(log.rollouts.row):
                samples.append(Sample.of(log, SAMPLE_ROWS // len(reader.parts)))
        wrong = Sample.joined(samples).trial(reader.rules).wrong_share if samples else None
        done.append(RuleSet(name, quality_of(measured.groups), wrong, measured.scores))
    most = max((rule_set.quality.shared_share or 0.0 for rule_set in done), default=0.0)

    def rank(rule_set: RuleSet) -> tuple[bool, float, float]:
        shared = rule_set.quality.shared_share or 0.0
        wrong = rule_set.truth.aliased if rule_set.truth else rule_set.wrong
        return 2 * shared < most, 1.0 if wrong is None else wrong, -shared

    return sorted(done, key=rank)


def _logs(reader: Reader, group: str | None, truth: Truth | None) -> Iterable[Prepared]:
    extra = truth.fields() if truth else ()
    if group is None:
        return reader.logs(extra=extra)
    search = GroupSearch(group)
    for log in reader.logs(extra=extra):
        search.look(log)
    return [search.found()]


class _Measured:
    """Counts, suspects and truth of logs, one after the other."""

    def __init__(self, clock: Clock, truth: Truth | None) -> None:
        self._clock, self._truth = clock, truth
        self._counts: list[pl.DataFrame] = []
        self._rows: list[TruthRows] = []
        self.suspects: list[Suspects] = []

    def add(self, log: Prepared, *, suspicious: bool) -> None:
        def watched() -> Iterator[Chunk]:
            for chunk in log.chunks(self._clock):
                if suspicious:
                    self.suspects.append(suspects_of(log, chunk))
                yield chunk

        self._counts.append(group_counts(log, watched()))
        if self._truth is not None:
            self._rows.append(self._truth.rows(log))

    @property
    def groups(self) -> pl.DataFrame:
        return pl.concat(self._counts)

    @property
    def scores(self) -> TruthScores | None:
        return TruthRows.scores(self._rows) if self._rows else None
