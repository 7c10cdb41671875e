"""`crbc gate` on a terminal of 80 columns."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from rich.table import Table

from crbc_cli.notes import counted
from crbc_cli.report.text import percent, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from crbc_cli.engine.gate import GatePoint, GateReport
    from crbc_cli.methods.gate_rule import Metrics

__all__ = ["gate_report"]

_LEGEND = (
    "TP, FP: cut groups without and with reward variance. In %: steps saved of T_max per rollout, "
    "in TP (safe) and in all cut groups (raw); saved of the steps taken (real); groups cut (drop). "
    "L2: share left of the advantages' norm."
)
_METRICS = ("cut", "TP", "FP", "prec", "recall", "safe", "raw", "real", "L2", "drop")


def gate_report(report: "GateReport") -> "Iterator[RenderableType]":
    """What the rule saves and costs, how well its signal tells groups apart, and the choice."""
    yield _summary(report)
    shown = [p for p in report.points if report.best is not None or not p.chosen]
    if shown:
        yield _points(report, shown)
        yield f"{_LEGEND}\n"
    yield _separations(report)
    if report.best is not None:
        yield _held_out(report)
    if report.held_out:
        yield _best(report)
    if report.rule.per_group:
        yield _per_group(report)


def _summary(report: "GateReport") -> str:
    groups, evidence = report.groups, report.evidence
    number, zero = len(groups.variance), int(evidence.zero.sum())
    share = percent(zero / number if number else None)
    origin = " (the longest rollout)" if groups.t_max == groups.longest else ""
    return (
        f"{counted(number, 'group')}, {zero} without reward variance ({share}); "
        f"T_max {counted(groups.t_max, 'step')}{origin}."
    )


def _points(report: "GateReport", points: "Sequence[GatePoint]") -> Table:
    rule = report.rule
    padding = "" if rule.pad else ", not padded"
    table = _narrow(f"Cut after K steps if {rule.text}{padding}", "K", "D", *_METRICS)
    for point in points:
        mark = "*" if point.chosen else ""
        threshold = "-" if point.threshold is None else f"{mark}{point.threshold:g}"
        table.add_row(str(point.k), threshold, *_cells(point.metrics))
    if any(point.chosen for point in points):
        table.caption, table.caption_justify = "* chosen", "left"
    return table


def _separations(report: "GateReport") -> Table:
    table = plain_table(
        f"Signal {report.rule.signal} against reward variance",
        "K",
        "Spearman",
        "AUROC",
        "oracle safe",
        "oracle real",
    )
    for row in report.separations():
        table.add_row(
            str(row["k"]),
            _number(row["spearman"], 3),
            _number(row["auroc"], 3),
            percent(row["oracle_safe"]),
            percent(row["oracle_realised"]),
        )
    return table


def _held_out(report: "GateReport") -> Table:
    rule = report.rule
    table = _narrow(
        f"Groups cut by what the other folds chose ({rule.folds} folds, seed {rule.seed})",
        "K",
        "D",
        *_METRICS,
    )
    for row in report.held_out:
        found = [choice for choice in row.choices if choice is not None]
        thresholds = [threshold for _, threshold in found]
        k = "any" if row.k is None else str(row.k)
        table.add_row(k, _range(thresholds), *_cells(row.metrics))
    return table


def _best(report: "GateReport") -> str:
    if report.best is None:
        return (
            f"No threshold for {report.rule.signal} cuts groups without reward variance at a "
            f"precision of {report.rule.min_precision:g} or more: nothing to recommend."
        )
    point, unseen = report.points[report.best], report.held_out[-1].metrics
    found = (
        "cut no group"
        if unseen.precision is None
        else f"had precision {unseen.precision:.4g} and saved {percent(unseen.safe)} safely"
    )
    return (
        f"Largest safe saving at precision {report.rule.min_precision:g} or more: "
        f"K = {point.k}, D = {point.threshold:g}. Cross-validation "
        f"{'confirms' if report.confirmed else 'does not confirm'} it: on groups that it was not "
        f"made on, such a choice {found}."
    )


def _per_group(report: "GateReport") -> Table:
    from crbc_cli.engine.gate_groups import FEATURES

    frame = report.per_group()
    names = [c for c in frame.columns if c == "group_id" or c.startswith("key:")]
    if "source_file" in frame.columns and frame["source_file"].n_unique() > 1:
        names.insert(0, "source_file")
    signals = ["distance", *({report.rule.signal} - {"distance", "terminated"}), "terminated"]
    known = [s for s in signals if FEATURES[s] in frame.columns]
    table = plain_table(
        "Groups",
        *(name.removeprefix("key:") for name in names),
        "K",
        *known,
        "variance",
        "cut",
        left=len(names),
    )
    for name in range(len(names)):
        table.columns[name].overflow = "fold"
    for row in frame.iter_rows(named=True):
        table.add_row(
            *(str(row[n]) for n in names),
            f"{row['K']:g}",
            *(_number(row[FEATURES[s]], 3) for s in known),
            _number(row["reward_variance"], 4),
            "cut" if row["cut"] else "",
        )
    return table


def _narrow(title: str, *columns: str) -> Table:
    """A table whose many columns stand close together."""
    table = plain_table(title, *columns)
    table.padding = (0, 1, 0, 0)
    return table


def _cells(metrics: "Metrics") -> list[str]:
    _, cut, hits, misses, precision, recall, safe, raw, realised, l2, dropped = astuple(metrics)
    return [
        str(cut),
        str(hits),
        str(misses),
        _number(precision, 4),
        _number(recall, 4),
        _number(safe, 2, 100),
        _number(raw, 2, 100),
        _number(realised, 2, 100),
        _number(l2, 4),
        _number(dropped, 1, 100),
    ]


def _number(value: float | None, places: int, scale: float = 1) -> str:
    return "-" if value is None else f"{scale * value:.{places}f}"


def _range(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"
