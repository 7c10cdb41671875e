"""One group as the data that the page draws: numbers, geometry and text, nothing else."""

import math
from dataclasses import replace
from typing import Any

from crbc_cli.engine.explanation import AnchorFacts, GroupExplanation, StepExplanation, StepFacts
from crbc_cli.engine.picture import GroupPicture
from crbc_cli.engine.shares import RolloutEvidence, TransitionEvidence
from crbc_cli.report.formulas import combination_formulas, value_formulas
from crbc_cli.report.graph.colours import scale_top
from crbc_cli.report.graph.layout import Arrow, Layout, lay_out
from crbc_cli.report.naming import anchor_names

__all__ = ["arrows_of", "group_data", "layout_of"]

_Json = dict[str, Any]

_DIGITS = 10
_LONGEST = 20_000
_MOST_ACTIONS = 12
_MOST_WAYS = 12


def group_data(picture: GroupPicture) -> _Json:
    """What the page needs to draw a group and to show its rollouts; strict JSON.

    `pairs` lists the actions of the first anchor, then those of the second, and so on; each list
    in `depths` is in the order of `anchors` or of `pairs`. Texts are numbers of `texts`.
    """
    group, texts = picture.group, _Texts()
    layout = layout_of(picture)
    settings = group.settings
    return {
        "id": group.group_id,
        "files": list(group.source_files),
        "key": {name: str(value) for name, value in group.key.items()},
        "status": group.group_status,
        "options": {
            "depth": _depth(settings.credit.depth),
            "discount": settings.credit.discount,
            "floor": settings.credit.floor,
            "gate": settings.credit.gate,
            "w_g": settings.credit.w_g,
            "w_s": settings.credit.w_s,
        },
        "depths": [
            {
                "depth": _depth(numbers.depth),
                "v": _rounded(numbers.state_value),
                "reach": [f"{bits:x}" for bits in numbers.reachable],
                "q": _rounded(numbers.action_value),
                "credit": _rounded(numbers.credit),
                "step_credit": _rounded(numbers.step_credit),
            }
            for numbers in picture.depths
        ],
        "top": scale_top(v for numbers in picture.depths for v in numbers.state_value),
        "run": picture.run,
        "settled": picture.settled,
        "taking_part": list(picture.taking_part),
        "size": [round(layout.width, 1), round(layout.height, 1)],
        "anchors": _anchors(picture, layout, texts),
        "boundaries": [
            {"node": node, "x": round(x, 1), "y": round(y, 1), "r": layout.radius[node]}
            for node, (x, y) in sorted(layout.place.items())
            if node < 0
        ],
        "pairs": _pairs(picture, texts),
        "arrows": [
            {
                "pair": pair,
                "to": arrow.target,
                "count": arrow.weight,
                "path": path,
                "aside": aside,
                "at": _at(at),
            }
            for (pair, arrow), path, aside, at in zip(
                arrows_of(group), layout.paths, layout.aside, layout.labels, strict=True
            )
        ],
        "rollouts": _rollouts(picture, texts),
        "texts": texts.all,
    }


def arrows_of(group: GroupExplanation) -> list[tuple[int, Arrow]]:
    """(pair, transition) of the group, by anchor, action and count."""
    found, pair = [], 0
    for anchor in group.anchors:
        for action in anchor.actions:
            for x in action.successors:
                target = x.anchor if x.anchor is not None else _BOUNDARY[str(x.boundary)]
                found.append((pair, Arrow(anchor.anchor, target, x.count)))
            pair += 1
    return found


def layout_of(picture: GroupPicture) -> Layout:
    """Where everything stands."""
    group = picture.group
    starts = [
        next((step.anchor for step in rollout.steps if step.anchor is not None), None)
        for rollout in group.rollouts
    ]
    return lay_out(
        [len(anchor.visits) for anchor in group.anchors],
        sorted({start for start in starts if start is not None}),
        [arrow for _, arrow in arrows_of(group)],
    )


_BOUNDARY = {"success": -1, "failure": -2}


class _Texts:
    """Each text once, in the order of first use."""

    def __init__(self) -> None:
        self.all: list[str | None] = []
        self._known: dict[str | None, int] = {}

    def __call__(self, text: str | None) -> int:
        if text is not None and len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}\n… ({len(text) - _LONGEST:,} more characters)"
        if text not in self._known:
            self._known[text] = len(self.all)
            self.all.append(text)
        return self._known[text]


def _anchors(picture: GroupPicture, layout: Layout, texts: _Texts) -> list[_Json]:
    names = anchor_names(picture.group.anchors)
    return [
        {
            "name": names[anchor.anchor],
            "text": texts(anchor.observation),
            "visits": len(anchor.visits),
            "by": sorted({visit.rollout for visit in anchor.visits}),
            "gate": anchor.gate,
            "sigma": round(anchor.sigma, _DIGITS),
            "x": round(layout.place[anchor.anchor][0], 1),
            "y": round(layout.place[anchor.anchor][1], 1),
            "r": round(layout.radius[anchor.anchor], 1),
        }
        for anchor in picture.group.anchors
    ]


