"""What a page is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crbc_cli.engine.anchor_report import AnchorReport
from crbc_cli.engine.check import CheckReport
from crbc_cli.engine.comparison import Comparison
from crbc_cli.engine.coverage import CoverageReport
from crbc_cli.engine.gate import GateReport
from crbc_cli.engine.overview import Overview
from crbc_cli.engine.picture import GroupPicture
from crbc_cli.engine.profile import ProfileReport
from crbc_cli.notes import Note

__all__ = ["Contents"]


@dataclass(frozen=True)
class Contents:
    """Everything a report shows.

    Attributes:
      names: inputs as given.
      provenance: how it was made, as in an output's metadata.
      notes: remarks that the check's findings do not repeat.
      overview, check, anchors, coverage, comparison, profile: the parts.
      gate: None where no group has two rollouts that count.
      pictures: groups that are drawn, by their place in `overview.groups`.
    """

    names: Sequence[str]
    provenance: Mapping[str, Any]
    notes: Sequence[Note]
    overview: Overview
    check: CheckReport
    anchors: AnchorReport
    coverage: CoverageReport
    comparison: Comparison
    gate: GateReport | None
    profile: ProfileReport
    pictures: Mapping[int, GroupPicture]

    def reports(self) -> dict[str, Any]:
        """The numbers behind the page, as the commands' own `--json` has them."""
        parts = {
            "check": self.check,
            "anchors": self.anchors,
            "coverage": self.coverage,
            "compare": self.comparison,
            "profile": self.profile,
            "overview": self.overview,
        }
        if self.gate is not None:
            parts["gate"] = self.gate
        return {name: part.to_dict() for name, part in parts.items()}  # type: ignore[attr-defined]
