"""The paper's figure 5: reachable rollouts per depth, and depth 0 against full closure."""

from typing import TYPE_CHECKING, Any

from crbc_cli.report.figures.figure import (
    INK,
    SEQUENCE,
    SHADES,
    Figure,
    Spec,
    classes,
    heading,
    panels,
    quantity,
)

if TYPE_CHECKING:
    from crbc_cli.engine.coverage import CoverageReport

__all__ = ["coverage_figure"]


def coverage_figure(report: "CoverageReport") -> Figure:
    """Both panels; rows are those of `--json`, `distribution` and `paired`."""
    found = report.to_dict()
    depths = [str(d["depth"]) for d in found["depths"]]
    rows: list[dict[str, Any]] = [
        {"panel": "distribution", "depth": str(d["depth"]), "depth_0": None, **cell}
        for d in found["depths"]
        for cell in d["distribution"]
    ]
    rows += [
        {"panel": "paired", "depth": "inf", "depth_0": cell["depth_0"], "rollouts": cell["closure"]}
        | {name: cell[name] for name in ("count", "share")}
        for cell in found["paired"]
    ]
    share = report.expanded / report.total if report.total else 0.0
    ends = [d["full_coverage_share"] or 0.0 for d in found["depths"]] or [0.0]
    alt = (
        f"Left: distribution of {report.total} eligible {report.unit} over the number of rollouts "
        f"whose evidence reaches them, for closure depths {', '.join(depths)}; "
        f"{ends[0]:.1%} reach every rollout at depth {depths[0]}, {ends[-1]:.1%} at depth "
        f"{depths[-1]}. Right: the same at depth 0 against full closure; {share:.1%} reach more."
    )
    most = max((row["rollouts"] for row in rows if row["count"]), default=1)
    return Figure(
        f"Evidence coverage of {report.total} eligible {report.unit}",
        alt,
        rows,
        panels(_distribution(report.unit, depths, most, _side(most)), _paired(report.unit, most)),
    )


def _side(most: int) -> int:
    """Side of the heat map, pixels."""
    return max(200, min(36, 420 // most) * most)


def _distribution(unit: str, depths: list[str], most: int, height: int) -> Spec:
    scale = {"scheme": SEQUENCE, "reverse": True, "domain": list(range(1, most + 1))}
    return {
        "title": heading("By closure depth"),
        "width": max(120, 46 * len(depths)),
        "height": height,
        "transform": [{"filter": "datum.panel == 'distribution' && datum.count > 0"}],
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 0.5},
        "encoding": {
            "x": classes("depth", "closure depth K", depths),
            "y": quantity("share", f"share of {unit}", ".0%", domain=[0, 1]) | {"stack": "zero"},
            "color": {
                "field": "rollouts",
                "type": "ordinal",
                "title": ["rollouts", "reached"],
                "scale": scale,
            },
            "order": {"field": "rollouts", "type": "quantitative", "sort": "descending"},
        },
    }


def _paired(unit: str, most: int) -> Spec:
    shown = list(range(1, most + 1))
    layers: list[Spec] = [
        {
            "mark": {"type": "rect", "stroke": "white"},
            "encoding": {
                "color": quantity("share", "", scheme=SHADES)
                | {"title": [f"share of {unit}"], "legend": {"format": ".0%"}}
            },
        },
        {
            "transform": [{"filter": "datum.rollouts == datum.depth_0"}],
            "mark": {"type": "rect", "fill": None, "stroke": INK, "strokeDash": [3, 2]},
            "encoding": {},
        },
    ]
    if most <= 16:
        layers.append(_shares_as_text(9 if most > 10 else 10))
    return {
        "title": heading("Depth 0 against full closure (dashed: unchanged)"),
        "width": _side(most),
        "height": _side(most),
        "transform": [{"filter": "datum.panel == 'paired'"}],
        "encoding": {
            "x": classes("rollouts", "rollouts reached at full closure", shown)
            | {"scale": {"domain": shown}},
            "y": classes("depth_0", "rollouts reached at depth 0", shown[::-1])
            | {"scale": {"domain": shown[::-1]}},
        },
        "layer": layers,
    }


def _shares_as_text(size: int) -> Spec:
    return {
        "transform": [
            {"joinaggregate": [{"op": "max", "field": "share", "as": "largest"}]},
            {"calculate": "datum.share > 0.55 * datum.largest", "as": "dark"},
        ],
        "mark": {"type": "text", "fontSize": size},
        "encoding": {
            "text": {"field": "share", "type": "quantitative", "format": ".1%"},
            "color": {"condition": {"test": "datum.dark", "value": "white"}, "value": INK},
        },
    }
