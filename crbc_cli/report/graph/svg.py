"""A group as one static SVG: anchors by value and visits, transitions by credit and count."""

import math
from html import escape

from crbc_cli.engine.picture import GroupPicture
from crbc_cli.report.excerpt import one_line
from crbc_cli.report.graph.colours import (
    FAILURE_COLOUR,
    SUCCESS_COLOUR,
    credit_colour,
    ink,
    scale_top,
    strength,
    value_colour,
)
from crbc_cli.report.graph.data import arrows_of, layout_of
from crbc_cli.report.naming import action_names, anchor_names

__all__ = ["group_svg"]

_MARGIN = 16.0
_HEAD = 74.0
_LEAST_WIDTH = 560.0
_LABELLED = 40
"""Most transitions whose action is written beside them; all of them have it as a tooltip."""


def group_svg(picture: GroupPicture, step: tuple[int, int] | None = None) -> str:
    """The merged process at the run's depth, with a legend. Needs no style sheet and no script.

    Args:
      picture: the group.
      step: (index of a rollout, step) whose transition is marked.
    """
    group, layout = picture.group, layout_of(picture)
    numbers = picture.depths[picture.run]
    largest = max((abs(c) for c in numbers.credit), default=0.0)
    top = scale_top(v for every in picture.depths for v in every.state_value)
    arrows = arrows_of(group)
    names = anchor_names(group.anchors)
    texts = [name for anchor in group.anchors for name in action_names(anchor)]
    whole = [action.action for anchor in group.anchors for action in anchor.actions]
    most = max((arrow.weight for _, arrow in arrows), default=1)
    width = max(layout.width, _LEAST_WIDTH) + 2 * _MARGIN
    height = layout.height + _HEAD + 2 * _MARGIN
    title = f"Group {one_line(str(group.group_id), 60)}: merged process"
    description = (
        f"{len(group.rollouts)} rollouts, {len(group.anchors)} anchors, {len(arrows)} transitions; "
        f"{_depth_name(numbers.depth)}. Fill: value V from 0 to {top:g}; size: visits; "
        f"line colour: credit Q - V from {-largest:.3f} to {largest:+.3f}; line width: count."
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-labelledby="t d" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f'<title id="t">{escape(title)}</title><desc id="d">{escape(description)}</desc>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *_legend(title, description.partition(";")[0], _depth_name(numbers.depth), top, largest),
        f'<g transform="translate({_MARGIN:.0f} {_HEAD + _MARGIN:.0f})">',
    ]
    marked = None if step is None else _way_of(picture, *step)
    drawn = zip(arrows, layout.paths, layout.aside, layout.labels, strict=True)
    for (pair, arrow), path, aside, (x, y) in drawn:
        colour = credit_colour(numbers.credit[pair], largest)
        label = (
            f"{one_line(whole[pair], 200)}: {arrow.weight}x, Q {numbers.action_value[pair]:.6f}, "
            f"credit {numbers.credit[pair]:+.6f}"
        )
        line = 1.0 + 2.5 * math.sqrt(arrow.weight / most)
        if marked == (pair, arrow.target):
            parts.append(
                f'<path d="{path}" fill="none" stroke="#f2b701" stroke-width="{line + 8:.1f}" '
                f'stroke-linecap="round" id="step"/>'
            )
        parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{line:.1f}" '
            f'stroke-opacity="{strength(numbers.credit[pair], largest, aside):.2f}" '
            f'marker-end="url(#{_marker(colour)})"><title>{escape(label)}</title></path>'
        )
        if len(arrows) <= _LABELLED:
            text = escape(f"{texts[pair]} ×{arrow.weight}")
            parts.append(
                f'<text x="{x:.1f}" y="{y - 4:.1f}" text-anchor="middle" fill="#333333" '
                f'stroke="#ffffff" stroke-width="3" paint-order="stroke">{text}</text>'
            )
    for anchor in group.anchors:
        value = numbers.state_value[anchor.anchor]
        x, y = layout.place[anchor.anchor]
        radius = layout.radius[anchor.anchor]
        told = f"#{anchor.anchor}, V {value:.6f}, {len(anchor.visits)} visits"
        tip = f"{told}\n{anchor.observation or '-'}"
        parts.append(
            f'<g><title>{escape(_printable(tip))}</title><circle cx="{x:.1f}" cy="{y:.1f}" '
            f'r="{radius:.1f}" fill="{value_colour(value / top)}" stroke="#333333"/>'
            f'<text x="{x:.1f}" y="{y + 3.5:.1f}" text-anchor="middle" font-size="9" '
            f'fill="{ink(value / top)}">{value:.2f}</text>'
            f'<text x="{x:.1f}" y="{y + radius + 11:.1f}" text-anchor="middle" fill="#333333" '
            f'stroke="#ffffff" stroke-width="3" paint-order="stroke">'
            f"{escape(names[anchor.anchor])}</text></g>"
        )
    for node, word, colour in ((-1, "SUCCESS", SUCCESS_COLOUR), (-2, "FAILURE", FAILURE_COLOUR)):
        if node in layout.place:
            x, y = layout.place[node]
            parts.append(
                f'<g><rect x="{x - 15:.1f}" y="{y - 15:.1f}" width="30" height="30" rx="4" '
                f'fill="{colour}"/><text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" '
                f'fill="#ffffff">{"1" if node == -1 else "0"}</text><text x="{x:.1f}" '
                f'y="{y + 27:.1f}" text-anchor="middle" fill="#333333">{word}</text></g>'
            )
    used = dict.fromkeys(credit_colour(numbers.credit[pair], largest) for pair, _ in arrows)
    parts += ["</g><defs>", *map(_arrowhead, used), "</defs></svg>\n"]
    return "".join(parts)


