"""Functions that write pages for people: the report of a run, the graph of a group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crbc_cli.api.comparison import COMPARED
from crbc_cli.api.reading import one_group
from crbc_cli.engine.anchors import measure_anchors
from crbc_cli.engine.check import check_logs, tolerant
from crbc_cli.engine.checks.facts import extra_fields
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.compare import CompareOptions, compare_logs
from crbc_cli.engine.coverage import measure_coverage
from crbc_cli.engine.gate import GateReport, measure_gate
from crbc_cli.engine.gate_groups import groups_of_logs
from crbc_cli.engine.gate_options import GateRule
from crbc_cli.engine.locate import find_step
from crbc_cli.engine.overview import Overview, overview
from crbc_cli.engine.picture import GroupPicture, picture_group
from crbc_cli.engine.prepare import Prepared
from crbc_cli.engine.profile import profile_logs
from crbc_cli.engine.provenance import provenance
from crbc_cli.engine.reader import Reader
from crbc_cli.engine.sweep import plan_entries
from crbc_cli.engine.texts import remembered_texts
from crbc_cli.errors import OptionError, OutputError
from crbc_cli.logs.open import open_logs
from crbc_cli.logs.sources import Source
from crbc_cli.logs.write import Format, Target
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.report.graph.layout import require_layout

if TYPE_CHECKING:
    from crbc_cli.report.page.contents import Contents

__all__ = ["DETAIL", "Page", "group_graph", "report_page"]

DETAIL = 200
"""Groups whose graph and rollouts a report holds unless asked for another number."""

_GATE_AT = (5, 10, 15, 20, 30)


@dataclass(frozen=True)
class Page:
    """A page that was written.

    Attributes:
      output: its path, `-` for stdout.
      size: bytes.
      groups, detailed: groups it lists, and those it holds with graph and rollouts.
    """

    output: str
    size: int
    groups: int
    detailed: int


def report_page(
    inputs: str | Sequence[str],
    output: str,
    *,
    methods: str = COMPARED,
    detail: int = DETAIL,
    force: bool = False,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> Page:
    """Writes everything about logs into one HTML file.

    Args:
      inputs: logs; several are drawn as training updates, in order.
      output: the file, or `-`.
      methods: estimators set side by side, as in `compare`; the last one is what others are set
        against.
      detail: how many groups get a graph and a transcript, the most interesting first.
      force: replace an existing file.
      settings, options: as in `annotate`.
      clock, notes: filled if given.
    Raises:
      CrbcError: see `crbc_cli.errors`; nothing is left half-written.
    """
    if detail < 0:
        raise OptionError(f"--detail {detail} is negative")
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    sources = open_logs(inputs, settings.log, notes)
    require_layout()
    target = _target(output, ("html",), force, sources)
    contents = _contents(sources, settings, methods, detail, clock, notes)
    from crbc_cli.report.page.build import report_page as build

    size = _write(target, build(contents))
    return Page(target.name, size, len(contents.overview.groups), len(contents.pictures))


def group_graph(
    inputs: str | Sequence[str],
    output: str,
    group: str | None = None,
    *,
    step: str | None = None,
    file: str | None = None,
    key_values: Sequence[str] = (),
    force: bool = False,
    settings: Settings | None = None,
    clock: Clock | None = None,
    notes: Notes | None = None,
    **options: Any,
) -> Page:
    """Draws a group's merged process: an interactive page (.html) or a picture (.svg).

    Args:
      inputs: logs.
      output: NAME.html or NAME.svg; `-` streams the page.
      group, step, file, key_values: as in `explain`; the page opens with that step, and a picture
        shows its transition.
      force: replace an existing file.
      settings, options: as in `annotate`.
      clock, notes: filled if given.
    Raises:
      CrbcError: see `crbc_cli.errors`; nothing is left half-written.
    """
    settings, clock = settings or Settings.from_flat(options), clock or Clock()
    notes = notes or Notes()
    sources = open_logs(inputs, settings.log, notes)
    require_layout()
    target = _target(output, ("html", "svg"), force, sources)
    log = one_group(sources, group, file, key_values, settings, clock, notes)
    chosen = None
    if step is not None:
        position = find_step(log, step, file)
        chosen = int(log.rollouts.rollout[position]), int(log.rollouts.step[position])
    picture = picture_group(log, clock, evidence=target.format == "html")
    if target.format == "svg":
        from crbc_cli.report.graph.svg import group_svg

        made = group_svg(picture, chosen)
    else:
        from crbc_cli.report.page.build import group_page

        made = group_page(picture, provenance("explain", log.settings, sources, notes), chosen)
    return Page(target.name, _write(target, made), 1, 1)


def _contents(
    sources: Sequence[Source],
    settings: Settings,
    methods: str,
    detail: int,
    clock: Clock,
    notes: Notes,
) -> "Contents":
    """All parts of a report, each by the function that its command calls."""
    from crbc_cli.report.page.contents import Contents

    patient = Reader.open(sources, tolerant(settings), clock, notes)
    check = check_logs(
        patient.logs(lengths=True, extra=extra_fields(settings)), settings, clock, notes
    )
    reader = Reader.open(sources, settings, clock, notes)
    lines = overview(reader.logs())
    readers, entries = plan_entries(sources, settings, methods, (), None, clock, notes)
    comparison = compare_logs(readers, entries, CompareOptions(), clock, notes)
    profile = profile_logs(sources, settings, Clock(), notes)
    return Contents(
        [source.name for source in sources],
        provenance("report", reader.settings, sources, notes),
        [note for note in notes.items if note.code not in check.told],
        lines,
        check,
        measure_anchors(reader, suggestions=False),
        measure_coverage(reader.logs(), clock),
        comparison,
        _gate(reader, check.summary.rollout_rows[2], clock, notes),
        profile,
        _pictures(reader, lines, detail, clock),
    )


def _gate(reader: Reader, longest: int, clock: Clock, notes: Notes) -> GateReport | None:
    rule = GateRule()
    at = [k for k in _GATE_AT if k < longest] or [1]
    groups = groups_of_logs(reader.logs(), clock, notes, at=at, signals=rule.needs, pad=rule.pad)
    return measure_gate(groups, rule) if len(groups.variance) else None


def _pictures(
    reader: Reader, lines: Overview, detail: int, clock: Clock
) -> Mapping[int, GroupPicture]:
    """The `detail` most interesting groups."""
    ranked = sorted(range(len(lines.groups)), key=lambda n: (-lines.groups[n].interest, n))
    chosen = sorted(ranked[:detail])
    pictures: dict[int, GroupPicture] = {}
    for part, sources in enumerate(reader.parts):
        mine = [n for n in chosen if lines.groups[n].part == part]
        if not mine:
            continue
        log = reader.read(sources)
        texts = remembered_texts(log, _rows_of(log, [lines.groups[n].group for n in mine]))
        for n in mine:
            alone = log.only(lines.groups[n].group)
            pictures[n] = picture_group(alone, clock, read_texts=texts)
    return pictures


def _rows_of(log: Prepared, groups: Sequence[int]) -> list[int]:
    """Rows of the log's frame that belong to some groups, copies left out."""
    wanted = set(groups)
    group, row = log.rollouts.row_group().tolist(), log.rollouts.row.tolist()
    return [r for g, r in zip(group, row, strict=True) if g in wanted]


def _target(
    output: str, formats: Sequence[Format], force: bool, sources: Sequence[Source]
) -> Target:
    """Where a page goes, refused before any work is done.

    Raises:
      OptionError, OutputError: no such format, an existing file, or an input.
    """
    suffix = Path(output).suffix.lower().removeprefix(".")
    found = next((f for f in formats if f == suffix), formats[0] if output == "-" else None)
    if found is None:
        raise OptionError(
            f"output {output} has no known suffix",
            todo=f"name it NAME.{' or NAME.'.join(formats)}",
        )
    if any(s.name != "-" and Path(s.name).resolve() == Path(output).resolve() for s in sources):
        raise OutputError("is an input", output, "name another output")
    target = Target(output, found, force)
    target.check()
    return target


def _write(target: Target, page: str) -> int:
    encoded = page.encode("utf-8", "replace")
    with target.open() as stream:
        stream.write(encoded)
    return len(encoded)
