"""Short names for anchors and actions, the same wherever a report speaks of them."""

from collections import Counter
from collections.abc import Sequence

from crbc_cli.engine.explanation import ActionFacts, AnchorFacts
from crbc_cli.report.excerpt import one_line

__all__ = ["ACTION_WIDTH", "action_names", "anchor_names", "legend", "shown_actions"]

ACTION_WIDTH = 20
_ANCHOR_WIDTH = 16
_LEGEND_WIDTH = 1000


def anchor_names(anchors: Sequence[AnchorFacts]) -> dict[int, str]:
    """Anchor -> its observation if that is one short line and no other anchor's, else `#number`."""
    texts = Counter(anchor.observation for anchor in anchors)
    return {
        a.anchor: a.observation
        if a.observation
        and texts[a.observation] == 1
        and one_line(a.observation, _ANCHOR_WIDTH) == a.observation
        else f"#{a.anchor}"
        for a in anchors
    }


def action_names(anchor: AnchorFacts) -> list[str]:
    """The anchor's actions on one line and cut, or `a1`, `a2`, … where that leaves some alike."""
    names = [one_line(action.action, ACTION_WIDTH) for action in anchor.actions]
    alike = len(set(names)) < len(names)
    return [f"a{number}" for number in range(1, len(names) + 1)] if alike else names


def legend(anchor: AnchorFacts, shown: Sequence[int], *, cut: bool) -> list[tuple[str, str]]:
    """(name, text) of the actions whose name does not say all of it.

    Args:
      anchor: the anchor.
      shown: indices of its actions.
      cut: also of actions whose name is their beginning.
    """
    names = action_names(anchor)
    entries = [(names[i], one_line(anchor.actions[i].action, _LEGEND_WIDTH)) for i in shown]
    return [(n, text) for n, text in entries if n != text and (cut or not n.endswith("…"))]


def shown_actions(anchor: AnchorFacts, own: ActionFacts | None, most: int | None) -> list[int]:
    """Indices of the first `most` actions of an anchor, `own` always among them, in order."""
    shown = list(range(len(anchor.actions)))[:most]
    if own is not None and (at := anchor.actions.index(own)) not in shown:
        shown[-1] = at
    return shown
