"""Estimators side by side: fidelity with intervals, sweeps as curves, agreement as a heat map."""

import math
from typing import TYPE_CHECKING, Any

from crbc_cli.methods.fidelity import METRICS
from crbc_cli.report.figures.figure import (
    INK,
    Figure,
    Spec,
    classes,
    dashes,
    quantity,
    series,
    strokes,
)

if TYPE_CHECKING:
    from crbc_cli.engine.comparison import Comparison

__all__ = ["compare_figure"]


def compare_figure(report: "Comparison") -> Figure:
    """What suits the comparison: curves over a swept option, else cosines with the truth, else how
    far each two methods agree."""
    if any(entry.setting for entry in report.entries):
        return _sweep(report)
    return _agreement(report) if report.truth is None else _fidelity(report)


def _measured(report: "Comparison") -> list[dict[str, Any]]:
    """One row per result: the cosine where there is a truth, else the share with credit."""
    rows: list[dict[str, Any]] = []
    keys = list(dict.fromkeys(key for entry in report.entries for key in entry.setting))
    for result in report.results:
        entry = report.entries[result.entry]
        found = result.metrics and result.metrics["cosine"]
        mean = found.mean if found else result.credited
        ends = (found.low, found.high) if found else (math.nan, math.nan)
        row: dict[str, Any] = {"group_size": result.size, "name": entry.name}
        row |= {"method": entry.label} | {key: entry.setting.get(key) for key in keys}
        row |= {"measure": "cosine" if found else "credited_share", "value": _finite(mean)}
        rows.append(row | {"low": _finite(ends[0]), "high": _finite(ends[1])})
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _what(report: "Comparison") -> str:
    if report.truth is None:
        return "share of steps with credit"
    return f"{METRICS['cosine']}, with 95 % intervals"


def _told(rows: list[dict[str, Any]]) -> str:
    return "; ".join(
        f"{row['name']}{'' if row['group_size'] is None else ' of ' + str(row['group_size'])} "
        + ("none" if row["value"] is None else f"{row['value']:.3f}")
        for row in rows
    )


def _fidelity(report: "Comparison") -> Figure:
    rows = _measured(report)
    order = sorted(rows, key=lambda row: -(row["value"] or -2.0))
    names = list(dict.fromkeys(row["name"] for row in order))
    several = len(report.sizes) > 1
    sizes = [str(size.rollouts) for size in report.sizes]
    for row in rows:
        row["group_size"] = None if row["group_size"] is None else str(row["group_size"])
    color: Spec = {"color": series("group_size", "group size", sizes)} if several else {}
    offset: Spec = {"yOffset": {"field": "group_size", "type": "nominal"}} if several else {}
    x_title = METRICS["cosine"]
    at: Spec = {"y": classes("name", None, names), **offset}
    spec: Spec = {
        "width": 380,
        "height": {"step": 14 * len(sizes) + 14 if several else 26},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {**at, **color, "x": quantity("low", x_title, zero=False)}
                | {"x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {**at, **color, "x": quantity("value", x_title, zero=False)},
            },
        ],
    }
    alt = f"Estimators by {_what(report)}, against {report.truth}: {_told(order)}."
    return Figure(f"Fidelity to {report.truth}", alt, rows, spec)


def _sweep(report: "Comparison") -> Figure:
    """The first swept option across, one line per method and further setting; methods that the
    option does not touch are level lines."""
    rows = _measured(report)
    key = next(iter(next(e.setting for e in report.entries if e.setting)))
    values = list(dict.fromkeys(row[key] for row in rows if row[key] is not None))
    drawn: list[dict[str, Any]] = []
    for row in rows:
        others = [f"{k} {v}" for k, v in _other_settings(row, key).items() if v is not None]
        size = [] if row["group_size"] is None else [f"groups of {row['group_size']}"]
        line = ", ".join([row["method"], *others, *size])
        for value in values if row[key] is None else [row[key]]:
            drawn.append(row | {key: value, "line": line})
    lines = list(dict.fromkeys(row["line"] for row in drawn))
    title = key.replace("_", " ")
    what = "share of steps with credit" if report.truth is None else "cosine with the truth"
    y = quantity("value", what, ".0%" if report.truth is None else "", zero=False)
    across = {"x": classes(key.replace(".", "\\."), title, values)}
    named = {"color": series("line", None, lines) | strokes(None)}
    spec: Spec = {
        "width": max(300, 54 * len(values)),
        "height": 260,
        "encoding": across | named,
        "layer": [
            {
                "mark": {"type": "errorband", "opacity": 0.12},
                "encoding": {"y": quantity("low", what, zero=False), "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {"y": y, "strokeDash": dashes("line", None, lines) | strokes(None)},
            },
            {"mark": {"type": "point", "filled": True, "size": 45}, "encoding": {"y": y}},
        ],
    }
    if report.truth is None:
        del spec["layer"][0]
    alt = f"{_what(report).capitalize()} over {title}: {_told(rows)}."
    return Figure(f"Sweep of {title}", alt, drawn, spec)


def _other_settings(row: dict[str, Any], key: str) -> dict[str, Any]:
    """Swept options of a row but `key`."""
    fixed = ("group_size", "name", "method", "measure", "value", "low", "high", key)
    return {k: v for k, v in row.items() if k not in fixed}


def _agreement(report: "Comparison") -> Figure:
    """Spearman correlation of each two methods over steps, on the first group size."""
    names = [entry.name for entry in report.entries]
    size = report.sizes[0].rollouts if report.sizes else None
    pairs = {(p.a, p.b): p.agreement.spearman for p in report.pairs if p.size == size}
    rows = [
        {
            "a": a,
            "b": b,
            "spearman": 1.0 if i == j else _finite(pairs.get((min(i, j), max(i, j)), math.nan)),
        }
        for i, a in enumerate(names)
        for j, b in enumerate(names)
    ]
    rows = [row for row in rows if row["spearman"] is not None]
    side = 52 * len(names)
    dark = "datum.spearman > 0.6 || datum.spearman < -0.6"
    spec: Spec = {
        "width": side,
        "height": side,
        "encoding": {
            "x": classes("a", "estimator", names) | {"axis": {"labelAngle": -40}},
            "y": classes("b", "estimator", names),
        },
        "layer": [
            {
                "mark": {"type": "rect", "stroke": "white"},
                "encoding": {
                    "color": quantity(
                        "spearman", "Spearman", scheme="blueorange", reverse=True, domain=[-1, 1]
                    )
                },
            },
            {
                "mark": {"type": "text", "fontSize": 11},
                "encoding": {
                    "text": {"field": "spearman", "type": "quantitative", "format": ".2f"},
                    "color": {"condition": {"test": dark, "value": "white"}, "value": INK},
                },
            },
        ],
    }
    told = "; ".join(f"{names[a]} and {names[b]} {value:.2f}" for (a, b), value in pairs.items())
    alt = f"Spearman correlation over steps of the credit of each two estimators: {told}."
    return Figure("How far estimators agree on steps", alt, rows, spec)
