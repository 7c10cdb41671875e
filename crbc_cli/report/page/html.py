"""HTML from plain values; every text is escaped here and nowhere else."""

from collections.abc import Iterable, Sequence
from html import escape

__all__ = [
    "Markup",
    "cards",
    "number",
    "paragraph",
    "percent",
    "section",
    "shortened",
    "table",
    "text",
]


class Markup(str):
    """HTML that is finished: made of escaped parts."""

    __slots__ = ()


def text(value: object) -> Markup:
    """A value as escaped text; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(escape("–" if value is None else str(value)))


def number(value: float | None, digits: int = 3) -> str:
    """A number with fixed decimals, a dash for none."""
    return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def percent(share: float | None) -> str:
    """A share in per cent, a dash for none."""
    return "–" if share is None else f"{100 * share:.1f} %"


def paragraph(content: object) -> Markup:
    return Markup(f"<p>{text(content)}</p>")


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1
) -> Markup:
    """A table whose first `left` columns are text and the others numbers; it scrolls sideways."""

    def cells(tag: str, values: Sequence[object], more: str = "") -> str:
        return "".join(
            f"<{tag}{more}{'' if i < left else ' class=number'}>{text(value)}</{tag}>"
            for i, value in enumerate(values)
        )

    head = cells("th", heads, ' scope="col"')
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return Markup(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def cards(entries: Iterable[tuple[str, object, str]]) -> Markup:
    """(name, value, remark) side by side."""
    made = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}"
        f"{f'<small>{text(remark)}</small>' if remark else ''}</dd></div>"
        for name, value, remark in entries
    )
    return Markup(f'<dl class="cards">{made}</dl>')


def section(name: str, title: str, *parts: Markup) -> Markup:
    """A part of the page that the navigation leads to."""
    return Markup(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{text(title)}'
        f"</h2>{''.join(parts)}</section>"
    )


def shortened(content: str, most: int = 160) -> str:
    """A text of a log on one line, cut with an ellipsis."""
    line = " ".join(content.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
