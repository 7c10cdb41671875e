"""Colours of values and credit: told apart with every common colour vision, and in grey.

Values run through five steps of cividis (Nuñez, Anderton and Renslow, 2018, PLoS ONE 13(7)), from
dark to light; credit from orange (worse than the anchor's mean) over grey to blue (better).
"""

import math
from collections.abc import Iterable

__all__ = [
    "CREDIT",
    "FAILURE_COLOUR",
    "SUCCESS_COLOUR",
    "VALUE",
    "credit_colour",
    "ink",
    "scale_top",
    "strength",
    "value_colour",
]

Colour = tuple[int, int, int]

VALUE: tuple[Colour, ...] = (
    (0, 34, 78),
    (66, 78, 107),
    (124, 123, 120),
    (187, 175, 113),
    (254, 232, 56),
)
CREDIT: tuple[Colour, ...] = (
    (179, 88, 6),
    (224, 160, 96),
    (150, 150, 150),
    (103, 159, 209),
    (5, 97, 176),
)
SUCCESS_COLOUR, FAILURE_COLOUR = "#0a7d5a", "#a33b3b"


def value_colour(value: float | None) -> str:
    """Colour of a value in [0, 1]; grey for none."""
    return "#9a9a9a" if value is None else _mixed(VALUE, value)


def credit_colour(credit: float | None, largest: float) -> str:
    """Colour of a credit between -largest and largest."""
    if credit is None:
        return _hex(CREDIT[2])
    return _mixed(CREDIT, 0.5 + 0.5 * credit / largest if largest else 0.5)


def ink(value: float | None) -> str:
    """Text on `value_colour`."""
    return "#ffffff" if value is not None and value < 0.5 else "#111111"


def scale_top(values: Iterable[float]) -> float:
    """Where the scale of values ends: the largest of them, rounded up to tenths."""
    return min(max(math.ceil(10 * max(values, default=1.0)) / 10, 0.1), 1.0)


def strength(credit: float, largest: float, aside: bool) -> float:
    """Opacity of a transition: what carries credit stands out, what leads back stays behind."""
    share = min(abs(credit) / largest, 1.0) if largest else 0.0
    least = 0.3 if aside else 0.6
    return least + (1 - least) * share


def _mixed(stops: tuple[Colour, ...], share: float) -> str:
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    pairs = zip(stops[low], stops[low + 1], strict=True)
    red, green, blue = (round(a + (b - a) * (at - low)) for a, b in pairs)
    return _hex((red, green, blue))


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
