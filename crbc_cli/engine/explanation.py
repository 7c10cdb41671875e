"""What is known about one group or one step: data for people, JSON and pictures."""

from dataclasses import asdict, dataclass
from typing import Any

from crbc_cli.engine.shares import EvidenceShares
from crbc_cli.options import Settings
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = [
    "ActionFacts",
    "AnchorFacts",
    "GroupExplanation",
    "PartFacts",
    "RolloutFacts",
    "StepExplanation",
    "StepFacts",
    "Successor",
    "TrajectoryFacts",
    "VisitFacts",
]

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Successor:
    """Where an action led.

    Attributes:
      anchor: anchor of the group, or None for a boundary.
      boundary: "success", "failure" or None.
      count: N(s,a,x).
      value: V^(K-1) of the anchor (V at full closure), worth of the boundary; None at depth 0.
    """

    anchor: int | None
    boundary: str | None
    count: int
    value: float | None


@dataclass(frozen=True, slots=True)
class ActionFacts:
    """One action at an anchor.

    Attributes:
      action: its text, None for a null action.
      count: N(s,a).
      action_value, credit, step_credit: as in the credit table.
      sigma_credit: the credit whose spread is sigma: less the step penalty, at sigma's depth.
      reward: mean intermediate reward, None where they do not enter.
      invalid: share of its visits that the environment refused.
      successors: most frequent first.
    """

    action: str | None
    count: int
    action_value: float | None
    credit: float | None
    step_credit: float | None
    sigma_credit: float
    reward: float | None
    invalid: float
    successors: tuple[Successor, ...]


@dataclass(frozen=True, slots=True)
class VisitFacts:
    """One visit.

    Attributes:
      rollout: index into the group's rollouts.
      action_index: index into the anchor's actions.
      suffix_return: G, the discounted outcome of its own continuation.
    """

    rollout: int
    step: int
    action_index: int
    suffix_return: float