def _way_of(picture: GroupPicture, rollout: int, step: int) -> tuple[int, int | None] | None:
    """(pair, where it led) of a step; None where it takes no part."""
    group = picture.group
    row = sum(len(r.steps) for r in group.rollouts[:rollout])
    at, found = next((i, s) for i, s in enumerate(group.rollouts[rollout].steps) if s.step == step)
    if found.anchor is None or found.action_index is None:
        return None
    before = sum(len(anchor.actions) for anchor in group.anchors[: found.anchor])
    return before + found.action_index, picture.led_to[row + at]


def _depth_name(depth: float) -> str:
    return "full closure" if depth == math.inf else f"closure depth {depth:.0f}"


def _legend(title: str, sizes: str, depth: str, top: float, largest: float) -> list[str]:
    value = [value_colour(i / 40) for i in range(41)]
    credit = [credit_colour(i / 20 - 1, 1.0) for i in range(41)]
    x = _MARGIN + 12
    return [
        f'<text x="{x}" y="28" font-size="15" font-weight="600" fill="#111111">'
        f"{escape(title)}</text>",
        f'<text x="{x}" y="45" fill="#444444">{escape(f"{sizes}, {depth}")}</text>',
        *_scale(x, value, "value V", "0", f"{top:g}"),
        *_scale(x + 240, credit, "credit Q − V", f"{-largest:.2f}", f"{largest:+.2f}"),
    ]


def _scale(x: float, colours: list[str], name: str, low: str, high: str) -> list[str]:
    boxes = [
        f'<rect x="{x + 122 + 2 * i:.0f}" y="56" width="2.5" height="11" fill="{colour}"/>'
        for i, colour in enumerate(colours)
    ]
    return [
        f'<text x="{x:.0f}" y="66" fill="#333333">{name}</text>'
        f'<text x="{x + 117:.0f}" y="66" text-anchor="end" fill="#333333">{low}</text>',
        *boxes,
        f'<text x="{x + 210:.0f}" y="66" fill="#333333">{high}</text>',
    ]


def _marker(colour: str) -> str:
    return f"a{colour.removeprefix('#')}"


def _arrowhead(colour: str) -> str:
    return (
        f'<marker id="{_marker(colour)}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" '
        f'markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0,0L8,4L0,8z" fill="{colour}"/></marker>'
    )


def _printable(text: str) -> str:
    """XML 1.0 allows no control characters but tab and line ends."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
