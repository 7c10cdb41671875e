"""Where in a rollout credit falls, in rollouts that succeed and in those that fail."""

from typing import TYPE_CHECKING

from crbc_cli.report.figures.figure import (
    Figure,
    Spec,
    dashes,
    heading,
    panels,
    quantity,
    series,
    shapes,
)

if TYPE_CHECKING:
    from crbc_cli.engine.positions import PositionReport

__all__ = ["steps_figure"]

_OUTCOMES = ("success", "failure")


def steps_figure(report: "PositionReport") -> Figure:
    """Mean step credit with its quartiles, and the share of steps that get any; rows are those of
    `--json`."""
    rows = report.rows()
    told = []
    for outcome in _OUTCOMES:
        mine = [row for row in rows if row["outcome"] == outcome]
        if mine:
            steps = sum(row["steps"] for row in mine)
            mean = sum(row["mean"] * row["steps"] for row in mine) / steps
            credited = sum(row["credited_share"] * row["steps"] for row in mine) / steps
            told.append(f"{outcome}: {steps} steps, mean {mean:+.3f}, {credited:.0%} with credit")
    alt = (
        f"Step credit of {report.method} by position in the rollout and by outcome. Left: mean and "
        f"quartiles. Right: share of steps with credit other than 0. {'; '.join(told)}."
    )
    return Figure(
        f"Step credit ({report.method}) by position and outcome",
        alt,
        rows,
        panels(
            _lines("Mean, and quartiles as a band", "mean", "step credit A_S", first=True),
            _lines(
                "Steps with credit (points: number of steps)",
                "credited_share",
                "share of steps",
                first=False,
            ),
        ),
    )


def _lines(title: str, field: str, y_title: str, *, first: bool) -> Spec:
    """The first view has the band, the other the legend and shares on its axis."""
    y = quantity(field, y_title) if first else quantity(field, y_title, ".0%", domain=[0, 1])
    title_of, only = "rollout ends in", {"legend": None} if first else {}
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {"y": y, "strokeDash": dashes("outcome", title_of, _OUTCOMES) | only},
        },
        {
            "mark": {"type": "point", "filled": True},
            "encoding": {
                "y": y,
                "size": quantity("steps", "steps", range=[8, 90]) | only,
                "shape": shapes("outcome", title_of, _OUTCOMES) | only,
            },
        },
    ]
    if first:
        edges = {"y": quantity("low", y_title), "y2": {"field": "high"}}
        layers.insert(0, {"mark": {"type": "area", "opacity": 0.15}, "encoding": edges})
    return {
        "title": heading(title),
        "width": 330,
        "height": 250,
        "encoding": {
            "x": quantity("position", "step in the rollout", "d"),
            "color": series("outcome", title_of, _OUTCOMES) | only,
        },
        "layer": layers,
    }
