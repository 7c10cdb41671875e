"""Tables of the fidelity study; needs no environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kept import machine, markdown, number, signed

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


def cosines(done: Mapping[str, Any]) -> str:
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


def differences(done: Mapping[str, Any]) -> str:
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


def facts(done: Mapping[str, Any]) -> str:
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
