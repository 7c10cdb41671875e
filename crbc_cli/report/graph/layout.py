"""Where the anchors of a merged process stand and how its transitions run, left to right.

An anchor's column is the fewest observed transitions that lead to it from a start; transitions one
column on, and those into a boundary, are laid out by fast-sugiyama (layered drawing after Sugiyama,
Tagawa and Toda, 1981: few crossings, long transitions bent around anchors). All others (loops,
transitions back or inside a column) are drawn as arcs afterwards and pull no anchor out of place.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise

from crbc_cli.errors import OptionError

__all__ = ["Arrow", "Layout", "lay_out", "require_layout"]

Point = tuple[float, float]

SUCCESS, FAILURE = -1, -2
_GRIDS = ((12, 160.0, 92.0), (40, 125.0, 60.0))
"""Up to so many anchors: pixels per column and row; more anchors stand closer."""
_CLOSE = (110.0, 46.0)
_CROWD = 8
"""Columns of more anchors are staggered, so that arrows inside them can be told apart."""
_WIDEST, _ASPECT = 260.0, 1.4
"""Few tall columns stand farther apart: at most so far, and not beyond this height to width."""
_LEAST, _MOST = 8.0, 19.0
_BOUNDARY = 15.0
_GAP = 3.0


@dataclass(frozen=True, slots=True)
class Arrow:
    """A transition: from an anchor to an anchor, SUCCESS (-1) or FAILURE (-2); `weight` > 0."""

    source: int
    target: int
    weight: int


@dataclass(frozen=True)
class Layout:
    """A drawing's geometry, in pixels from the top left.

    Attributes:
      width, height: of the drawing.
      place: anchor, SUCCESS or FAILURE -> centre.
      radius: the same -> radius.
      paths: SVG path data of each arrow, in the order given.
      aside: of each arrow, that it was drawn afterwards as an arc: it leads back or stays inside a
        column.
      labels: where each arrow's text is centred.
    """

    width: float
    height: float
    place: dict[int, Point]
    radius: dict[int, float]
    paths: list[str]
    aside: list[bool]
    labels: list[Point]


def lay_out(anchors: Sequence[int], starts: Iterable[int], arrows: Sequence[Arrow]) -> Layout:
    """Places anchors and arrows.

    Args:
      anchors: visits of each anchor; anchors are numbered from 0.
      starts: anchors at which rollouts begin.
      arrows: observed transitions; the same source and target may occur several times.
    """
    column = _columns(len(anchors), starts, arrows)
    grid = next((grid for most, *grid in _GRIDS if len(anchors) <= most), [*_CLOSE])
    place, bends = _placed(column, {(a.source, a.target) for a in arrows}, grid[0], grid[1])
    most = max(anchors, default=1)
    radius = {
        node: _BOUNDARY if node < 0 else _LEAST + (_MOST - _LEAST) * (anchors[node] / most) ** 0.5
        for node in place
    }
    paths, labels = _drawn(arrows, place, radius, bends)
    width = max((x for x, _ in place.values()), default=0.0) + grid[0] / 2
    height = max((y for _, y in place.values()), default=0.0) + grid[1] * 0.9
    aside = [(a.source, a.target) not in bends for a in arrows]
    return Layout(width, height, place, radius, paths, aside, labels)


def require_layout() -> None:
    """Raises OptionError where the layout library is not installed."""
    if find_spec("fast_sugiyama") is None:
        raise OptionError(
            "drawing groups needs the package fast-sugiyama",
            todo="install it with python -m pip install 'crbc-cli[report]'",
        )


def _columns(anchors: int, starts: Iterable[int], arrows: Sequence[Arrow]) -> dict[int, int]:
    """Fewest transitions from a start; boundaries stand behind every anchor."""
    after = defaultdict(list)
    for arrow in arrows:
        after[arrow.source].append(arrow.target)
    column = dict.fromkeys(starts, 0)
    left = deque(column)
    while left:
        source = left.popleft()
        for target in after[source]:
            if target >= 0 and target not in column:
                column[target] = column[source] + 1
                left.append(target)
    for anchor in range(anchors):  # reached from no start: censoring can leave such anchors
        column.setdefault(anchor, 0)
    last = max(column.values(), default=0) + 1
    return column | {a.target: last for a in arrows if a.target < 0}


def _placed(
    column: dict[int, int], links: set[tuple[int, int]], step: float, row: float
) -> tuple[dict[int, Point], dict[tuple[int, int], list[Point]]]:
    """Centre of each node, and where laid-out links pass between other nodes."""
    nodes = sorted(column, key=lambda node: (column[node], node < 0, abs(node)))
    number = {node: index for index, node in enumerate(nodes, 1)}
    forward = [(u, v) for u, v in sorted(links) if column[v] == column[u] + 1 or v < 0]
    edges = {(number[u], number[v]): (u, v) for u, v in forward}
    points, segments = _laid_out(column, number, edges)
    top = min((across for across, _ in points.values()), default=0.0)
    tall = max((across for across, _ in points.values()), default=0.0) - top
    first = max((along for _, along in points.values()), default=0.0)  # layers run downwards
    step = max(step, min(_WIDEST, tall * row / (max(column.values(), default=0) + 1) / _ASPECT))
    where = {
        n: ((first - along - 0.5) * step, (across - top + 0.9) * row)
        for n, (across, along) in points.items()
    }
    place = {node: where[number[node]] for node in nodes}
    for crowd in _crowds(column):
        for rank, node in enumerate(sorted(crowd, key=lambda node: place[node][1])):
            x, y = place[node]
            place[node] = x + (0.0, 0.28, -0.28)[rank % 3] * step, y
    ways = _ways(segments, where, len(nodes))
    return place, {edges[pair]: way for pair, way in ways if pair in edges}


def _laid_out(
    column: dict[int, int], number: dict[int, int], edges: Iterable[tuple[int, int]]
) -> tuple[dict[int, Point], list[tuple[int, int]]]:
    """What the library makes of numbered nodes: (across, along) of each, and drawn segments.

    Node 0 stands before all starts and keeps the drawing in one piece; a link from the last column
    to each boundary keeps the boundaries at the right edge. Neither is drawn.
    """
    from fast_sugiyama import from_edges

    joined = [*edges, *((0, number[node]) for node in number if column[node] == 0)]
    deepest = max((n for n in number if n >= 0), key=lambda n: (column[n], -n), default=None)
    if deepest is not None:
        joined += [(number[deepest], number[n]) for n in number if n < 0]
    if not joined:  # no anchor, so nothing but boundaries at most
        return {n: (float(n), 0.0) for n in number.values()}, []
    [(placed, _, _, segments)] = from_edges(
        list(dict.fromkeys(joined)),
        minimum_length=1,
        vertex_spacing=1,
        dummy_vertices=True,
        dummy_size=0.5,
        ranking_type="up",
        crossing_minimization="barycenter",
        transpose=True,
    )
    points = {int(n): (float(across), float(along)) for n, (across, along) in placed}
    return points, [(int(u), int(v)) for u, v in segments or ()]


def _crowds(column: dict[int, int]) -> Iterable[list[int]]:
    """Anchors of each column that holds many."""
    members = defaultdict(list)
    for node, number in column.items():
        members[number].append(node)
    return [nodes for nodes in members.values() if len(nodes) > _CROWD]


def _ways(
    segments: Iterable[tuple[int, int]], where: dict[int, Point], nodes: int
) -> Iterable[tuple[tuple[int, int], list[Point]]]:
    """(source, target) and what lies between them, from segments over the library's own nodes."""
    after = defaultdict(list)
    for source, target in segments:
        after[source].append(target)
    for source in range(nodes + 1):
        for target in after[source]:
            points = []
            while target > nodes:
                points.append(where[target])
                [target] = after[target]
            yield (source, target), points


