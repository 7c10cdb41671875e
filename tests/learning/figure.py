"""Learning curves as SVG: held-out success over updates, mean over seeds and its 95 % interval.

    python tests/learning/figure.py        # tests/learning/results -> sample_logs/figures

Needs altair and vl-convert-python. The same results give the same bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
from kept import read
from tables import TRAINING
from training_tables import half_width, methods_of, rate_of

FIGURE = Path(__file__).parents[2] / "sample_logs" / "figures" / "learning.svg"
COLOURS = {
    "grpo": "#6b6b6b",
    "gigpo": "#e69f00",
    "graphgpo": "#009e73",
    "crbc K=0": "#56b4e9",
    "crbc K=inf": "#0072b2",
}
"""Of Okabe and Ito, told apart by colour-blind eyes as well."""


def curves(done: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Mean and 95 % interval (Student's t over seeds) of each method at each measurement."""
    rows = []
    for method in methods_of(done):
        own = [run for run in done["runs"] if run["method"] == method]
        for index, update in enumerate(own[0]["updates"]):
            values = [run["held_out"][index] for run in own]
            mean, half = statistics.fmean(values), half_width(values)
            rows.append(
                {
                    "credit": method,
                    "update": update,
                    "mean": round(mean, 5),
                    "low": round(mean - half, 5),
                    "high": round(mean + half, 5),
                }
            )
    return rows


def figure(studies: Sequence[Mapping[str, Any]]) -> alt.HConcatChart:
    """One panel per study, on the same axes."""
    return (
        alt.hconcat(*map(panel, studies))
        .resolve_scale(y="shared")
        .configure_axis(grid=True, gridOpacity=0.4)
        .configure_view(stroke=None)
        .properties(background="white")
    )


def panel(done: Mapping[str, Any]) -> alt.LayerChart:
    """The curves of one study."""
    rows = curves(done)
    shown = [method for method in COLOURS if any(row["credit"] == method for row in rows)]
    scale = alt.Scale(domain=shown, range=[COLOURS[method] for method in shown])
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("update:Q", title="policy updates"),
        color=alt.Color(
            "credit:N", scale=scale, title="credit", legend=alt.Legend(symbolOpacity=1)
        ),
    )
    band = base.mark_area(opacity=0.15).encode(
        y=alt.Y("low:Q", title="success on held-out rooms", axis=alt.Axis(format="%")),
        y2="high:Q",
    )
    line = base.mark_line(strokeWidth=2).encode(y="mean:Q")
    title = f"learning rate {rate_of(done):g}"
    return alt.layer(band, line).properties(width=220, height=240, title=title)


def main() -> None:
    """Writes the figure."""
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure([read(name) for name in TRAINING]).save(FIGURE)
    print(FIGURE)


if __name__ == "__main__":
    main()
