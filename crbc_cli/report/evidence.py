"""What a step's numbers are made of, as tables: shares of rollouts and of transitions."""

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from crbc_cli.engine.shares import EvidencePart, RolloutEvidence, TransitionEvidence
from crbc_cli.report.excerpt import one_line
from crbc_cli.report.naming import ACTION_WIDTH, anchor_names
from crbc_cli.report.text import percent, plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from crbc_cli.engine.explanation import StepExplanation

__all__ = ["evidence_tables"]

_LEGEND = (
    "evidence: how much the numbers use it (V and Q together), and what share of",
    "each number was earned there",
)
_MOST = 10
_WIDTH = 30


def evidence_tables(step: "StepExplanation", rollouts: Sequence[str]) -> "list[Table | str]":
    """The ten largest of each kind, the rest in one line.

    Args:
      step: the step.
      rollouts: names of the group's rollouts.
    """
    evidence = step.evidence
    if evidence is None:
        return []
    names = anchor_names(step.group.anchors)
    return [
        "",
        *_LEGEND,
        _table("rollout", [(rollouts[x.rollout], x) for x in evidence.rollouts]),
        _table("transition", [(_transition(x, names), x) for x in evidence.transitions]),
    ]


def _transition(x: TransitionEvidence, names: dict[int, str]) -> str:
    def anchor(number: int) -> str:
        return names.get(number, f"#{number}")

    did = f"{anchor(x.anchor)} {one_line(x.action, ACTION_WIDTH)}"
    if x.kind == "returns":
        return f"{did}, own returns x{x.count}"
    led = x.boundary if x.successor is None else anchor(x.successor)
    return f"{did} -> {led} x{x.count}"


def _table(
    title: str, entries: "Sequence[tuple[str, RolloutEvidence | TransitionEvidence]]"
) -> "Table":
    table = plain_table("", f"evidence by {title}", "used", "of V", "of Q", "adds to A", "of A")
    ranked = sorted(entries, key=lambda e: (-e[1].credit.share, -e[1].credit.use_share))
    for name, x in ranked[:_MOST]:
        table.add_row(one_line(name, _WIDTH), *_cells(x.state_value, x.action_value, x.credit))
    if left := [x for _, x in ranked[_MOST:]]:
        parts = (_sum([getattr(x, name) for x in left]) for name in _QUANTITIES)
        table.add_row(f"{len(left)} more", *_cells(*parts))
    return table


_QUANTITIES = ("state_value", "action_value", "credit")


def _sum(parts: Sequence[EvidencePart]) -> EvidencePart:
    return EvidencePart(*(sum(getattr(p, f.name) for p in parts) for f in fields(EvidencePart)))


def _cells(v: EvidencePart, q: EvidencePart, credit: EvidencePart) -> tuple[str, ...]:
    added = round(credit.contribution, 6)
    return (
        percent(credit.use_share),
        percent(v.share),
        percent(q.share),
        f"{added:+.6f}" if added else f"{0:.6f}",
        percent(credit.share),
    )
