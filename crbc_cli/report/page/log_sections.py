"""What a report says of the log itself: warnings, numbers, findings, anchors and coverage."""

from typing import Any

from crbc_cli.engine.checks.codes import Finding
from crbc_cli.engine.suspects import WorstAnchor
from crbc_cli.notes import counted
from crbc_cli.report.page.charts import bars, heat_map, lines
from crbc_cli.report.page.contents import Contents
from crbc_cli.report.page.html import (
    Markup,
    cards,
    number,
    paragraph,
    percent,
    section,
    shortened,
    table,
    text,
)

__all__ = ["anchors", "check", "coverage", "summary", "updates"]

_MOST_CELLS = 16


def summary(contents: Contents) -> Markup:
    """Warnings and problems, then the log in numbers."""
    s, groups = contents.check.summary, contents.overview.groups
    rows = sum(line.rows for line in groups)
    credited = sum((line.credited or 0.0) * line.rows for line in groups)
    first, last = (
        contents.coverage.to_dict()["depths"][0],
        contents.coverage.to_dict()["depths"][-1],
    )
    low, middle, high = s.rollout_rows
    return section(
        "summary",
        "Summary",
        _warnings(contents),
        cards(
            [
                (
                    "groups",
                    s.groups,
                    f"{len([g for g in groups if g.status == 'ok'])} with ok status",
                ),
                ("rollouts", s.rollouts, f"{counted(s.files, 'file')}"),
                ("steps", f"{s.rows:,}", f"{low} to {high} a rollout, median {middle:g}"),
                ("success rate", percent(s.success_rate), "of scored rollouts"),
                (
                    "steps with credit",
                    percent(credited / rows if rows else None),
                    "step credit other than 0",
                ),
                (
                    "rollouts reached",
                    f"{number(first['mean_rollouts'], 2)} → {number(last['mean_rollouts'], 2)}",
                    "by an eligible visit, depth 0 → full closure",
                ),
                ("anchors", f"{s.anchors:,}", f"{number(s.visits_per_anchor, 2)} visits each"),
                (
                    "conflict rate",
                    percent(contents.coverage.conflicts.rate),
                    "of repeated pairs' visits",
                ),
            ]
        ),
    )


def _warnings(contents: Contents) -> Markup:
    problems = [f for f in contents.check.findings if f.severity == "problem"]
    warnings = [note.message for note in contents.notes if note.warning]
    items = [
        *(f"{f.code}: {f.count} of {f.of} {f.unit}. {f.message}" for f in problems),
        *warnings,
    ]
    if not items:
        return Markup('<p class="fine">No problems and no warnings.</p>')
    listed = "".join(f"<li>{text(item)}</li>" for item in items)
    return Markup(
        f'<div class="warnings" role="note"><strong>{len(items)} to look at first</strong>'
        f"<ul>{listed}</ul></div>"
    )


def updates(contents: Contents) -> Markup:
    """Curves over inputs, where there are several."""
    found = contents.overview.updates
    if len(found) < 2:
        return Markup()
    names = [line.source_file.rpartition("/")[2] for line in found]

    def column(name: str) -> list[float | None]:
        return [getattr(line, name) for line in found]

    charts = [
        lines("Success rate", names, [("success", column("success_rate"))], "%", most=1),
        lines(
            "Coverage: mean share of the group's rollouts that a visit reaches",
            names,
            [("full closure", column("reach")), ("depth 0", column("reach_0"))],
            "%",
            most=1,
        ),
        lines("Steps with credit", names, [("credit", column("credited"))], "%", most=1),
        lines("Zero-variance groups", names, [("groups", column("zero_variance"))], "%", most=1),
        lines("Conflict rate of the anchors", names, [("conflict", column("conflict"))], "%"),
        lines("Runtime of credit construction", names, [("seconds", column("seconds"))], "s"),
        *_timings(contents),
    ]
    rows = [
        (
            line.source_file,
            line.groups,
            line.rollouts,
            percent(line.success_rate),
            f"{percent(line.reach_0)} → {percent(line.reach)}",
            percent(line.credited),
            percent(line.zero_variance),
            percent(line.conflict),
            number(line.seconds, 4),
        )
        for line in found
    ]
    heads = [
        "input",
        "groups",
        "rollouts",
        "success",
        "coverage 0 → ∞",
        "with credit",
        "zero variance",
        "conflict",
        "credit s",
    ]
    return section(
        "updates",
        "Over updates",
        paragraph("One point per input, in natural order of their names."),
        Markup(f'<div class="charts">{"".join(charts)}</div>'),
        Markup(f"<details><summary>The numbers</summary>{table('Inputs', heads, rows)}</details>"),
    )


