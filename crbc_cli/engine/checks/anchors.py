"""Checks on anchors and actions: do they tell situations apart, and do rollouts share them?"""

import polars as pl

from crbc_cli.anchors.choose import detect_preset
from crbc_cli.engine.checks.codes import Finding, found
from crbc_cli.engine.checks.facts import Facts
from crbc_cli.engine.growth import GROWING_SHARE, GROWS
from crbc_cli.engine.load import sample_texts
from crbc_cli.errors import OptionError
from crbc_cli.notes import Notes, counted

__all__ = ["ANCHOR_CHECKS"]

_TELLING = ("inventory", "admissible_commands", "admissible_actions", "admissible", "location")
_ALIASED_SHARE = 0.05
_SHARED_SHARE = 0.1
_ONCE_SHARE = 0.9
_ONCE_LEAST = 20


def _rows(facts: Facts, code: str, oddity: str, advice: str = "") -> Finding | None:
    hit = facts.rollouts.filter(pl.col(f"n:{oddity}") > 0)
    rows = int(hit[f"n:{oddity}"].sum())
    where = facts.places(hit[f"at:{oddity}"])
    return found(code, rows, facts.rows, "rows", where, advice=advice)


def _more_columns(facts: Facts) -> str:
    """Advice to anchor on a column that the log has and that often tells situations apart."""
    anchor = facts.settings.anchor.anchor
    known = set().union(*(file.ever for file in facts.files)) - set(anchor)
    name = next((column for column in _TELLING if column in known), None)
    if name is None:
        return ""
    return f"add what the text hides, for example --anchor {','.join(anchor)},{name}"


def missing_observations(facts: Facts) -> Finding | None:
    """Rows without an anchor."""
    return _rows(facts, "missing_observations", "no_anchor")


def empty_observations(facts: Facts) -> Finding | None:
    """Anchors that are empty text after their rules."""
    return _rows(facts, "empty_observations", "empty", _more_columns(facts))


def null_actions(facts: Facts) -> Finding | None:
    """Rows without an action."""
    return _rows(facts, "null_actions", "null_action")


def growing_anchors(facts: Facts) -> Finding | None:
    """Anchors that hold the history: their length rises with the step in most rollouts.

    Rank correlation of at least 0.9 in more than 80 % of the rollouts with three visits; with two
    if none has three; across the rollouts of a group if the log keeps one row per rollout.
    """
    rollouts = facts.rollouts.filter(pl.col("visits") > 1)
    if rollouts.height:
        longer = rollouts.filter(pl.col("visits") > 2)
        pool, unit, place = (longer if longer.height else rollouts), "rollouts", "last"
    else:
        pool, unit, place = facts.groups.filter(pl.col("visits") > 1), "groups", "first"
    hit = pool.filter(pl.col("growth") >= GROWS)
    if hit.height <= GROWING_SHARE * pool.height:
        return None
    if unit == "groups":
        where = facts.group_places(hit, "status")
        return found("growing_anchors", hit.height, pool.height, unit, where)
    start, end = (int(hit[c].median() or 0) for c in ("first_bytes", "last_bytes"))  # type: ignore[arg-type]
    detail = f"from {start} to {end} bytes (medians of first and last step)"
    where = facts.rollout_places(hit, place)
    return found("growing_anchors", hit.height, pool.height, unit, where, detail)


def _several(facts: Facts) -> pl.DataFrame:
    """Groups in which several rollouts could share an anchor."""
    return facts.groups.filter(pl.col("members") > 1)


def singleton_anchors(facts: Facts) -> Finding | None:
    """Not one anchor is visited twice."""
    groups = _several(facts)
    anchors, single = int(groups["anchors"].sum()), int(groups["single"].sum())
    if single < anchors:
        return None
    where = facts.group_places(groups, "status")
    return found("singleton_anchors", single, anchors, "anchors", where)


