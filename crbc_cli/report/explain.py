"""One group or one step for people: what was seen, what it is worth, and why."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table

from crbc_cli.engine.explanation import (
    ActionFacts,
    AnchorFacts,
    GroupExplanation,
    RolloutFacts,
    StepExplanation,
)
from crbc_cli.notes import counted
from crbc_cli.report.evidence import evidence_tables
from crbc_cli.report.excerpt import first_lines, one_line
from crbc_cli.report.formulas import step_formulas
from crbc_cli.report.naming import action_names, anchor_names, legend, shown_actions
from crbc_cli.report.text import plain_table
from crbc_cli.tables import GROUP_STATUSES, REASONS

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["explanation_report", "explanation_to_dict"]

_WIDTH = 76
_TEXT_LINES = 40
_MOST = 8


def explanation_report(found: GroupExplanation | StepExplanation) -> "list[RenderableType]":
    """A group, or one step of it, for the terminal."""
    return _group_report(found) if isinstance(found, GroupExplanation) else _step_report(found)


def explanation_to_dict(found: GroupExplanation | StepExplanation) -> dict[str, Any]:
    """The same for `--json`, with a step's formulas and remarks."""
    if isinstance(found, GroupExplanation):
        return found.to_dict()
    return found.to_dict() | {
        "formulas": [formula.to_dict() for formula in step_formulas(found)],
        "remarks": _remarks(found),
    }


def _group_report(group: GroupExplanation) -> "list[RenderableType]":
    """The group's rollouts, then each anchor with its actions."""
    steps = sum(len(rollout.steps) for rollout in group.rollouts)
    rollouts = plain_table("", "rollout", "outcome", "steps", "A_G", left=2)
    for name, rollout in zip(_rollout_names(group), group.rollouts, strict=True):
        rollouts.add_row(
            one_line(name, 36),
            rollout.outcome,
            str(len(rollout.steps)),
            _group_term(rollout),
        )
    parts: list[RenderableType] = [
        _group_name(group),
        _files(group),
        f"{counted(len(group.rollouts), 'rollout')}, {counted(steps, 'step')}, "
        f"{counted(len(group.anchors), 'anchor')}",
        *_option_lines(group),
        rollouts,
    ]
    names = anchor_names(group.anchors)
    for anchor in group.anchors:
        parts += [
            one_line(f"#{anchor.anchor} {anchor.observation or '-'}", _WIDTH),
            f"  {_anchor_line(anchor)}",
            Padding(_actions_table(anchor, range(len(anchor.actions)), names), (0, 0, 0, 2)),
            *(Padding(line, (0, 0, 0, 2)) for line in _legend_lines(anchor)),
            "",
        ]
    return parts


def _step_report(step: StepExplanation) -> "list[RenderableType]":
    """The step's anchor with its actions and visits, the computation, and remarks."""
    group, anchor, rollout = step.group, step.anchor, step.rollout
    name = one_line(f"{rollout.rollout_id}:{step.step.step}", 40)
    parts: list[RenderableType] = [
        f"step {name} of {_group_name(group)}",
        f"row {step.step.source_row} of {rollout.source_file}",
        *([_files(group)] if len(group.source_files) > 1 else []),
        f"rollout of {counted(len(rollout.steps), 'step')}: {rollout.outcome}",
        *_option_lines(group),
        "",
        "observation" if anchor is None else f"observation (anchor #{anchor.anchor})",
        *_block(step.observation),
        *_part_lines(step),
        "action",
        *_block(step.action),
        "",
    ]
    own = step.own_action
    if anchor is not None and own is not None:
        shown = shown_actions(anchor, own, 2 * _MOST)
        names = anchor_names(group.anchors)
        rollouts = _rollout_names(group)
        parts += [
            _anchor_line(anchor),
            Padding(_actions_table(anchor, shown, names, own), (0, 0, 1, 0)),
            *_legend_lines(anchor, shown),
            *_visit_lines(anchor, own, rollouts),
            f"evidence from rollouts {_some([rollouts[i] for i in step.reachable])}",
            "",
        ]
    computation = Table.grid(padding=(0, 1))
    for formula in step_formulas(step, _MOST):
        computation.add_row(one_line(formula.symbol, 28), formula.right_side())
    remarks = _remarks(step)
    evidence = evidence_tables(step, _rollout_names(group))
    return [*parts, computation, *([""] if remarks else []), *remarks, *evidence]


def _remarks(step: StepExplanation) -> list[str]:
    """What is special about the step, in words."""
    anchor, options, status = step.anchor, step.group.settings.credit, step.group.group_status
    remarks = []
    if status != "ok":
        remarks.append(f"{status}: {GROUP_STATUSES[status]}")
    if step.step.reason is not None:
        remarks.append(f"{step.step.reason}: {REASONS[step.step.reason]}")
    if step.step.carried_from is not None:
        remarks.append(f"a thought: it carries the numbers of step {step.step.carried_from}")
        if step.group.settings.anchor.thoughts == "zero":
            remarks[-1] += ", with credit set to 0"
    if anchor is None:
        return remarks
    if not anchor.gate:
        kind = options.gate.removesuffix("s")
        remarks.append(f"gate closed: one {kind} was seen at this anchor, so no step credit")
    elif anchor.sigma == 0:
        remarks.append("no spread: all actions of this anchor are worth the same")
    elif anchor.sigma < options.floor:
        remarks.append("damped: sigma is below the floor")
    return remarks


def _group_name(group: GroupExplanation) -> str:
    keys = "".join(f", {name} {one_line(str(value), 40)}" for name, value in group.key.items())
    return f"group {one_line(str(group.group_id), 40)}{keys}: {group.group_status}"


