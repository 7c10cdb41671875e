"""`crbc anchors`: how good the anchors of logs are, what speaks against them, what would help."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl

from crbc_cli.anchors.rulefile import preset_names
from crbc_cli.engine.anchor_quality import group_counts, quality_of
from crbc_cli.engine.anchor_report import AnchorReport, RuleSet
from crbc_cli.engine.anchor_truth import Truth, TruthRows
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.locate import GroupSearch
from crbc_cli.engine.prepare import Chunk, Prepared
from crbc_cli.engine.reader import Reader
from crbc_cli.engine.suggestions.duplicates import near_duplicates
from crbc_cli.engine.suggestions.sample import SAMPLE_ROWS, Sample
from crbc_cli.engine.suggestions.search import suggest
from crbc_cli.engine.suggestions.volatile import masks
from crbc_cli.engine.suspects import Suspects, worst
from crbc_cli.engine.worst_anchors import suspects_of
from crbc_cli.errors import OptionError
from crbc_cli.options import Settings
from crbc_cli.process.agreement import TruthScores

__all__ = ["compare_rule_sets", "measure_anchors", "with_rules"]

_MOST_WORST = 10


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
    if suggestions and (len(reader.settings.anchor.anchor) > 1 or reader.settings.anchor.drop):
        suggestions = False
        reader.notes.say(
            "no_suggestions", "rules are suggested for one anchor column without --drop"
        )
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
    spans = masks(sample, reader.rules)
    duplicates = near_duplicates(sample, reader.rules, start, spans)
    search = suggest(sample, reader.rules, spans)
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
