"""The paper's figure 4: what a training update's time goes into, and the stages of crbc itself."""

from typing import TYPE_CHECKING, Any

from crbc_cli.report.figures.figure import COLORS, INK, Figure, Spec, classes, heading, quantity

if TYPE_CHECKING:
    from crbc_cli.engine.profile import ProfileReport

__all__ = ["runtime_figure"]

_PHASES = {
    "rollout": "rollout",
    "policy_update": "policy update",
    "advantage": "advantage (trainer)",
    "rest": "rest",
    "credit": "step credit (crbc)",
}
_SHORTEST = 1e-4


def runtime_figure(report: "ProfileReport") -> Figure:
    """Stages, and above them the phases of an update where the log has them.

    Rows are those of `--json`, `stages` and `update_means`.
    """
    found = report.to_dict()
    rows: list[dict[str, Any]] = []
    means = found["update_means"] or {}
    whole = means.get("total") or sum(v for k, v in means.items() if k != "credit") or None
    for phase, name in _PHASES.items():
        if phase in means:
            seconds = means[phase]
            share = seconds / whole if whole else None
            rows.append({"panel": "update", "part": name, "seconds": seconds, "share": share})
    stages = [s for s in found["stages"] if s["stage"] != "import"]
    total = sum(s["seconds"] for s in stages)
    for stage in stages:
        share = stage["seconds"] / total if total else None
        rows.append(
            {"panel": "crbc", "part": stage["stage"], "seconds": stage["seconds"], "share": share}
        )
    views, alt = [], f"Seconds of crbc annotate on {found['rows']} rows by stage: {_told(stages)}."
    if means:
        updates = len(found["updates"] or ())
        parts = [r["part"] for r in rows if r["panel"] == "update"]
        views.append(
            _bars("update", f"Mean of {updates} training update{'s' * (updates != 1)}", parts)
        )
        told = ", ".join(
            f"{r['part']} {r['seconds']:.3g} s" for r in rows if r["panel"] == "update"
        )
        alt = f"Seconds of a training update by phase: {told}. {alt}"
    views.append(
        _bars("crbc", f"crbc annotate, {found['rows']:,} rows", [s["stage"] for s in stages])
    )
    return Figure("Where the time goes", alt, rows, {"vconcat": views})


def _told(stages: list[dict[str, Any]]) -> str:
    return ", ".join(f"{s['stage']} {s['seconds']:.3g} s" for s in stages)


def _bars(panel: str, title: str, parts: list[str]) -> Spec:
    """One bar per part on a logarithmic axis, since parts differ by powers of ten, with seconds
    and share beside it."""
    ours = {"test": "datum.part == 'step credit (crbc)'", "value": COLORS[1]}
    return {
        "title": heading(title),
        "width": 420,
        "height": {"step": 24},
        "transform": [
            {"filter": f"datum.panel == '{panel}'"},
            {"calculate": f"max(datum.seconds, {1.2 * _SHORTEST})", "as": "shown"},
            {
                "calculate": "format(datum.seconds, '.3~g') + ' s'"
                " + (isValid(datum.share) ? ', ' + format(datum.share, '.2~p') : '')",
                "as": "label",
            },
        ],
        "encoding": {
            "y": classes("part", None, parts),
            "x": quantity("shown", "seconds (logarithmic)", type="log", domainMin=_SHORTEST)
            | {"axis": {"format": "~g", "values": [10.0**k for k in range(-4, 6)]}},
        },
        "layer": [
            {
                "mark": {"type": "bar", "height": 14},
                "encoding": {
                    "x2": {"datum": _SHORTEST},
                    "color": {"condition": ours, "value": COLORS[0]},
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "fontSize": 11, "color": INK},
                "encoding": {"text": {"field": "label"}},
            },
        ],
    }
