"""How many visits share an anchor, against how often anchors contradict themselves."""

from typing import TYPE_CHECKING, Any

from crbc_cli.report.figures.figure import COLORS, INK, Figure, Spec, quantity, series

if TYPE_CHECKING:
    from crbc_cli.engine.anchor_report import AnchorReport

__all__ = ["anchors_figure"]

_NUMBERS = ("visits", "anchors", "shared_visits_share", "conflict_rate")


def anchors_figure(report: "AnchorReport") -> Figure:
    """One point per group, or per rule set where some were compared; rows are those of `--csv`."""
    compared = bool(report.comparison)
    rows: list[dict[str, Any]] = [
        ({"rules": row["rules"]} if compared else {n: row[n] for n in ("source_file", "group_id")})
        | {name: row[name] for name in _NUMBERS}
        for row in report.rows()
    ]
    highest = max([row["conflict_rate"] or 0.0 for row in rows] + [0.05])
    across: Spec = {
        "x": quantity(
            "shared_visits_share", "visits on anchors of several rollouts", ".0%", domain=[0, 1]
        ),
        "y": quantity(
            "conflict_rate", "conflict rate (lower is better)", ".0%", domain=[0, 1.1 * highest]
        ),
    }
    size = quantity("visits", "visits", "", range=[30, 400]) | {"legend": {"format": "~s"}}
    size.pop("axis", None)
    point: Spec = {
        "mark": {"type": "point", "filled": True, "opacity": 0.75, "stroke": "white"},
        "encoding": across | {"size": size, "color": {"value": COLORS[0]}},
    }
    layers = [point]
    if compared:
        names = [row["rules"] for row in rows]
        point["encoding"]["size"] = {"value": 120}
        point["encoding"]["color"] = series("rules", None, names) | {"legend": None}
        layers.append(
            {
                "mark": {
                    "type": "text",
                    "align": "right",
                    "dx": -8,
                    "dy": -8,
                    "fontSize": 11,
                    "color": INK,
                },
                "encoding": across | {"text": {"field": "rules"}},
            }
        )
    quality = report.quality
    unit = "rule sets" if compared else "groups"
    alt = (
        f"Anchor quality of {len(rows)} {unit}: share of visits on anchors that several rollouts "
        f"visited (across) against the conflict rate (up). All groups under the rules in force: "
        f"{_percent(quality.shared_share)} shared, conflict rate "
        f"{_percent(quality.conflicts.rate)}. "
        + "; ".join(_told(row) for row in rows[:40])
        + ("" if len(rows) <= 40 else f"; and {len(rows) - 40} more")
        + "."
    )
    spec: Spec = {"width": 380, "height": 280, "layer": layers}
    return Figure(f"Anchor quality of {len(rows)} {unit}", alt, rows, spec)


def _told(row: dict[str, Any]) -> str:
    name = row.get("rules", row.get("group_id"))
    shared, conflict = row["shared_visits_share"], row["conflict_rate"]
    return f"{name} {_percent(shared)} shared, {_percent(conflict)} in conflict"


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.1%}"