def _pairs(picture: GroupPicture, texts: _Texts) -> list[_Json]:
    """Actions with the computation that all of their visits share."""
    group = picture.group
    first: dict[tuple[int, int], tuple[int, StepFacts]] = {}
    for index, rollout in enumerate(group.rollouts):
        for step in rollout.steps:
            if step.anchor is not None and step.action_index is not None:
                key = step.anchor, step.action_index
                if step.carried_from is None and key not in first:
                    first[key] = index, step
    pairs: list[_Json] = []
    for anchor in group.anchors:
        for position, action in enumerate(anchor.actions):
            seen = first.get((anchor.anchor, position))
            lines = []
            if seen is not None:
                explained = _explained(picture, anchor, *seen)
                lines = [
                    [formula.symbol, formula.right_side()]
                    for formula in value_formulas(explained, _MOST_ACTIONS)
                ]
            pairs.append(
                {
                    "anchor": anchor.anchor,
                    "action": texts(action.action),
                    "count": action.count,
                    "lines": lines,
                }
            )
            if picture.evidence:
                pairs[-1]["evidence"] = _evidence(picture, len(pairs) - 1)
    return pairs


def _evidence(picture: GroupPicture, pair: int) -> _Json:
    """What a pair's numbers are made of, the largest parts of its credit first.

    A part is [which, share of uses, of V, of Q, what it adds to the credit, of it]; which is a
    rollout, or a number of `arrows`, or [pair] for the returns of that pair's own visits.
    """
    evidence, group = picture.evidence[pair], picture.group
    arrow = {(p, a.target): number for number, (p, a) in enumerate(arrows_of(group))}
    bases = _first_pairs(group)

    def part(which: Any, x: RolloutEvidence | TransitionEvidence) -> list[Any]:
        credit = x.credit
        numbers = (
            credit.use_share,
            x.state_value.share,
            x.action_value.share,
            credit.contribution,
            credit.share,
        )
        return [which, *_rounded([*numbers])]

    def place(x: TransitionEvidence) -> Any:
        of = bases[x.anchor] + x.action_index
        if x.kind == "returns":
            return [of]
        return arrow[of, _BOUNDARY[str(x.boundary)] if x.successor is None else x.successor]

    ways = [part(place(x), x) for x in evidence.transitions]
    ways.sort(key=lambda p: (-p[5], -p[1]))
    return {
        "rollouts": [part(x.rollout, x) for x in evidence.rollouts],
        "transitions": ways[:_MOST_WAYS],
        "more": max(len(ways) - _MOST_WAYS, 0),
    }


def _explained(
    picture: GroupPicture, anchor: AnchorFacts, rollout: int, step: StepFacts
) -> StepExplanation:
    """A step as `crbc explain --step` has it, less what its formulas do not need."""
    group = picture.group
    led = {x.anchor for action in anchor.actions for x in action.successors} - {None}
    others = sorted(a for a in led if a is not None and a != anchor.anchor)
    shown = (anchor, *(group.anchors[a] for a in others))
    return StepExplanation(
        replace(group, anchors=shown),
        group.rollouts[rollout],
        step,
        None,
        None,
        picture.terms[rollout],
        (),
    )


def _rollouts(picture: GroupPicture, texts: _Texts) -> list[_Json]:
    group, rollouts, row = picture.group, [], 0
    bases = _first_pairs(group)
    for index, rollout in enumerate(group.rollouts):
        steps = []
        for step in rollout.steps:
            observation, action = picture.texts[row]
            pair = None
            if step.anchor is not None and step.action_index is not None:
                pair = bases[step.anchor] + step.action_index
            steps.append(
                {
                    "step": step.step,
                    "row": step.source_row,
                    "anchor": step.anchor,
                    "pair": pair,
                    "to": picture.led_to[row],
                    "seen": texts(observation),
                    "did": texts(action),
                    "v": _number(step.state_value),
                    "q": _number(step.action_value),
                    "credit": _number(step.credit),
                    "step_credit": _number(step.step_credit),
                    "group_advantage": _number(step.group_advantage),
                    "advantage": _number(step.advantage),
                    "reason": step.reason,
                    "carried_from": step.carried_from,
                }
            )
            row += 1
        explained = StepExplanation(
            replace(group, anchors=()),
            rollout,
            replace(rollout.steps[0], anchor=None),
            None,
            None,
            picture.terms[index],
            (),
        )
        term = combination_formulas(explained)[0]
        rollouts.append(
            {
                "id": rollout.rollout_id,
                "file": rollout.source_file,
                "outcome": rollout.outcome,
                "counts": rollout.counts,
                "group_advantage": _number(rollout.group_advantage),
                "term": [term.symbol, term.right_side()],
                "steps": steps,
            }
        )
    return rollouts


def _first_pairs(group: GroupExplanation) -> dict[int, int]:
    """Number of each anchor's first pair."""
    bases, pairs = {}, 0
    for anchor in group.anchors:
        bases[anchor.anchor] = pairs
        pairs += len(anchor.actions)
    return bases


def _depth(depth: float) -> int | str:
    return "inf" if depth == math.inf else int(depth)


def _number(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS) + 0.0


def _rounded(values: list[float]) -> list[float]:
    return [round(value, _DIGITS) + 0.0 for value in values]


def _at(point: tuple[float, float]) -> list[float]:
    return [round(point[0], 1), round(point[1], 1)]
