"""Which groups could have stopped early, what that saves and what it costs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from crbc_cli.engine.gate_groups import GateGroups
from crbc_cli.engine.gate_options import GateRule
from crbc_cli.errors import OptionError
from crbc_cli.methods.gate_choice import Choice, choose, cross_validate
from crbc_cli.methods.gate_rule import Evidence, Metrics, cut_groups, measure, separation
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["GatePoint", "GateReport", "HeldOut", "measure_gate"]


@dataclass(frozen=True)
class GatePoint:
    """One K and threshold; without a threshold nothing was precise enough."""

    k: int
    threshold: float | None
    chosen: bool
    metrics: Metrics


@dataclass(frozen=True)
class HeldOut:
    """Cross-validation over groups: each group is cut by what the others chose.

    Attributes:
      k: None where K itself was chosen among all K.
      choices: (K, threshold) of each fold, or None where nothing was precise enough.
      metrics: of all groups.
    """

    k: int | None
    choices: list[tuple[int, float] | None]
    metrics: Metrics


@dataclass(frozen=True)
class GateReport:
    """Everything `crbc gate` says.

    Attributes:
      groups: the groups as measured.
      rule: the rule.
      points: one per K and threshold.
      best: index in `points` of the best chosen point, or None.
      held_out: one per K, and one for K chosen as well if there are several; empty unless chosen.
    """

    groups: GateGroups
    rule: GateRule
    points: list[GatePoint]
    best: int | None
    held_out: list[HeldOut]

    @property
    def evidence(self) -> Evidence:
        """The groups by the rule's signal."""
        return self.groups.evidence(self.rule.signal)

    @property
    def confirmed(self) -> bool:
        """Whether choosing as `best` was chosen is as precise on groups it has not seen."""
        held_out = self.held_out[-1].metrics if self.held_out else None
        precision = None if held_out is None else held_out.precision
        return precision is not None and precision >= self.rule.min_precision

    def separations(self) -> list[dict[str, Any]]:
        """Per K: Spearman and AUROC of the signal, and what knowing the outcomes would save."""
        evidence, rows = self.evidence, []
        for position, k in enumerate(evidence.at.tolist()):
            spearman, auroc = separation(evidence, position)
            oracle = measure(evidence, evidence.zero, position)
            rows.append(
                {
                    "k": k,
                    "spearman": spearman,
                    "auroc": auroc,
                    "oracle_safe": oracle.safe,
                    "oracle_realised": oracle.realised,
                }
            )
        return rows

    def per_group(self) -> pl.DataFrame:
        """One row per K and group with every signal and whether the rule cuts it.

        The columns are those that `--features` reads, and `cut`.
        """
        evidence, cuts = self.evidence, []
        for position, point in enumerate(self.points):
            none = np.zeros(len(evidence.variance), bool)
            cuts.append(
                none
                if point.threshold is None
                else cut_groups(evidence, position, point.threshold, self.rule.or_terminated)
            )
        return self.groups.frame().with_columns(cut=pl.Series(np.concatenate(cuts)))

    def rows(self) -> list[dict[str, Any]]:
        """For `--csv`: one row per point, then one per cross-validation."""
        points = [
            {"kind": "chosen" if p.chosen else "fixed", "k": p.k, "threshold": p.threshold}
            | asdict(p.metrics)
            for p in self.points
        ]
        return points + [
            {"kind": "held_out", "k": h.k, "threshold": None} | asdict(h.metrics)
            for h in self.held_out
        ]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        groups, rule = self.groups, self.rule
        report: dict[str, Any] = {
            "schema_version": REPORT_SCHEMA_VERSION,
            "report": "gate",
            "rule": asdict(rule) | {"thresholds": list(rule.fixed)},
            "groups": len(groups.variance),
            "groups_left_out": groups.left_out,
            "zero_variance_groups": int(self.evidence.zero.sum()),
            "t_max": groups.t_max,
            "longest_rollout": groups.longest,
            "points": [
                {"k": p.k, "threshold": p.threshold, "chosen": p.chosen, **asdict(p.metrics)}
                for p in self.points
            ],
            "best": self.best,
            "separation": self.separations(),
            "held_out": [
                {
                    "k": h.k,
                    "choices": [c and {"k": c[0], "threshold": c[1]} for c in h.choices],
                    **asdict(h.metrics),
                }
                for h in self.held_out
            ],
        }
        if rule.per_group:
            report["per_group"] = self.per_group().to_dicts()
        return report


def measure_gate(groups: GateGroups, rule: GateRule) -> GateReport:
    """Applies a rule to measured groups at every K.

    Args:
      groups: with the signals in `rule.needs`.
      rule: the rule.
    Raises:
      OptionError: fewer groups than folds.
    """
    evidence = groups.evidence(rule.signal)
    positions = range(len(evidence.at))
    points = [
        _point(evidence, rule, Choice(position, threshold), chosen=False)
        for position in positions
        for threshold in rule.fixed
    ]
    if not rule.select:
        return GateReport(groups, rule, points, None, [])
    number = len(groups.variance)
    if number < rule.folds:
        raise OptionError(f"--folds {rule.folds} is more than there are groups ({number})")
    best = _choose(evidence, rule, positions)
    chosen = [_choose(evidence, rule, [p]) or Choice(p, np.nan) for p in positions]
    points += [_point(evidence, rule, choice, chosen=True) for choice in chosen]
    held_out = [_held_out(evidence, rule, [p]) for p in positions]
    if len(positions) > 1:
        held_out.append(_held_out(evidence, rule, positions))
    index = None if best is None else len(points) - len(chosen) + best.position
    return GateReport(groups, rule, points, index, held_out)


def _choose(evidence: Evidence, rule: GateRule, positions: Sequence[int]) -> Choice | None:
    return choose(
        evidence,
        or_terminated=rule.or_terminated,
        min_precision=rule.min_precision,
        positions=positions,
    )


def _point(evidence: Evidence, rule: GateRule, choice: Choice, *, chosen: bool) -> GatePoint:
    """A choice and its metrics; a threshold of NaN cuts nothing."""
    nothing = bool(np.isnan(choice.threshold))
    cut = (
        np.zeros(len(evidence.variance), bool)
        if nothing
        else cut_groups(evidence, choice.position, choice.threshold, rule.or_terminated)
    )
    metrics = measure(evidence, cut, choice.position)
    k = int(evidence.at[choice.position])
    return GatePoint(k, None if nothing else choice.threshold, chosen, metrics)


def _held_out(evidence: Evidence, rule: GateRule, positions: Sequence[int]) -> HeldOut:
    choices, metrics = cross_validate(
        evidence,
        folds=rule.folds,
        seed=rule.seed,
        or_terminated=rule.or_terminated,
        min_precision=rule.min_precision,
        positions=positions,
    )
    named = [None if c is None else (int(evidence.at[c.position]), c.threshold) for c in choices]
    k = int(evidence.at[positions[0]]) if len(positions) == 1 else None
    return HeldOut(k, named, metrics)
