"""The numbers of both studies as Markdown tables; needs no torch, no environment.

    python tests/learning/tables.py        # the tables of the README from tests/learning/results

`tests/readme_tables.py` puts them into the README.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scipy import stats

RESULTS = Path(__file__).parent / "results"
TRAINING = ("training", "training-rate-0.001")
"""Results of the study, and of the same with smaller learning rates."""
NORMAL = 1.96

ROWS = {
    "grpo": "GRPO",
    "rloo": "RLOO",
    "gigpo": "GiGPO γ .95",
    "gigpo_98": "GiGPO γ .98",
    "gigpo_std": "GiGPO γ .95, std",
    "g2po": "G2PO",
    "g2po_std": "G2PO, std",
    "graphgpo_1": "GraphGPO ω .1",
    "graphgpo_8": "GraphGPO ω .8",
    "bepo": "Gated-BEPO",
    "hgpo": "HGPO",
    "rtmc": "RTMC",
    "rewardflow": "RewardFlow",
    **{f"k{depth}": f"CRBC K={depth}" for depth in (*range(9), "inf")},
    "k8 boot": "CRBC K=8, bootstrapped ends",
    "kinf boot": "CRBC K=inf, bootstrapped ends",
    "as3": "A_S K=3",
    "as": "A_S K=inf",
    "as boot": "A_S K=inf, bootstrapped ends",
    "sigma": "A/σ K=inf",
    "mix": "A_G + 5 A_S",
    "graph_mix": "A_G + GraphGPO ω .1",
}
"""Row of the fidelity table -> its name. CRBC K is the raw credit."""

COLUMNS = {
    ("exact", 4): "exact, G=4",
    ("exact", 8): "exact, G=8",
    ("exact", 16): "exact, G=16",
    ("untimed", 8): "untimed",
    ("view", 8): "aliased",
    ("skill 0.75", 8): "skill ±.75",
    ("skill 1.5", 8): "skill ±1.5",
}
"""(setting, group size) -> head of its column; G = 8 where nothing is said."""

PAIRS = (
    ("kinf", "gigpo"),
    ("kinf", "gigpo_std"),
    ("k3", "k0"),
    ("kinf", "k3"),
    ("k8", "kinf"),
    ("graphgpo_1", "kinf"),
    ("g2po", "kinf"),
    ("as", "kinf"),
    ("as", "sigma"),
    ("gigpo_std", "gigpo"),
    ("kinf boot", "kinf"),
    ("as boot", "as"),
    ("mix", "as"),
    ("mix", "grpo"),
    ("graph_mix", "mix"),
)
"""Differences that are kept and shown: row less row."""


def write(done: Mapping[str, Any], path: Path) -> None:
    """JSON with one line per row of its lists."""
    parts = []
    for key, value in done.items():
        if isinstance(value, list):
            lines = ",\n".join("  " + json.dumps(row) for row in value)
            parts.append(f" {json.dumps(key)}: [\n{lines}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def read(name: str) -> dict[str, Any]:
    """Results kept in this folder."""
    done: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return done


def versions(crbc: Sequence[str]) -> dict[str, str]:
    """What the numbers depend on."""
    program = subprocess.run([*crbc, "--version"], capture_output=True, text=True, check=True)
    found = {"crbc": program.stdout.split()[-1], "python": platform.python_version()}
    for package in ("torch", "numpy", "scipy", "polars", "pyarrow", "gym-sokoban"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | {"machine": f"{platform.machine()}, {os.cpu_count()} cores"}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def number(value: float) -> str:
    """Three decimals without a leading zero."""
    return f"{value:.3f}".replace("0.", ".", 1)


# --- fidelity -------------------------------------------------------------------------------------


def fidelity(done: Mapping[str, Any]) -> str:
    """Mean cosine ± half of its 95 % interval of every row; the best of a column is bold."""
    found = {(c["row"], c["setting"], c["size"]): c for c in done["cells"]}
    best = {
        column: max(found[row, *column]["cosine"] for row in ROWS if (row, *column) in found)
        for column in COLUMNS
    }
    rows = []
    for row, name in ROWS.items():
        line = [name]
        for column in COLUMNS:
            cell = found[row, *column]
            mean = number(cell["cosine"])
            shown = f"**{mean}**" if cell["cosine"] == best[column] else mean
            line.append(f"{shown} ±{number(NORMAL * cell['cosine_se'])}")
        rows.append(line)
    return markdown(["step term", *COLUMNS.values()], rows)


def fidelity_differences(done: Mapping[str, Any]) -> str:
    """Paired differences of the cosine; bold where the interval leaves out 0."""
    found = {(d["a"], d["b"], d["setting"], d["size"]): d for d in done["differences"]}
    rows = []
    for a, b in PAIRS:
        line = [f"{ROWS[a]} − {ROWS[b]}"]
        for column in COLUMNS:
            cell = found[a, b, *column]
            line.append(signed(cell["cosine"], NORMAL * cell["cosine_se"]))
        rows.append(line)
    return markdown(["difference", *COLUMNS.values()], rows)


def fidelity_facts(done: Mapping[str, Any]) -> str:
    """Size, seed and time of the study in one sentence."""
    rows = sum(log["rows"] for log in done["logs"].values())
    seconds = done["seconds"]
    return (
        f"{done['rooms']} rooms of {done['rollouts']} rollouts, seed {done['seed']}, {rows:,} rows"
        f" in {len(done['logs'])} logs; {100 * done['logs']['skill-0']['aliased_view']:.0f} % of"
        f" the steps have an aliased view. {seconds['in all'] / 60:.1f} minutes,"
        f" {seconds['making the logs']:.0f} s of them for making the logs;"
        f" {seconds['processor'] / 60:.1f} minutes of processor time ({machine(done)}).\n"
    )


# --- training -------------------------------------------------------------------------------------


def training(done: Mapping[str, Any], baselines: Sequence[str] = ("grpo", "gigpo")) -> str:
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


def training_by_rate(studies: Sequence[Mapping[str, Any]], baseline: str = "grpo") -> str:
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


def training_seconds(done: Mapping[str, Any]) -> str:
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


def training_facts(done: Mapping[str, Any]) -> str:
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


def signed(mean: float, half: float) -> str:
    """A difference with its sign; bold where the interval leaves out 0."""
    text = ("+" if mean >= 0 else "−") + number(abs(mean))
    return (f"**{text}**" if abs(mean) > half else text) + spread(half)


def spread(half: float) -> str:
    """Half of an interval, or nothing where a single value has none."""
    return "" if math.isnan(half) else f" ±{number(half)}"


def machine(done: Mapping[str, Any]) -> str:
    """Program and machine of a study."""
    return f"crbc {done['versions']['crbc']}, {done['versions']['machine']}"


def merged(*studies: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Runs of several studies under one plan as one study of `methods`."""
    if any(done["plan"] != studies[0]["plan"] for done in studies):
        raise ValueError("the studies have different plans")
    runs = [run for done in studies for run in done["runs"]]
    return {
        **studies[0],
        "runs": [run for name in methods for run in runs if run["method"] == name],
    }