def _files(group: GroupExplanation) -> str:
    """Input names, numbered where a group spans several."""
    files = group.source_files
    return files[0] if len(files) == 1 else ", ".join(f"[{i}] {f}" for i, f in enumerate(files, 1))


def _rollout_names(group: GroupExplanation) -> list[str]:
    """Rollout ids, behind the number of their file where a group spans several."""
    files = group.source_files
    return [
        f"{r.rollout_id}"
        if len(files) == 1
        else f"[{files.index(r.source_file) + 1}]{r.rollout_id}"
        for r in group.rollouts
    ]


def _option_lines(group: GroupExplanation) -> list[str]:
    """The options behind the numbers; extensions and penalties only where they are on."""
    settings = group.settings
    credit, term, outcome = settings.credit, settings.group_advantage, settings.outcome
    depth = "inf" if credit.depth == math.inf else f"{credit.depth:.0f}"
    extras = {
        f"sigma of the {credit.sigma}": credit.sigma != "depth",
        f"penalty {term.penalty:g} ({term.invalid_penalty})": term.invalid_penalty != "none",
        "intermediate rewards": credit.intermediate_rewards,
        f"boundary {outcome.boundary}": outcome.boundary != "outcome",
        f"truncated {outcome.truncated}": outcome.truncated != "fail",
        f"unscored {outcome.unscored}": outcome.unscored != "exclude",
    }
    active = ", ".join(text for text, on in extras.items() if on)
    return [
        f"depth {depth}, discount {credit.discount:g}, floor {credit.floor:g}, "
        f"gate {credit.gate}, weights {credit.w_g:g} and {credit.w_s:g}",
        f"A_G: {term.estimator} of {term.reward} per {term.episode_stats.removesuffix('s')}",
        *([active] if active else []),
    ]


def _group_term(rollout: RolloutFacts) -> str:
    varies = len({step.group_advantage for step in rollout.steps}) > 1
    return "varies" if varies else _signed(rollout.group_advantage, 4)


def _anchor_line(anchor: AnchorFacts) -> str:
    rollouts = len({visit.rollout for visit in anchor.visits})
    value = "-" if anchor.state_value is None else f"{anchor.state_value:.6f}"
    return (
        f"{counted(len(anchor.visits), 'visit')} by {counted(rollouts, 'rollout')}, "
        f"{anchor.reachable_rollouts} reachable; V {value}, sigma {anchor.sigma:.6f}"
        f"{'' if anchor.gate else ', gate closed'}"
    )


def _actions_table(
    anchor: AnchorFacts,
    shown: Sequence[int],
    names: dict[int, str],
    own: ActionFacts | None = None,
) -> Table:
    """Actions `shown` of an anchor with count, values and successors; `own` is marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, width in (("action", 22), ("count", 5), ("Q", 9), ("credit", 9), ("A_S", 7)):
        table.add_column(
            column, width=width, no_wrap=True, justify="left" if column == "action" else "right"
        )
    table.add_column("leads to", overflow="fold")
    texts = action_names(anchor)
    for index in shown:
        action, text = anchor.actions[index], texts[index]
        table.add_row(
            text if own is None else f"{'>' if action is own else ' '} {text}",
            str(action.count),
            "-" if action.action_value is None else f"{action.action_value:.6f}",
            _signed(action.credit, 6),
            _signed(action.step_credit, 4),
            _some(
                [
                    f"{x.boundary if x.anchor is None else names.get(x.anchor, f'#{x.anchor}')}"
                    f" x{x.count}"
                    for x in action.successors
                ]
            ),
        )
    return table


def _legend_lines(anchor: AnchorFacts, shown: Sequence[int] | None = None) -> list[str]:
    """Actions with a label or a cut name in full; without `shown` all that have a label."""
    every = range(len(anchor.actions)) if shown is None else shown
    lines = [f"{name}: {text}" for name, text in legend(anchor, every, cut=shown is not None)]
    return [*lines, ""] if lines and shown is not None else lines


def _part_lines(step: StepExplanation) -> list[str]:
    """What rules made the anchor from."""
    lines = []
    for part in step.parts:
        text = one_line(part.text, 60)
        if part.kind == "reply":
            inherited = part.step is not None and part.step != step.step.step
            text = f"inherited from step {part.step}: {text}" if inherited else text
        elif part.kind == "count":
            text = str(part.count)
        elif part.kind != "column":
            led = "" if part.action is None else f"{one_line(part.action, 30)} -> "
            text = "unset" if part.step is None else f"since step {part.step}: {led}{text}"
        lines.append("  " + one_line(f"{part.name.rpartition(':')[2]}: {text}", _WIDTH))
    return ["anchor made of", *lines] if lines else []


def _visit_lines(anchor: AnchorFacts, own: ActionFacts, rollouts: Sequence[str]) -> list[str]:
    """Where each action was taken, as rollout:step."""
    lines, names = [], action_names(anchor)
    for index in shown_actions(anchor, own, _MOST):
        places = [
            f"{rollouts[v.rollout]}:{v.step}" for v in anchor.visits if v.action_index == index
        ]
        lines.append(f"{names[index]} at {_some(places)}")
    return lines


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(one_line(name, 40) for name in names[:_MOST]) + more


def _signed(value: float | None, digits: int) -> str:
    if value is None:
        return "-"
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def _block(text: str | None) -> list[str]:
    """Log text, indented."""
    return [f"  {line}" for line in first_lines(text or "-", _WIDTH, _TEXT_LINES)]
