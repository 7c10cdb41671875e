"""Anchor quality for people: counts, the least state-like anchors, near duplicates, suggestions."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from crbc_cli.engine.anchor_quality import quality_of
from crbc_cli.engine.suggestions.toml import change_toml
from crbc_cli.notes import counted
from crbc_cli.report.excerpt import one_line
from crbc_cli.report.text import percent, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from crbc_cli.engine.anchor_quality import Quality
    from crbc_cli.engine.anchor_report import AnchorReport, RuleSet
    from crbc_cli.engine.suggestions.duplicates import Duplicate
    from crbc_cli.engine.suggestions.ledger import Numbers, Suggestion
    from crbc_cli.engine.suspects import ConflictingAction, Entry, WorstAnchor
    from crbc_cli.process.agreement import TruthScores

__all__ = ["Verbatim", "anchor_parts"]

_SHOWN_WORST = 5
_AROUND = 18
_LABEL = 24
_INDENT = (0, 0, 0, 4)


class Verbatim(str):
    """Lines to paste into a shell or a file: they must not be wrapped."""


def anchor_parts(
    report: "AnchorReport", per_group: bool = False
) -> "Iterator[RenderableType | Verbatim]":
    """The report in order, part by part."""
    if report.comparison:
        yield from _comparison_parts(report.comparison)
        return
    yield from _quality_parts(report, per_group)
    if report.truth is not None:
        yield _truth_line(report.truth)
    yield from _worst_blocks(report)
    yield from _duplicate_lines(report.duplicates)
    yield from _suggestion_blocks(report)


def _quality_parts(report: "AnchorReport", per_group: bool) -> "Iterator[RenderableType]":
    """A list of numbers for one log, a table for several or per group."""
    name = report.rules.name
    title = "Anchors: content as logged" if name == "exact" else f"Anchors: rules {name}"
    logs = report.logs
    if len(logs) <= 1 and not per_group:
        yield Text(title, "bold")
        yield _quality_list(logs[0][0] if logs else "no rows", report.quality, report.wrong)
        return
    table = plain_table(
        title, "group" if per_group else "log", "anchors", "visits", "once", "shared", "conflict"
    )
    rows = [(_end(label), quality) for label, quality in logs]
    if per_group:
        ids = report.groups["group_id"].to_list()
        rows = [(label, quality_of(report.groups[i])) for i, label in enumerate(ids)]
    for label, quality in [*rows, ("all", report.quality)]:
        table.add_row(
            one_line(label, _LABEL),
            str(quality.anchors),
            str(quality.visits),
            percent(quality.once_share),
            percent(quality.shared_share),
            percent(quality.conflicts.rate),
        )
    yield table
    yield (
        "once: anchors visited once; shared: visits on anchors of several rollouts; conflict: "
        "visits whose anchor and action had several next anchors."
    )


def _quality_list(name: str, quality: "Quality", wrong: float | None) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    each = f"{_number(quality.visits_per_anchor)} visits and "
    each += f"{_number(quality.actions_per_anchor)} actions each"
    for label, told in (
        ("log", name),
        ("rows", f"{quality.rows} in {quality.rollouts} rollouts of {quality.groups} groups"),
        (
            "",
            f"{quality.no_op} no-op replies, {quality.missing} without a reply, "
            f"{quality.thought} thoughts",
        ),
        ("anchors", f"{quality.anchors}, {each}; {percent(quality.once_share)} visited once"),
        (
            "shared",
            f"{percent(quality.shared_share)} of {quality.visits} visits, on anchors of several "
            "rollouts",
        ),
        (
            "conflict",
            f"{percent(quality.conflicts.rate)} of the visits of repeated (anchor, action) pairs, "
            "on pairs with several next anchors",
        ),
    ):
        table.add_row(label, told)
    if wrong is not None:
        told = "of the visits whose next reply other rollouts foretell are foretold wrongly"
        table.add_row("wrong", f"{percent(wrong)} {told}")
    return table


def _end(label: str) -> str:
    """The end of a path, which tells inputs apart."""
    return label if len(label) <= _LABEL else "…" + label[1 - _LABEL :]


def _truth_line(scores: "TruthScores") -> str:
    keys = _number(scores.keys_per_state)
    return (
        f"Against the true state: {percent(scores.aliased)} of the visits on repeated anchors are "
        f"aliased, {percent(scores.shared)} are shared, {keys} anchors per state "
        f"({scores.visits} visits scored)."
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _comparison_parts(comparison: "Sequence[RuleSet]") -> "Iterator[RenderableType]":
    truth = any(rule_set.truth is not None for rule_set in comparison)
    columns = ["rules", "once", "shared", "conflict", "wrong"]
    table = plain_table("Rule sets, best first", *columns, *(["aliased", "keys"] if truth else []))
    for rule_set in comparison:
        quality, scores = rule_set.quality, rule_set.truth
        cells = [
            one_line(_end(rule_set.name), _LABEL),
            percent(quality.once_share),
            percent(quality.shared_share if scores is None else scores.shared),
            percent(quality.conflicts.rate),
            percent(rule_set.wrong),
        ]
        if scores is not None:
            cells += [percent(scores.aliased), _number(scores.keys_per_state)]
        table.add_row(*cells)
    yield table
    yield (
        "once: anchors visited once; shared: visits on anchors of several rollouts; conflict: "
        "visits whose anchor and action had several next anchors; wrong: visits whose next reply "
        "other rollouts foretell wrongly, of those they foretell."
    )
    if truth:
        yield (
            "aliased: scored visits on repeated anchors that hold several true states; keys: "
            "anchors per true state; shared: of the scored visits."
        )


def _worst_blocks(report: "AnchorReport") -> "Iterator[RenderableType]":
    if not report.worst:
        yield "No action was followed by different things at one anchor."
        return
    yield Text()
    yield Text("Least like states", "bold")
    yield (
        f"What follows depends on the way in at {report.dependent} of "
        f"{counted(report.tested, 'tested anchor')} (permutation test, p < 0.05 after Holm)."
    )
    for number, anchor in enumerate(report.worst[:_SHOWN_WORST], 1):
        yield from _worst_block(number, anchor)


def _worst_block(number: int, anchor: "WorstAnchor") -> "Iterator[RenderableType]":
    tested = "not tested" if anchor.adjusted is None else f"p {anchor.adjusted:.2g}"
    head = (
        f"{number:>2}. group {one_line(anchor.group_id, 20)}: {anchor.visits} visits of "
        f"{counted(anchor.rollouts, 'rollout')}, {anchor.conflicting} in conflict, {tested}"
    )
    yield Text(head)
    yield Text(f"    {_quoted(anchor.observation, 70)}")
    for action in anchor.actions:
        yield from _action_lines(action)


def _action_lines(action: "ConflictingAction") -> "Iterator[RenderableType]":
    told = (
        f"; the way in tells {action.told_by_entry} of {action.visits} outcomes, guessing "
        f"{action.told_anyway}"
    )
    words = one_line(action.action, 68 - len(told))
    yield Text(f"    {words}{told}" if len(words) > 1 else f"    {words}")
    for followed in action.followed:
        after = followed.boundary or _quoted(followed.observation, 30)
        entry = _entry(followed.entries[0]) if followed.entries else "-"
        yield Text(f"      {followed.visits:>4} x {after:<32} from {entry}")


def _entry(entry: "Entry") -> str:
    if entry.observation is None and entry.action is None:
        return "the start"
    return f"{_quoted(entry.observation, 14)} {one_line(entry.action, 14)}"


def _quoted(text: str | None, width: int) -> str:
    return "-" if text is None else f'"{one_line(text, width - 2)}"'


def _duplicate_lines(duplicates: "Sequence[Duplicate]") -> "Iterator[RenderableType]":
    if not duplicates:
        return
    yield Text()
    yield Text("Nearly equal anchors of one group, and what they differ in", "bold")
    for duplicate in duplicates:
        behave = f", alike after {counted(duplicate.same, 'action')}" if duplicate.same else ""
        yield Text(f"  {duplicate.kind}: {counted(duplicate.pairs, 'pair')}{behave}")
        spans = zip((duplicate.first, duplicate.second), duplicate.spans, strict=True)
        for text, (begin, end) in spans:
            yield Text.assemble(
                "    ",
                _one_side(text[max(0, begin - 200) : begin], last=True),
                (f"«{one_line(text[begin:end], 34)}»", "reverse"),
                _one_side(text[end : end + 200], last=False),
            )


def _one_side(text: str, *, last: bool) -> str:
    """Some of the text next to a span, on one line."""
    line = " ".join(text.split())
    if last:
        joint = " " if text[-1:].isspace() else ""
        return one_line(line[-_AROUND:], _AROUND).removeprefix("-") + joint if line else joint
    joint = " " if text[:1].isspace() else ""
    return joint + one_line(line, _AROUND) if line else ""


def _suggestion_blocks(report: "AnchorReport") -> "Iterator[RenderableType | Verbatim]":
    if not report.sample_rows:
        return
    yield Text()
    tried = f"tried on {report.sample_rows} of {report.quality.rows} rows"
    if not report.suggestions or report.improved is None:
        yield Text(f"No rule to suggest ({tried}).", "bold")
        return
    yield Text(f"Suggested rules, one on top of the other ({tried})", "bold")
    for number, suggestion in enumerate(report.suggestions, 1):
        yield from _suggestion_block(number, suggestion)
    better = report.improved.quality
    yield Text()
    yield (
        f"All of them, on all rows: shared {percent(report.quality.shared_share)} -> "
        f"{percent(better.shared_share)}, conflict {percent(report.quality.conflicts.rate)} -> "
        f"{percent(better.conflicts.rate)}."
    )
    if report.improved.truth is not None:
        yield _truth_line(report.improved.truth)
    yield "--suggest-rules OUT.toml writes them; crbc anchors --rules OUT.toml looks again."


def _suggestion_block(
    number: int, suggestion: "Suggestion"
) -> "Iterator[RenderableType | Verbatim]":
    yield Text()
    yield Text(f"{number:>2}. {suggestion.kind}")
    yield Padding(Text(one_line(suggestion.why, 400)), _INDENT)
    yield Padding(Text(_change(suggestion.before, suggestion.after)), _INDENT)
    if suggestion.option:
        yield Verbatim(f"    {suggestion.option}")
    lines = change_toml(suggestion.change).splitlines()
    yield Verbatim("\n".join(f"    {line}" if line else "" for line in lines))


def _change(before: "Numbers", after: "Numbers") -> str:
    foretold = f"{before.foretold:.0f} -> {after.foretold:.0f}"
    wrong = f"{before.wrong:.0f} -> {after.wrong:.0f}"
    return (
        f"shared {percent(before.shared)} -> {percent(after.shared)}, conflict "
        f"{percent(before.conflict_rate)} -> {percent(after.conflict_rate)}; other rollouts "
        f"foretell {foretold} visits, {wrong} wrongly"
    )