def rates() -> str:
    """Final success and area under several learning rates, with the size of each study."""
    studies = [read(name) for name in TRAINING]
    sizes = [
        f"{rate_of(done):g}: {len({run['seed'] for run in done['runs']})} seeds,"
        f" {minutes_of(done):.0f} minutes"
        for done in studies
    ]
    return f"{training_by_rate(studies)}\n{'; '.join(sizes)}.\n"


def weights() -> str:
    """Final success and area where only the weight of the step term differs."""
    methods = ("grpo", "gigpo", "gigpo w_s=5", "crbc K=inf", "crbc w_s=1")
    return training(merged(read("training"), read("training-weights"), methods=methods))


def with_facts(
    table: Callable[[Mapping[str, Any]], str], facts: Callable[[Mapping[str, Any]], str], name: str
) -> str:
    """A table and the sentence about its study."""
    done = read(name)
    return f"{table(done)}\n{facts(done)}"


PARTS: dict[str, Callable[[], str]] = {
    "training": partial(with_facts, training, training_facts, TRAINING[0]),
    "training-rates": rates,
    "training-weights": weights,
    "training-seconds": lambda: training_seconds(read(TRAINING[0])),
    "fidelity": partial(with_facts, fidelity, fidelity_facts, "fidelity"),
    "fidelity-differences": lambda: fidelity_differences(read("fidelity")),
}
"""Generated parts of the README, by the name of their mark."""


def main() -> None:
    """Prints all tables."""
    for name, text in PARTS.items():
        print(f"{name}\n\n{text()}")


if __name__ == "__main__":
    main()