def few_shared_anchors(facts: Facts) -> Finding | None:
    """Hardly any visit shares its anchor with another rollout."""
    groups = _several(facts)
    visits, shared = int(groups["visits"].sum()), int(groups["shared"].sum())
    if shared >= _SHARED_SHARE * visits or groups["single"].sum() == groups["anchors"].sum():
        return None
    detail = counted(shared, "visit is shared", "visits are shared")
    return found("few_shared_anchors", visits - shared, visits, "visits", detail=detail)


def one_action_anchors(facts: Facts) -> Finding | None:
    """No choice is ever seen, although anchors are shared."""
    groups = _several(facts)
    visits = int(groups["visits"].sum())
    if groups["choice"].sum() or groups["single"].sum() == groups["anchors"].sum():
        return None
    return found("one_action_anchors", visits, visits, "visits")


def unique_actions(facts: Facts) -> Finding | None:
    """Rollouts meet, but nearly every action there is one of a kind.

    At least 90 % of the (anchor, action) pairs at shared anchors with three visits or more have
    one visit, and there are at least 20 of them.
    """
    groups = facts.groups
    pairs, once = int(groups["choices"].sum()), int(groups["once"].sum())
    if once < max(_ONCE_LEAST, _ONCE_SHARE * pairs):
        return None
    hit = groups.filter(pl.col("once") > 0)
    where = facts.quoted(hit["at_once"], observation=False)
    return found("unique_actions", once, pairs, "actions", where)


def aliased_anchors(facts: Facts) -> Finding | None:
    """Anchors at which an action has several successors, or ends both ways."""
    groups = facts.groups
    hit = groups.filter(pl.col("aliased") > 0).sort(
        "aliased_visits", descending=True, maintain_order=True
    )
    count, anchors = int(hit["aliased"].sum()), int(groups["anchors"].sum())
    share = 100 * hit["aliased_visits"].sum() / max(int(groups["visits"].sum()), 1)
    detail = f"{share:.1f} % of the visits, {int(hit['mixed'].sum())} with mixed outcomes"
    where = facts.quoted(hit["at_aliased"])
    advice = _more_columns(facts)
    return found("aliased_anchors", count, anchors, "anchors", where, detail, advice)


def preset_available(facts: Facts) -> Finding | None:
    """At least 5 % of the visits are aliased without rules, and `--preset auto` finds rules."""
    anchor = facts.settings.anchor
    visits, aliased = (int(facts.groups[name].sum()) for name in ("visits", "aliased_visits"))
    if anchor.preset or anchor.rules or aliased < max(1, _ALIASED_SHARE * visits):
        return None
    told = Notes()
    try:
        sources = [file.source for file in facts.files]
        name = detect_preset(sample_texts(sources, facts.settings), told)
    except OptionError:
        return None
    detail = told.items[0].message.removeprefix("--preset auto takes ")
    advice = f"try --preset {name}; crbc anchors --explain-preset {name} shows its rules"
    return found("preset_available", aliased, visits, "visits", (), detail, advice)


def hub_anchors(facts: Facts) -> Finding | None:
    """Short texts that join many situations."""
    groups = facts.groups
    hit = groups.filter(pl.col("hubs") > 0)
    count, anchors = int(hit["hubs"].sum()), int(groups["anchors"].sum())
    share = 100 * hit["hub_visits"].sum() / max(int(groups["visits"].sum()), 1)
    texts = (
        hit.group_by("hub_key", maintain_order=True)
        .agg(pl.sum("hub_visits"), pl.first("at_hub"))
        .sort("hub_visits", descending=True, maintain_order=True)
    )
    where = facts.quoted(texts["at_hub"], action=False)
    return found("hub_anchors", count, anchors, "anchors", where, f"{share:.1f} % of the visits")


ANCHOR_CHECKS = (
    missing_observations,
    empty_observations,
    null_actions,
    growing_anchors,
    singleton_anchors,
    few_shared_anchors,
    one_action_anchors,
    unique_actions,
    aliased_anchors,
    preset_available,
    hub_anchors,
)