def _timings(contents: Contents) -> list[Markup]:
    logged = contents.profile.updates
    if logged is None or logged.height < 2:
        return []
    labels = [str(name) for name in logged["update"].to_list()]
    return [
        lines(f"Logged {phase.replace('_', ' ')}", labels, [(phase, logged[phase].to_list())], "s")
        for phase in logged.columns
        if phase != "update"
    ]


def check(contents: Contents) -> Markup:
    """Findings with their places, problems first."""
    told = "".join(f"<li>{text(note.message)}</li>" for note in contents.notes if not note.warning)
    notes = Markup(f'<div class="notes"><h3>Remarks</h3><ul>{told}</ul></div>' if told else "")
    findings = [_finding(finding) for finding in contents.check.findings]
    body = findings or [paragraph("Nothing suspicious was found.")]
    return section("check", "Check findings", *body, notes)


def _finding(finding: Finding) -> Markup:
    places = "".join(f"<li>{text(place)}</li>" for place in finding.where[:3])
    return Markup(
        f'<div class="finding {finding.severity}"><h3>{text(finding.code)} '
        f"<small>{finding.severity}, {finding.count} of {finding.of} {text(finding.unit)}</small>"
        f"</h3><p>{text(finding.message)}</p>{f'<ul>{places}</ul>' if places else ''}"
        f"<p><b>What to do:</b> {text(finding.advice)}</p></div>"
    )


def anchors(contents: Contents) -> Markup:
    """How good the anchors are."""
    report = contents.anchors
    q = report.quality.to_dict()
    facts: list[tuple[str, object]] = [
        ("rules", f"{report.rules.name} ({report.rules.digest()[:8]})"),
        ("anchors", f"{q['anchors']:,} over {q['visits']:,} visits"),
        ("visits per anchor", number(q["visits_per_anchor"])),
        ("anchors visited once", percent(q["anchors_visited_once_share"])),
        ("visits on anchors of several rollouts", percent(q["shared_visits_share"])),
        ("actions per anchor", number(q["actions_per_anchor"])),
        ("conflict rate", percent(q["conflict_rate"])),
    ]
    if report.tested:
        facts.append(
            (
                "Markov test: anchors that depend on their entry",
                f"{report.dependent} of {report.tested}",
            )
        )
    parts = [table("Anchor quality", ["measure", "value"], facts)]
    if report.worst:
        heads = ["group", "observation", "visits", "rollouts", "in conflict", "adjusted p"]
        rows = [_worst(anchor) for anchor in report.worst[:8]]
        parts.append(table("Anchors that are least like states", heads, rows, left=2))
    return section("anchors", "Anchor quality", *parts)


def _worst(anchor: WorstAnchor) -> tuple[object, ...]:
    seen = shortened(anchor.observation or "–")
    return (
        anchor.group_id,
        Markup(f'<span class="log">{text(seen)}</span>'),
        anchor.visits,
        anchor.rollouts,
        anchor.conflicting,
        number(anchor.adjusted),
    )


def coverage(contents: Contents) -> Markup:
    """Reachable rollouts per depth, and depth 0 against full closure."""
    report = contents.coverage
    found = report.to_dict()
    rows = [
        (
            "∞" if depth["depth"] == "inf" else depth["depth"],
            number(depth["mean_rollouts"]),
            percent(depth["full_coverage_share"]),
        )
        for depth in found["depths"]
    ]
    shares = [
        (
            f"K = {'∞' if d['depth'] == 'inf' else d['depth']}",
            100 * (d["full_coverage_share"] or 0.0),
        )
        for d in _few(found["depths"])
    ]
    charts = [
        bars("Eligible visits that reach every rollout of their group", shares, "%", most=100)
    ]
    reached = sorted({count for pair in report.paired for count in pair})
    if reached and len(reached) <= _MOST_CELLS:
        charts.append(
            heat_map(
                "Rollouts reached by a visit, depth 0 against full closure, % of eligible visits",
                reached,
                reached,
                {pair: units / report.total for pair, units in report.paired.items()},
                "depth 0",
                "full closure",
            )
        )
    return section(
        "coverage",
        "Coverage",
        paragraph(
            f"{percent(found['expanded_share'])} of {report.total:,} eligible visits reach more "
            f"rollouts at full closure than at depth 0; nothing changes beyond depth "
            f"{report.settled}."
        ),
        Markup(f'<div class="charts">{"".join(charts)}</div>'),
        table("Reachable rollouts per depth", ["depth", "mean", "all reached"], rows),
    )


def _few(depths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most eight, the last among them."""
    return depths if len(depths) <= 8 else [*depths[:7], depths[-1]]
