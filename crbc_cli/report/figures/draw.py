"""Writes figures in the format that a file's suffix names: SVG, PNG, PDF, HTML, or CSV for the
data."""

import csv
import io
import json
import zlib
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, get_args

from crbc_cli.errors import OptionError
from crbc_cli.logs.write import Format, Target
from crbc_cli.report.figures.figure import Figure

__all__ = ["FORMATS", "draw", "figure_target"]

FORMATS = ("svg", "png", "pdf", "html", "csv")
_PIXELS_PER_INCH = 200
_LESS_THAN = "\ue000"


def figure_target(name: str, force: bool) -> Target:
    """Where a figure goes, checked before any work is done.

    Raises:
      OptionError: no format has this suffix, or what draws it is not installed.
      OutputError: as `Target.check`.
    """
    suffix = Path(name).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise OptionError(
            f"figure {name} has no known suffix", todo=f"use one of .{', .'.join(FORMATS)}"
        )
    if suffix != "csv":
        _renderer()
    known: dict[str, Format] = {kind: kind for kind in get_args(Format)}
    target = Target(name, known[suffix], force)
    target.check()
    return target


def draw(figure: Figure, target: Target) -> None:
    """Writes a figure.

    Raises:
      OutputError: it cannot be written.
    """
    content = _WRITERS[target.format](figure)
    with target.open() as stream:
        stream.write(content)


def _renderer() -> Any:
    """The module `vl_convert`.

    Raises:
      OptionError: it is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise OptionError(
            "figures need vl-convert", todo="pip install 'crbc-cli[figures]', or write a .csv"
        ) from error
    return vl_convert


def _svg(figure: Figure) -> bytes:
    """The picture, named and described for readers of the screen."""
    text: str = _renderer().vegalite_to_svg(figure.vega_lite())
    title, alt = escape(figure.title), escape(figure.alt)
    head, bracket, body = text.partition(">")
    named = f'{head} role="img" aria-labelledby="figure-title figure-description"{bracket}'
    words = f'<title id="figure-title">{title}</title><desc id="figure-description">{alt}</desc>'
    return f"{named}{words}{body}".encode()


def _png(figure: Figure) -> bytes:
    """The picture with its alternative text inside, as PNG's own Description."""
    picture: bytes = _renderer().vegalite_to_png(
        figure.vega_lite(), scale=1.0, ppi=_PIXELS_PER_INCH
    )
    body = b"iTXt" + b"Description\0\0\0en\0\0" + figure.alt.encode()
    chunk = (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    header = 8 + 25  # signature and IHDR
    return picture[:header] + chunk + picture[header:]


def _pdf(figure: Figure) -> bytes:
    pages: bytes = _renderer().vegalite_to_pdf(figure.vega_lite())
    return pages


def _html(figure: Figure) -> bytes:
    """A page that needs no network: library and data are inside.

    The data stands in a script, where `<` of a log's text could end it: it becomes an escape.
    """
    spec = json.dumps(figure.vega_lite(), ensure_ascii=False).replace("<", _LESS_THAN)
    page: str = _renderer().vegalite_to_html(spec, bundle=True, renderer="svg")
    page = page.replace(_LESS_THAN, "\\u003c")
    title, alt = escape(figure.title), escape(figure.alt)
    page = page.replace("<html>", '<html lang="en">', 1)
    page = page.replace("<title>Chart</title>", f"<title>{title}</title>", 1)
    return page.replace("</body>", f"<p>{alt}</p>\n  </body>", 1).encode()


def _csv(figure: Figure) -> bytes:
    text = io.StringIO()
    if figure.rows:
        writer = csv.DictWriter(text, list(figure.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(figure.rows)
    return text.getvalue().encode()


_WRITERS: dict[str, Callable[[Figure], bytes]] = {
    "svg": _svg,
    "png": _png,
    "pdf": _pdf,
    "html": _html,
    "csv": _csv,
}
