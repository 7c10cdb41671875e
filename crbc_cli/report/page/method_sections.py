"""What a report says of the methods: how far they agree, the gate, and the time they take."""

from typing import Any

from crbc_cli.report.page.charts import bars
from crbc_cli.report.page.contents import Contents
from crbc_cli.report.page.html import (
    Markup,
    number,
    paragraph,
    percent,
    section,
    shortened,
    table,
    text,
)

__all__ = ["estimators", "gate", "runtime"]

_PHASE = {"rest": "everything else", "credit": "credit construction (here)"}


def estimators(contents: Contents) -> Markup:
    """How far the methods agree with the last of them, CRBC."""
    found = contents.comparison.to_dict()
    names = [entry["name"] for entry in found["entries"]]
    reference = names[-1]
    agreed: dict[str, dict[str, Any]] = {}
    rank: dict[frozenset[str], float | None] = {}
    for pair in found["agreement"]:
        rank[frozenset((pair["a"], pair["b"]))] = pair["spearman"]
        if reference in (pair["a"], pair["b"]):
            agreed[pair["a"] if pair["b"] == reference else pair["b"]] = pair
    shares = {result["name"]: result["credited_share"] for result in found["results"]}
    scores = {entry["name"]: entry["score"] for entry in found["entries"]}
    rows = [
        (
            name,
            scores[name].replace("_", " "),
            percent(shares[name]),
            number(agreed[name]["spearman"]) if name in agreed else "–",
            percent(agreed[name]["signs"]) if name in agreed else "–",
        )
        for name in names
    ]
    matrix = [
        (a, *("1" if a == b else number(rank[frozenset((a, b))], 2) for b in names)) for a in names
    ]
    return section(
        "estimators",
        "Estimators side by side",
        table(
            "Methods",
            [
                "method",
                "number compared",
                "steps with a number other than 0",
                f"rank correlation with {reference}",
                "same sign where both are not 0",
            ],
            rows,
            left=2,
        ),
        table("Spearman rank correlation over steps", ["", *names], matrix),
        _disagreements(agreed, reference),
    )


def _disagreements(agreed: dict[str, dict[str, Any]], reference: str) -> Markup:
    rows = [
        (
            name,
            f"{d['group_id']} {d['rollout_id']}:{d['step']}",
            Markup(f'<span class="log">{text(shortened(str(d["action"]), 60))}</span>'),
            number(d["a"] if pair["a"] == name else d["b"]),
            number(d["b"] if pair["a"] == name else d["a"]),
        )
        for name, pair in agreed.items()
        for d in pair["disagreements"][:2]
    ]
    inner = table(
        f"Steps on which a method is farthest from {reference}",
        ["method", "group, rollout:step", "action", "its number", reference],
        rows,
        left=3,
    )
    return Markup(f"<details><summary>Where they disagree most</summary>{inner}</details>")


def gate(contents: Contents) -> Markup:
    """What Selective Rollout would save and cost."""
    if contents.gate is None:
        return section("gate", "Selective Rollout", paragraph("No group could be measured."))
    found = contents.gate.to_dict()
    rows = [
        (
            point["k"],
            point["threshold"],
            point["cut"],
            percent(point["precision"]),
            percent(point["recall"]),
            percent(point["realised"]),
            percent(point["safe"]),
            number(point["l2_preserved"]),
        )
        for point in found["points"]
    ]
    heads = ["K", "threshold", "cut", "precision", "recall", "steps saved", "safe", "L2 preserved"]
    return section(
        "gate",
        "Selective Rollout",
        paragraph(
            f"{found['zero_variance_groups']} of {found['groups']} groups have no reward variance. "
            f"The rule stops a group after K steps where {contents.gate.rule.text}."
        ),
        table("What the gate saves and costs", heads, rows, left=0),
    )


def runtime(contents: Contents) -> Markup:
    """Stages of annotating the log, and logged phases of training."""
    found = contents.profile.to_dict()
    stages = [s for s in found["stages"] if s["stage"] != "import"]
    rows = [
        (s["stage"], number(s["seconds"], 4), f"{s['rows_per_second'] or 0:,.0f}") for s in stages
    ]
    parts = [
        paragraph(
            f"{found['rows']:,} rows in {found['groups']} groups; credit construction took "
            f"{number(found['credit_seconds'], 4)} s, peak memory "
            f"{found['peak_memory_bytes'] / 2**20:.0f} MiB."
        ),
        bars("Annotating the log", [(s["stage"], s["seconds"]) for s in stages], "s"),
        table("Stages", ["stage", "seconds", "rows/s"], rows),
    ]
    if found["update_means"]:
        means = [(_PHASE.get(k, k.replace("_", " ")), v) for k, v in found["update_means"].items()]
        parts.append(bars("Mean seconds per training update", means, "s"))
    return section("runtime", "Runtime", *parts)
