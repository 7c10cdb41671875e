"""Tables of the training study; needs no torch and no environment."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kept import machine, markdown, number, signed, spread
from scipy import stats


def success(done: Mapping[str, Any], baselines: Sequence[str] = ("grpo", "gigpo")) -> str:
    """Held-out success of each method: last, area under the curve, and paired differences.

    The area is the mean of the curve over updates (trapezoids). ± is half of the 95 % interval of
    Student's t over seeds.
    """
    methods = methods_of(done)
    shown = [name for name in baselines if name in methods]
    header = ["credit"]
    for name in MEASURES:
        header += [name, *(f"− {baseline}" for baseline in shown)]
    rows = []
    for method in methods:
        line = [method]
        for measure in MEASURES.values():
            line.append(level(done, method, measure))
            line += [gap(done, method, baseline, measure) for baseline in shown]
        rows.append(line)
    return markdown(header, rows)


def success_by_rate(studies: Sequence[Mapping[str, Any]], baseline: str = "grpo") -> str:
    """The same for several learning rates; in brackets the difference to `baseline`."""
    header = ["credit"]
    for done in studies:
        header += [f"{name} at {rate_of(done):g} (− {baseline})" for name in MEASURES]
    rows = []
    for method in methods_of(studies[0]):
        line = [method]
        for done in studies:
            for measure in MEASURES.values():
                cell = level(done, method, measure)
                if method != baseline:
                    cell += f" ({gap(done, method, baseline, measure)})"
                line.append(cell)
        rows.append(line)
    return markdown(header, rows)


def methods_of(done: Mapping[str, Any]) -> list[str]:
    """Methods of a study."""
    return list(dict.fromkeys(run["method"] for run in done["runs"]))


def rate_of(done: Mapping[str, Any]) -> float:
    """Learning rate of a study."""
    return float(done["plan"]["optimiser"]["rate"])


def measured(
    done: Mapping[str, Any], method: str, measure: Callable[[Mapping[str, Any]], float]
) -> list[float]:
    """One number per seed for which every method has run."""
    runs = {(run["method"], run["seed"]): run for run in done["runs"]}
    seeds = sorted({seed for _, seed in runs})
    whole = [seed for seed in seeds if all((name, seed) in runs for name in methods_of(done))]
    return [measure(runs[method, seed]) for seed in whole]


def level(
    done: Mapping[str, Any], method: str, measure: Callable[[Mapping[str, Any]], float]
) -> str:
    """Mean over seeds ± half of its interval."""
    own = measured(done, method, measure)
    return number(statistics.fmean(own)) + spread(half_width(own))


def gap(
    done: Mapping[str, Any],
    method: str,
    baseline: str,
    measure: Callable[[Mapping[str, Any]], float],
) -> str:
    """Mean difference to a baseline, paired by seed; nothing for the baseline itself."""
    if method == baseline:
        return ""
    pairs = zip(measured(done, method, measure), measured(done, baseline, measure), strict=True)
    gaps = [x - y for x, y in pairs]
    return signed(statistics.fmean(gaps), half_width(gaps))


def final(run: Mapping[str, Any]) -> float:
    """Held-out success after the last update."""
    return float(run["held_out"][-1])


def area(run: Mapping[str, Any]) -> float:
    """Mean height of the curve of held-out success."""
    x, y = run["updates"], run["held_out"]
    pieces = zip(x, x[1:], y, y[1:], strict=False)
    return float(sum((b - a) * (p + q) / 2 for a, b, p, q in pieces) / (x[-1] - x[0]))


MEASURES = {"final": final, "area": area}
"""What is told of a run, by name."""


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean, Student's t; NaN for a single value."""
    if len(values) < 2:
        return float("nan")
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    return float(quantile * statistics.stdev(values) / len(values) ** 0.5)


def seconds(done: Mapping[str, Any]) -> str:
    """Where an update's time goes: medians over updates, averaged over runs, and shares."""
    parts = {
        "sample": "sampling",
        "optimise": "policy update",
        "start": "start of `crbc`",
        "files": "log and credit, files and pipe",
        "credit": "credit construction",
    }
    rows = []
    for method in methods_of(done):
        own = [run["median_seconds"] for run in done["runs"] if run["method"] == method]
        mean = {part: statistics.fmean(one[part] for one in own) for part in parts}
        share = mean["credit"] / sum(mean.values())
        rows.append([method, *(f"{mean[part]:.3f}" for part in parts), f"{100 * share:.1f} %"])
    return markdown(["seconds per update", *parts.values(), "its share"], rows)


def facts(done: Mapping[str, Any]) -> str:
    """Size and time of the study in one sentence."""
    plan, runs = done["plan"], done["runs"]
    start = statistics.fmean(run["held_out"][0] for run in runs)
    seeds = {run["seed"] for run in runs}
    return (
        f"{len(runs)} runs ({len(seeds)} seeds), each {plan['updates']} updates of {plan['groups']}"
        f" groups of {plan['size']} rollouts; {plan['rooms']} training and {plan['held_out']}"
        f" held-out rooms; held-out success at the start {number(start)}."
        f" {minutes_of(done):.0f} minutes in all ({machine(done)}).\n"
    )


def minutes_of(done: Mapping[str, Any]) -> float:
    """Length of all training loops of a study."""
    return sum(sum(run["seconds"].values()) for run in done["runs"]) / 60


def merged(*studies: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Runs of several studies under one plan as one study of `methods`."""
    if any(done["plan"] != studies[0]["plan"] for done in studies):
        raise ValueError("the studies have different plans")
    runs = [run for done in studies for run in done["runs"]]
    return {
        **studies[0],
        "runs": [run for name in methods for run in runs if run["method"] == name],
    }