def _drawn(
    arrows: Sequence[Arrow],
    place: dict[int, Point],
    radius: dict[int, float],
    bends: dict[tuple[int, int], list[Point]],
) -> tuple[list[str], list[Point]]:
    """Path and label of each arrow; several between the same two nodes run side by side."""
    beside = defaultdict(list)
    for index, arrow in enumerate(arrows):
        beside[arrow.source, arrow.target].append(index)
    paths, labels = [""] * len(arrows), [(0.0, 0.0)] * len(arrows)
    for (source, target), mine in beside.items():
        start, end = place[source], place[target]
        for rank, index in enumerate(mine):
            shift = (rank - (len(mine) - 1) / 2) * 9.0
            if source == target:
                drawn = _loop(start, radius[source], rank)
            elif (source, target) in bends:
                way = [start, *bends[source, target], end]
                drawn = _run(way, radius[source], radius[target], shift)
            else:
                drawn = _arc(start, end, radius[source], radius[target], rank)
            paths[index], labels[index] = drawn
    return paths, labels


def _run(way: list[Point], leaving: float, entering: float, shift: float) -> tuple[str, Point]:
    """Left to right through `way`, level at each point."""
    (x, y), (end_x, end_y) = way[0], way[-1]
    inner = [(px, py + shift) for px, py in way[1:-1]]
    points = [(x + leaving, y), *inner, (end_x - entering - _GAP, end_y)]
    path = f"M{_xy(points[0])}"
    for (ax, ay), (bx, by) in pairwise(points):
        bow = 0.0 if inner else shift * 1.3
        path += (
            f"C{_xy(((ax + bx) / 2, ay + bow))} {_xy(((ax + bx) / 2, by + bow))} {_xy((bx, by))}"
        )
    (ax, ay), (bx, by) = points[0], points[1]
    return path, ((ax + bx) / 2, (ay + by) / 2 + (0.0 if inner else shift))


def _arc(start: Point, end: Point, leaving: float, entering: float, rank: int) -> tuple[str, Point]:
    """A bow to the left of its direction, so that ways there and back stay apart."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max((dx * dx + dy * dy) ** 0.5, 1.0)
    height = 12.0 + 0.14 * length + 10.0 * rank
    control = (
        (start[0] + end[0]) / 2 + dy / length * height,
        (start[1] + end[1]) / 2 - dx / length * height,
    )
    first = _towards(start, control, leaving)
    last = _towards(end, control, entering + _GAP)
    middle = ((start[0] + end[0]) / 4 + control[0] / 2, (start[1] + end[1]) / 4 + control[1] / 2)
    return f"M{_xy(first)}Q{_xy(control)} {_xy(last)}", middle


def _loop(centre: Point, radius: float, rank: int) -> tuple[str, Point]:
    """Back to the same anchor, above it."""
    (x, y), out = centre, radius + 10.0 + 6.0 * rank
    first, last = (
        (x - radius * 0.5, y - radius * 0.87),
        (x + radius * 0.5, y - radius * 0.87 - _GAP),
    )
    path = f"M{_xy(first)}C{_xy((x - out, y - out - 8))} {_xy((x + out, y - out - 8))} {_xy(last)}"
    return path, (x, y - out - 2)


def _towards(point: Point, goal: Point, distance: float) -> Point:
    dx, dy = goal[0] - point[0], goal[1] - point[1]
    length = max((dx * dx + dy * dy) ** 0.5, 1e-9)
    return point[0] + dx / length * distance, point[1] + dy / length * distance


def _xy(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
