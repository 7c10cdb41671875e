"""What stopping groups early saves, against how often it is right."""

from typing import TYPE_CHECKING, Any

from crbc_cli.report.figures.figure import (
    INK,
    Figure,
    Spec,
    dashes,
    quantity,
    series,
    shapes,
    strokes,
)

if TYPE_CHECKING:
    from crbc_cli.engine.gate import GateReport

__all__ = ["gate_figure"]

_KINDS = ("fixed", "chosen", "held out", "all outcomes known")


def gate_figure(report: "GateReport") -> Figure:
    """Points of `--csv`, and per K what could be saved by who knew the outcomes."""
    rows: list[dict[str, Any]] = [
        {
            "kind": row["kind"].replace("_", " "),
            "k": "chosen" if row["k"] is None else str(row["k"]),
            **{n: row[n] for n in ("threshold", "cut", "precision", "recall", "realised")},
        }
        for row in report.rows()
    ]
    for known in report.separations():
        rows.append(
            {
                "kind": _KINDS[3],
                "k": str(known["k"]),
                "threshold": None,
                "cut": int(report.evidence.zero.sum()),
                "precision": 1.0,
                "recall": 1.0,
                "realised": known["oracle_realised"],
            }
        )
    steps = list(dict.fromkeys(row["k"] for row in rows))
    rule = report.rule
    kinds = [kind for kind in _KINDS if any(row["kind"] == kind for row in rows)]
    right = "precision: cut groups without reward variance"
    across = {
        "x": quantity("precision", right, ".0%", domain=[0, 1]),
        "y": quantity("realised", "environment steps saved", ".0%"),
        "color": series("k", "after step", steps) | strokes("after step"),
    }
    layers: list[Spec] = [
        {
            "data": {"values": [{"least": rule.min_precision}]},
            "mark": {"type": "rule", "strokeDash": [4, 3], "color": INK},
            "encoding": {"x": quantity("least", right, ".0%", domain=[0, 1])},
        },
        {
            "transform": [{"filter": "datum.kind == 'fixed' && isValid(datum.precision)"}],
            "mark": {"type": "line", "strokeWidth": 1.5},
            "encoding": across
            | {
                "order": {"field": "threshold", "type": "quantitative"},
                "strokeDash": dashes("k", "after step", steps) | strokes("after step"),
            },
        },
        {
            "transform": [{"filter": "isValid(datum.precision)"}],
            "mark": {"type": "point", "filled": True, "size": 75, "opacity": 0.9},
            "encoding": across
            | {
                "shape": shapes("kind", "threshold", kinds),
            },
        },
    ]
    told = [
        f"after step {row['k']}, {row['kind']}"
        + ("" if row["threshold"] is None else f" at {row['threshold']:.3g}")
        + f": {row['precision']:.0%} right, {row['realised'] or 0:.1%} saved"
        for row in rows
        if row["precision"] is not None
    ]
    alt = (
        f"Environment steps saved by stopping groups early, against precision; the dashed line is "
        f"the least precision of a chosen threshold, {rule.min_precision:g}. {'; '.join(told)}."
    )
    spec: Spec = {"width": 380, "height": 280, "layer": layers}
    return Figure(f"Early stopping of {len(report.groups.variance)} groups", alt, rows, spec)
