"""A figure: what it shows, in rows, pictures and words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "COLORS",
    "INK",
    "SEQUENCE",
    "SHADES",
    "Figure",
    "Rows",
    "Spec",
    "classes",
    "dashes",
    "heading",
    "panels",
    "quantity",
    "series",
    "shapes",
    "strokes",
]

Rows = Sequence[dict[str, Any]]
Spec = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One picture.

    Attributes:
      title: its heading.
      alt: what it shows, in words, for those who do not see it.
      rows: the data drawn; all rows have the same keys.
      spec: Vega-Lite view without data; its views take `rows`.
    """

    title: str
    alt: str
    rows: Rows
    spec: Spec

    def vega_lite(self) -> Spec:
        """The whole specification."""
        return {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "title": self.title,
            "description": self.alt,
            "data": {"values": list(self.rows)},
            "config": THEME,
            "usermeta": {"embedOptions": {"actions": {"export": True}}},
            **self.spec,
        }


COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C7300")
"""Told apart by people with any colour vision (Okabe and Ito, Color Universal Design, 2008; the
yellow, which print loses, is darkened)."""

DASHES = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3], [10, 3], [3, 1])
"""Lines that print in black tells apart."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")

SHADES = "blues"
"""Of shares: darker is more, in print too."""

SEQUENCE = "viridis"
"""Of ordered classes."""

INK, _FAINT = "#1a1a1a", "#d9d9d9"

THEME: Spec = {
    "background": "white",
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "padding": 8,
    "title": {"anchor": "start", "fontSize": 14, "color": INK, "offset": 12, "subtitleColor": INK},
    "axis": {
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": _FAINT,
        "domainColor": INK,
        "tickColor": INK,
        "labelLimit": 320,
    },
    "legend": {
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelColor": INK,
        "titleColor": INK,
        "labelLimit": 320,
        "symbolOpacity": 1,
    },
    "header": {"labelFontSize": 12, "titleFontSize": 12, "labelColor": INK, "titleColor": INK},
    "mark": {"color": COLORS[0]},
    "point": {"opacity": 1},
    "range": {"category": list(COLORS)},
    "view": {"stroke": "transparent"},
    "concat": {"spacing": 36},
}


def panels(*views: Spec) -> Spec:
    """Views side by side, each with its own scales."""
    independent = {"color": "independent", "x": "independent", "y": "independent"}
    return {"hconcat": list(views), "resolve": {"scale": independent}}


def heading(text: str) -> Spec:
    """The title of one view."""
    return {"text": text, "fontSize": 12, "fontWeight": "normal", "frame": "group"}


def quantity(field: str, title: str, form: str = "", **more: Any) -> Spec:
    """A numeric channel; `form` is a d3 number format, `more` goes to its scale."""
    axis = {"axis": {"format": form}} if form else {}
    return {"field": field, "type": "quantitative", "title": title, "scale": more, **axis}


def classes(field: str, title: str | None, order: Sequence[Any]) -> Spec:
    """A channel of ordered classes."""
    return {
        "field": field,
        "type": "ordinal",
        "title": title,
        "sort": list(order),
        "axis": {"labelAngle": 0},
    }


def series(field: str, title: str | None, names: Sequence[str]) -> Spec:
    """Colour of a few named series, always in the same order."""
    colors = [COLORS[i % len(COLORS)] for i in range(len(names))]
    scale = {"domain": list(names), "range": colors}
    return {"field": field, "type": "nominal", "title": title, "scale": scale}


def dashes(field: str, title: str | None, names: Sequence[str]) -> Spec:
    """Dashes of the same series, for print without colour; one legend shows both."""
    patterns = [DASHES[i % len(DASHES)] for i in range(len(names))]
    scale = {"domain": list(names), "range": patterns}
    return {"field": field, "type": "nominal", "title": title, "scale": scale}


def strokes(title: str | None) -> Spec:
    """A legend of lines."""
    return {"legend": {"title": title, "symbolType": "stroke", "symbolStrokeWidth": 2}}


def shapes(field: str, title: str | None, names: Sequence[str]) -> Spec:
    """Shapes of a few named series."""
    scale = {"domain": list(names), "range": list(SHAPES[: len(names)])}
    return {"field": field, "type": "nominal", "title": title, "scale": scale}
