"""What `crbc anchors` found, as data."""

from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.engine.anchor_quality import Quality, quality_of
from crbc_cli.engine.suggestions.duplicates import Duplicate
from crbc_cli.engine.suggestions.ledger import Suggestion
from crbc_cli.engine.suggestions.toml import change_toml, rules_toml
from crbc_cli.engine.suspects import WorstAnchor
from crbc_cli.process.agreement import TruthScores
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["AnchorReport", "RuleSet"]


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