@dataclass(frozen=True, slots=True)
class AnchorFacts:
    """One anchor.

    Attributes:
      anchor: dense number inside the group.
      observation: content at its first visit, or of the earlier reply that stands for it there.
      state_value: V, as in the credit table.
      sigma: spread of the credit before the floor.
      gate: the anchor gives step credit.
      reachable_rollouts: as in the credit table.
      invalid: share of its visits that the environment refused.
      actions: in order of first visit.
      visits: in order of rollout and step.
    """

    anchor: int
    observation: str | None
    state_value: float | None
    sigma: float
    gate: bool
    reachable_rollouts: int
    invalid: float
    actions: tuple[ActionFacts, ...]
    visits: tuple[VisitFacts, ...]


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One row of a rollout.

    Attributes:
      source_row: row of the input.
      anchor, action_index: which anchor, and which of its actions; None where it takes no part.
      carried_from: step whose numbers a thought row carries; None for rows with their own.
      others: as in the credit table.
    """

    step: int
    source_row: int
    anchor: int | None
    action_index: int | None
    carried_from: int | None
    state_value: float | None
    action_value: float | None
    credit: float | None
    step_credit: float | None
    group_advantage: float | None
    advantage: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """One rollout.

    Attributes:
      outcome: "success", "failure", "truncated" (cut without success) or "unscored".
      counts: it enters the group advantage.
      group_advantage: of its rows; None where rows differ (penalty per row) or there is none.
      steps: in order, identical copies and discarded rows left out.
    """

    source_file: str
    rollout_id: str | int
    outcome: str
    counts: bool
    group_advantage: float | None
    steps: tuple[StepFacts, ...]


@dataclass(frozen=True)
class GroupExplanation:
    """A group with its merged process.

    Attributes:
      key: values of the --key columns.
      anchors: all, or those a step needs; `anchor` numbers them.
    """

    source_files: tuple[str, ...]
    group_id: str | int
    key: _Json
    group_status: str
    settings: Settings
    rollouts: tuple[RolloutFacts, ...]
    anchors: tuple[AnchorFacts, ...]

    def to_dict(self) -> _Json:
        """For `--json`."""
        return _header(self) | {
            "rollouts": [
                asdict(rollout) | {"length": len(rollout.steps)} for rollout in self.rollouts
            ],
            "anchors": [_anchor_dict(anchor, self) for anchor in self.anchors],
        }


@dataclass(frozen=True, slots=True)
class PartFacts:
    """One part of an anchor that rules made.

    Attributes:
      name: `reply`, a slot, or `column:NAME`.
      kind: reply, column, or the slot's kind.
      step: step whose reply it is, or at which the slot got its present value; None if unset.
      count: value of a count.
      action: the action that led to that step, for slots.
      text: what was read: the reply after its rules, the reply at that step, or the column.
    """

    name: str
    kind: str
    step: int | None
    count: int | None
    action: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class TrajectoryFacts:
    """Terms of a row's group advantage.

    Attributes:
      score: the rollout's reward less penalties.
      mean: mean score of the group.
      divisor: of score - mean: std + eps for GRPO, (n-1)/n for RLOO, 1 for Dr.GRPO; None where
        all scores are equal.
      voters: rollouts of the group that count.
    """

    score: float
    mean: float
    divisor: float | None
    voters: int


@dataclass(frozen=True)
class StepExplanation:
    """One step.

    Attributes:
      group: the group; of its anchors only the step's own (first) and its successors.
      rollout, step: the step's facts; `anchor` is None where the row takes no part.
      observation, action: content of the row itself.
      trajectory: None where the rollout does not count, or counts alone.
      reachable: indices of the rollouts whose evidence reaches the step at full closure.
      parts: what rules made the row's anchor from; empty where it is what was logged.
      evidence: what V, Q and credit are made of; None where the row takes no part.
    """

    group: GroupExplanation
    rollout: RolloutFacts
    step: StepFacts
    observation: str | None
    action: str | None
    trajectory: TrajectoryFacts | None
    reachable: tuple[int, ...]
    parts: tuple[PartFacts, ...] = ()
    evidence: EvidenceShares | None = None

    @property
    def anchor(self) -> AnchorFacts | None:
        """The step's anchor."""
        return None if self.step.anchor is None else self.group.anchors[0]

    @property
    def own_action(self) -> ActionFacts | None:
        """What was done there; for a thought row, in the step that follows."""
        anchor, index = self.anchor, self.step.action_index
        return None if anchor is None or index is None else anchor.actions[index]

    def to_dict(self) -> _Json:
        """For `--json`."""
        group, anchor = self.group, self.anchor
        rollout = asdict(self.rollout)
        del rollout["steps"]
        return _header(group) | {
            "rollout": rollout | {"length": len(self.rollout.steps)},
            "step": asdict(self.step),
            "observation": self.observation,
            "action": self.action,
            "anchor": None if anchor is None else _anchor_dict(anchor, group),
            "successors": [
                {"anchor": a.anchor, "observation": a.observation, "state_value": a.state_value}
                for a in group.anchors
                if anchor is not None
                and any(
                    x.anchor == a.anchor for action in anchor.actions for x in action.successors
                )
            ],
            "trajectory": None if self.trajectory is None else asdict(self.trajectory),
            "parts": [asdict(part) for part in self.parts],
            "reachable": [_rollout_key(group.rollouts[i]) for i in self.reachable],
            "evidence": None if self.evidence is None else _evidence_dict(self.evidence, group),
        }


def _header(group: GroupExplanation) -> _Json:
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "report": "explain",
        "source_files": list(group.source_files),
        "group_id": group.group_id,
        "key": group.key,
        "group_status": group.group_status,
        "options": group.settings.echo(),
    }


def _rollout_key(rollout: RolloutFacts) -> _Json:
    return {"source_file": rollout.source_file, "rollout_id": rollout.rollout_id}


def _anchor_dict(anchor: AnchorFacts, group: GroupExplanation) -> _Json:
    visits = [_rollout_key(group.rollouts[v.rollout]) | asdict(v) for v in anchor.visits]
    for visit in visits:
        del visit["rollout"]
    return asdict(anchor) | {"visit_count": len(visits), "visits": visits}


def _evidence_dict(evidence: EvidenceShares, group: GroupExplanation) -> _Json:
    rollouts = [_rollout_key(group.rollouts[x.rollout]) | asdict(x) for x in evidence.rollouts]
    for rollout in rollouts:
        del rollout["rollout"]
    return {"rollouts": rollouts, "transitions": [asdict(x) for x in evidence.transitions]}
