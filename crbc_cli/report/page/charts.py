"""Small charts as inline SVG in the page's own colours, each with its text alternative."""

from collections.abc import Sequence

from crbc_cli.report.page.html import Markup, number, text

__all__ = ["bars", "heat_map", "lines"]


def bars(
    title: str, entries: Sequence[tuple[str, float]], unit: str, *, most: float | None = None
) -> Markup:
    """One horizontal bar per (name, value >= 0)."""
    top = most or max((value for _, value in entries), default=0.0) or 1.0
    height = 22 * len(entries) + 8
    parts = []
    for i, (name, value) in enumerate(entries):
        y = 22 * i + 6
        parts.append(
            f'<text x="118" y="{y + 12}" text-anchor="end">{text(name)}</text>'
            f'<rect x="126" y="{y}" width="{250 * value / top:.1f}" height="15" rx="2" '
            f'fill="var(--mark-1)"/><text x="{132 + 250 * value / top:.1f}" y="{y + 12}" '
            f'class="soft">{number(value, 1 if unit == "%" else 4)} {text(unit)}</text>'
        )
    told = "; ".join(f"{name} {number(value)} {unit}" for name, value in entries)
    return _figure(title, told, 460, height, parts)


def heat_map(
    title: str,
    rows: Sequence[int],
    columns: Sequence[int],
    cells: dict[tuple[int, int], float],
    row_name: str,
    column_name: str,
) -> Markup:
    """Shares in [0, 1] of (row, column), darker for more; empty cells stay empty."""
    size = 34
    most = max(cells.values(), default=0.0) or 1.0
    width, height = 66 + size * len(columns), 44 + size * len(rows)
    parts = [
        f'<text x="{66 + size * len(columns) / 2:.0f}" y="12" text-anchor="middle" class="soft">'
        f"{text(column_name)}</text>",
        f'<text transform="translate(12 {44 + size * len(rows) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle" class="soft">{text(row_name)}</text>',
    ]
    for j, column in enumerate(columns):
        x = 66 + size * j + size / 2
        parts.append(f'<text x="{x:.0f}" y="34" text-anchor="middle">{column}</text>')
    for i, row in enumerate(rows):
        y = 44 + size * i
        parts.append(f'<text x="56" y="{y + 21}" text-anchor="end">{row}</text>')
        for j, column in enumerate(columns):
            share = cells.get((row, column))
            if share is None:
                continue
            strength = 0.08 + 0.87 * share / most
            ink = "var(--paper)" if strength > 0.5 else "var(--ink)"
            parts.append(
                f'<rect x="{66 + size * j}" y="{y}" width="{size - 1}" height="{size - 1}" '
                f'fill="var(--mark-1)" fill-opacity="{strength:.2f}"/>'
                f'<text x="{66 + size * j + size / 2:.0f}" y="{y + 21}" text-anchor="middle" '
                f'fill="{ink}">{100 * share:.1f}</text>'
            )
    told = "; ".join(f"{r} to {c}: {100 * s:.1f} %" for (r, c), s in cells.items())
    return _figure(title, told, width, height, parts)


def lines(
    title: str,
    labels: Sequence[str],
    series: Sequence[tuple[str, Sequence[float | None]]],
    unit: str,
    *,
    most: float | None = None,
) -> Markup:
    """Up to two series over the same places; gaps where a value is None.

    Args:
      title: what is shown.
      labels: of the places, left to right.
      series: (name, one value per place).
      unit: of the values; "%" shows shares in per cent.
      most: end of the scale; by default the largest value.
    """
    known = [value for _, values in series for value in values if value is not None]
    top = most or max(known, default=0.0) or 1.0
    left, wide, high = 46, 300, 120
    factor = 100 if unit == "%" else 1

    def x(i: int) -> float:
        return left + (wide * i / (len(labels) - 1) if len(labels) > 1 else wide / 2)

    parts = []
    for share in (0.0, 0.5, 1.0):
        y = 18 + high * (1 - share)
        parts.append(
            f'<line class="axis" x1="{left}" x2="{left + wide}" y1="{y}" y2="{y}"/>'
            f'<text x="{left - 6}" y="{y + 4}" text-anchor="end" class="soft">'
            f"{top * share * factor:.3g}</text>"
        )
    parts.append(f'<text x="{left - 6}" y="10" text-anchor="end" class="soft">{text(unit)}</text>')
    for place in dict.fromkeys((0, len(labels) - 1)):
        anchor = "start" if place == 0 else "end"
        parts.append(
            f'<text x="{x(place):.0f}" y="{18 + high + 16}" text-anchor="{anchor}" class="soft">'
            f"{text(labels[place])}</text>"
        )
    for rank, (name, values) in enumerate(series):
        colour = f"var(--mark-{rank + 1})"
        points = [
            (x(i), 18 + high * (1 - value / top)) if value is not None else None
            for i, value in enumerate(values)
        ]
        dashes = ' stroke-dasharray="5 3"' if rank else ""
        parts.append(
            f'<path d="{_path(points)}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
        )
        parts += [
            f'<circle cx="{p[0]:.1f}" cy="{p[1]:.1f}" r="2.5" fill="{colour}"/>'
            for p in points
            if p is not None
        ]
        if len(series) > 1:
            parts.append(
                f'<text x="{left + 4 + 150 * rank}" y="10" fill="{colour}">{text(name)}</text>'
            )
    told = "; ".join(
        f"{name}: "
        + ", ".join(number(None if v is None else v * factor, 2) for v in values[:60])
        + f" {unit}"
        for name, values in series
    )
    return _figure(title, told, left + wide + 14, high + 42, parts)


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    path, pen = "", "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        path += f"{pen}{point[0]:.1f},{point[1]:.1f}"
        pen = "L"
    return path


def _figure(title: str, told: str, width: int, height: int, parts: Sequence[str]) -> Markup:
    return Markup(
        f'<figure><figcaption>{text(title)}</figcaption><svg class="chart" role="img" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'aria-label="{text(f"{title}: {told}")}">{"".join(parts)}</svg></figure>'
    )
