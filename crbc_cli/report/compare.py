"""`crbc compare` on a terminal of 80 columns."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from crbc_cli.methods.fidelity import METRICS
from crbc_cli.report.excerpt import one_line
from crbc_cli.report.text import percent, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from crbc_cli.engine.audit import Audit
    from crbc_cli.engine.comparison import Comparison, PairAgreement, Size
    from crbc_cli.engine.disagree import Disagreement
    from crbc_cli.engine.runs import RunComparison
    from crbc_cli.methods.intervals import Interval

__all__ = ["audit_lines", "compare_report", "runs_report"]

_HEADS = {
    "cosine": "cosine",
    "cell_pearson": "cell r",
    "cell_spearman": "cell rho",
    "step_pearson": "step r",
    "step_spearman": "step rho",
}
_MOST_PAIRS = 15
_WIDTH = 79


def compare_report(report: "Comparison", against: str | None) -> "Iterator[RenderableType]":
    """Fidelity, differences, agreement, and the steps on which two methods differ most.

    Args:
      report: what was found.
      against: name of the row the others are set against.
    Raises:
      OptionError: no such row.
    """
    reference = report.reference(against)
    shown = _shown_pairs(report.pairs, reference)
    for size in report.sizes:
        if report.truth is not None:
            yield from _fidelity(report, size)
        yield from _steps(report, size)
        if report.truth is not None and len(report.entries) > 1:
            yield from _differences(report, size, reference)
        pairs = [pair for pair in shown if pair.size == size.rollouts]
        if pairs:
            yield from _agreement(report, size, pairs)
    yield from _least_agreement(report, shown)


def runs_report(report: "RunComparison") -> "Iterator[RenderableType]":
    """Runs in columns, then what each later one has more than the first."""
    first, *others = report.runs
    table = plain_table("Means over groups", "", *(run.name for run in report.runs))
    for size in ("inputs", "groups", "rollouts", "rows"):
        table.add_row(size, *(f"{getattr(run, size):,}" for run in report.runs))
    for measure in first.measures:
        table.add_row(measure, *(_interval(run.measures[measure]) for run in report.runs))
    yield table
    for run in others:
        table = plain_table(f"{run.name} less {first.name}", "", "difference")
        for measure, difference in run.less(first).items():
            table.add_row(measure, _interval(difference))
        yield table


def audit_lines(audit: "Audit") -> Iterator[str]:
    """What an audit found, in a few lines."""
    how = f" under the conventions of {audit.like}" if audit.like else ""
    yield (
        f"{audit.column} against {audit.score} of {audit.chosen.method.name}{how}: "
        f"{audit.rows} rows compared."
    )
    yield (
        f"Largest difference {audit.difference:.3g} at {audit.place}: "
        f"logged {audit.logged:.7g}, recomputed {audit.recomputed:.7g}."
    )
    if audit.only_logged or audit.only_recomputed:
        yield (
            f"Rows with one number: {audit.only_logged} only logged, "
            f"{audit.only_recomputed} only recomputed."
        )
    verdict = f"within {audit.tolerance:g}"
    yield (
        f"All rows are {verdict}."
        if audit.passed
        else f"{audit.beyond} of {audit.rows} rows are not {verdict}."
    )
    for like, difference in sorted(audit.others.items(), key=lambda item: item[1]):
        yield f"--like {like}: largest difference {difference:.3g}"


def _fidelity(report: "Comparison", size: "Size") -> "Iterator[RenderableType]":
    table = _table(
        f"Fidelity to {report.truth}{_of(size)}: mean of {_count(size.mixed)} mixed groups "
        f"of {_count(size.groups)}",
        *_HEADS.values(),
    )
    for result in report.results:
        if result.size == size.rollouts and result.metrics is not None:
            name = report.entries[result.entry].name
            table.add_row(name, *(_interval(result.metrics[m]) for m in METRICS))
    yield table
    yield _explained(
        f"cosine of policy gradients; cell: over ({report.state or 'anchor'}, action), not over "
        f"steps; r Pearson, rho Spearman; ± 1.96 se, clustered by {report.task or 'group'}"
    )


def _steps(report: "Comparison", size: "Size") -> "Iterator[RenderableType]":
    heads = ["score", "with credit"]
    if report.truth is not None:
        heads += ["RMSE", "scaled", "of 0", "signs"]
    table = _table(f"Steps with credit{_of(size)}", *heads)
    for result in report.results:
        if result.size != size.rollouts:
            continue
        entry = report.entries[result.entry]
        cells = [entry.score, percent(result.credited)]
        if result.errors is not None:
            errors = result.errors
            numbers = (errors.rmse, errors.rmse_scaled, errors.rmse_zero, errors.signs)
            cells += [_number(x) for x in numbers]
        table.add_row(entry.name, *cells)
    yield table
    if report.truth is not None:
        yield _explained(
            "RMSE as it is (of numbers in value units), after the best single factor, and of "
            "predicting 0; signs: share equal where |truth| > .01"
        )
    else:
        yield ""


def _differences(report: "Comparison", size: "Size", reference: int) -> "Iterator[RenderableType]":
    table = _table(
        f"Method less {report.entries[reference].name}, paired inside groups{_of(size)}",
        *_HEADS.values(),
    )
    for index, entry in enumerate(report.entries):
        metrics = report.difference(index, reference, size.rollouts)
        if metrics and index != reference:
            table.add_row(entry.name, *(_interval(metrics[m]) for m in METRICS))
    yield table
    yield ""


def _shown_pairs(pairs: Sequence["PairAgreement"], reference: int) -> list["PairAgreement"]:
    """All pairs while they are few, else those with the reference."""
    if len(pairs) <= _MOST_PAIRS:
        return list(pairs)
    return [pair for pair in pairs if reference in (pair.a, pair.b)]


def _agreement(
    report: "Comparison", size: "Size", pairs: Sequence["PairAgreement"]
) -> "Iterator[RenderableType]":
    table = _table(
        f"Agreement of two methods{_of(size)}", "and", "r", "rho", "pair r", "pair rho", "signs"
    )
    table.columns[1].justify = "left"
    table.columns[1].overflow = "fold"
    for pair in pairs:
        found = pair.agreement
        numbers = (
            found.pearson,
            found.spearman,
            found.pair_pearson,
            found.pair_spearman,
            found.signs,
        )
        names = (report.entries[pair.a].name, report.entries[pair.b].name)
        table.add_row(*names, *(_number(x) for x in numbers))
    first = " of the first cut" if report.cuts else ""
    yield table
    yield _explained(
        f"over steps{first}; pair: over distinct (anchor, action); signs: share equal where both "
        "give credit"
    )


def _least_agreement(report: "Comparison", pairs: Sequence["PairAgreement"]) -> Iterator[str]:
    """The steps of the pair whose ranks agree least."""
    listed = [pair for pair in pairs if pair.disagreements]
    if not listed:
        return
    pair = min(listed, key=lambda p: p.agreement.spearman)
    names = [report.entries[i].name for i in (pair.a, pair.b)]
    yield (
        f"{names[0]} and {names[1]} differ most here (rho {_number(pair.agreement.spearman)}; "
        "each scaled to mean square 1):"
    )
    for step in pair.disagreements:
        yield "\n".join(_step_lines(step, names))


def _step_lines(step: "Disagreement", names: Sequence[str]) -> Iterator[str]:
    yield f"  {step.place}: group {step.group_id} rollout {step.rollout_id} step {step.step}"
    yield f"    saw {one_line(step.observation, _WIDTH - 8)}"
    yield f"    did {one_line(step.action, _WIDTH - 8)}"
    for name, value, why in zip(names, (step.a, step.b), (step.why_a, step.why_b), strict=True):
        yield textwrap.fill(
            f"{name} {value:+.4g}: {why}",
            _WIDTH,
            initial_indent="    ",
            subsequent_indent="      ",
        )


def _table(title: str, *columns: str) -> Table:
    """A table whose many columns stand close together; long names are folded."""
    table = plain_table(title, "method", *columns)
    table.padding = (0, 1, 0, 0)
    table.show_edge = False
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    return table


def _explained(text: str) -> str:
    """What columns mean, and an empty line."""
    return textwrap.fill(text, _WIDTH) + "\n"


def _of(size: "Size") -> str:
    return "" if size.rollouts is None else f", groups of {size.rollouts}"


def _count(number: float) -> str:
    return f"{number:.0f}" if number == round(number) else f"{number:.1f}"


def _interval(interval: "Interval") -> str:
    mean = _number(interval.mean)
    return mean if math.isnan(interval.se) else f"{mean} ±{_number(interval.margin)}"


def _number(value: float) -> str:
    """Three decimals without a leading zero, `-` for none."""
    if math.isnan(value):
        return "-"
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.9995 else text
