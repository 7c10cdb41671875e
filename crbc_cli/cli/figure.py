"""`--figure` of the commands that can draw what they report."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crbc_cli.logs.write import Target
    from crbc_cli.report.figures.figure import Figure

__all__ = ["FigureOption", "draw_figures", "figure_targets"]

FigureOption = Annotated[
    list[str] | None,
    typer.Option(
        "--figure",
        metavar="FILE",
        show_default=False,
        help="Draw the report: .svg, .png, .pdf, .html, or .csv for the data behind it.",
    ),
]


def figure_targets(names: Sequence[str] | None, force: bool) -> "list[Target]":
    """Where figures go, checked before any work is done; nothing is imported without names."""
    if not names:
        return []
    from crbc_cli.report.figures.draw import figure_target

    return [figure_target(name, force) for name in names]


def draw_figures(targets: "Sequence[Target]", figure: "Figure", *, quiet: bool) -> None:
    """Draws one figure into each file, and says so."""
    from crbc_cli.cli.console import tell
    from crbc_cli.report.figures.draw import draw

    for target in targets:
        draw(figure, target)
        if not quiet:
            tell(f"{figure.title} -> {target.name}")
