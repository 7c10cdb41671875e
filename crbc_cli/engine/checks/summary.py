"""The numbers that sum up a log."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.checks.facts import ENDINGS, Facts

__all__ = ["Summary", "summarise"]


@dataclass(frozen=True)
class Summary:
    """A log in numbers; shares are null where there is nothing to divide by.

    Attributes:
      files, rows (copies left out), rollouts, groups: sizes.
      group_sizes: rollouts per group -> groups.
      rollout_rows: fewest, median and most rows of a rollout.
      endings: how rollouts ended -> rollouts.
      success_rate: successes among scored rollouts.
      outcome_mean_rollouts, outcome_mean_rows: mean outcome of the rollouts that enter the group
        advantage, with one vote per rollout and per row.
      invalid_share: rows whose action the environment refused.
      visits, anchors: sizes of the merged groups; visits_per_anchor: their ratio.
      shared_share: visits at anchors that several rollouts visit.
      choice_share: visits at anchors with two actions or more.
      top_anchor_share: visits at the most visited anchor of each group.
      anchors_in_several_groups: contents that occur in several groups, which are kept apart.
      anchor_bytes: least, median, 90 % and most bytes of an anchor's content.
    """

    files: int
    rows: int
    rollouts: int
    groups: int
    group_sizes: dict[int, int]
    rollout_rows: tuple[int, float, int]
    endings: dict[str, int]
    success_rate: float | None
    outcome_mean_rollouts: float | None
    outcome_mean_rows: float | None
    invalid_share: float | None
    visits: int
    anchors: int
    visits_per_anchor: float | None
    shared_share: float | None
    choice_share: float | None
    top_anchor_share: float | None
    anchors_in_several_groups: int
    anchor_bytes: tuple[int, int, int, int] | None

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        summary = asdict(self)
        summary["group_sizes"] = [
            {"size": size, "groups": groups} for size, groups in self.group_sizes.items()
        ]
        for name, labels in (
            ("rollout_rows", ("min", "median", "max")),
            ("anchor_bytes", ("min", "median", "p90", "max")),
        ):
            values = summary[name]
            summary[name] = values and dict(zip(labels, values, strict=True))
        return summary


def summarise(facts: Facts) -> Summary:
    """The numbers of all logs together."""
    rollouts, groups = facts.rollouts, facts.groups
    counted = rollouts.filter("counts")
    won_rows = int((counted["success"] * counted["rows"]).sum())
    visits, anchors = int(groups["visits"].sum()), int(groups["anchors"].sum())
    endings = dict(rollouts["ending"].value_counts().iter_rows())
    _, repeats = np.unique(facts.anchor_keys, return_counts=True)
    rows = rollouts["rows"]
    return Summary(
        files=len(facts.files),
        rows=facts.rows,
        rollouts=rollouts.height,
        groups=groups.height,
        group_sizes=dict(groups["size"].value_counts().sort("size").iter_rows()),
        rollout_rows=(rows.min(), rows.median(), rows.max()),  # type: ignore[arg-type]
        endings={name: endings.get(name, 0) for name in ENDINGS},
        success_rate=_share(rollouts["success"].sum(), int(rollouts["scored"].sum())),
        outcome_mean_rollouts=_share(counted["success"].sum(), counted.height),
        outcome_mean_rows=_share(won_rows, int(counted["rows"].sum())),
        invalid_share=_share(rollouts["n:invalid"].sum(), facts.rows),
        visits=visits,
        anchors=anchors,
        visits_per_anchor=_share(visits, anchors),
        shared_share=_share(groups["shared"].sum(), visits),
        choice_share=_share(groups["choice"].sum(), visits),
        top_anchor_share=_share(groups["top"].sum(), visits),
        anchors_in_several_groups=int((repeats > 1).sum()),
        anchor_bytes=_quantiles(facts.anchor_bytes),
    )


def _share(part: Any, whole: int) -> float | None:
    return float(part) / whole if whole else None


def _quantiles(values: NDArray[np.uint32]) -> tuple[int, int, int, int] | None:
    if not len(values):
        return None
    ordered = np.sort(values)
    picks = [ordered[math.ceil(q * (len(ordered) - 1))] for q in (0, 0.5, 0.9, 1)]
    return int(picks[0]), int(picks[1]), int(picks[2]), int(picks[3])
