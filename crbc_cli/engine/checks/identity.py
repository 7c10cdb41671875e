"""Checks on who is who: sizes of groups, rows under one name, order and numbering of steps."""

import polars as pl

from crbc_cli.engine.checks.codes import PLACES, Finding, found
from crbc_cli.engine.checks.facts import Facts
from crbc_cli.notes import counted

__all__ = ["IDENTITY_CHECKS"]


def group_key_too_fine(facts: Facts) -> Finding | None:
    """Median group size 1, with the column that looks like a rollout id."""
    if not _mostly_alone(facts):
        return None
    alone = facts.groups.filter(pl.col("size") == 1)
    starts = facts.rollouts["first_key"].n_unique()
    detail = (
        f"{_finest_column(facts)}; {counted(facts.rollouts.height, 'rollout')} start from {starts} "
        f"different anchors"
    )
    return found(
        "group_key_too_fine",
        alone.height,
        facts.groups.height,
        "groups",
        facts.group_places(alone.with_columns(told=_members("size")), "told"),
        detail,
    )


def _mostly_alone(facts: Facts) -> bool:
    return facts.groups.height > 1 and facts.groups["size"].median() == 1


def _finest_column(facts: Facts) -> str:
    """Which part of the group key separates the rollouts of a task, in words."""
    log, groups, rollouts = facts.settings.log, facts.groups, facts.rollouts.height
    labels = groups["label"].n_unique()
    if log.per_file and 2 * labels <= groups.height:
        return f"the {labels} group ids occur in several files, which --spanning-groups would pool"
    columns = [("group_id", _group_column(facts))]
    columns += [(c, c.removeprefix("key:")) for c in groups.columns if c.startswith("key:")]
    fine = [name for c, name in columns if groups[c].n_unique() == rollouts]
    if fine:
        other = facts.rollouts["rollout_id"].n_unique()
        return (
            f"column {', '.join(fine)} has a value of its own for each of {rollouts} rollouts, "
            f"like a rollout id rather than a task id (rollout_id has {other})"
        )
    names = " and ".join(name for _, name in columns)
    return f"{names} has {counted(groups.height, 'value')} for {counted(rollouts, 'rollout')}"


def _group_column(facts: Facts) -> str:
    log = facts.settings.log
    if log.group_stride:
        return "--group-stride"
    return ", ".join(log.group_by) or log.column_map.get("group_id", "group_id")


def singleton_groups(facts: Facts) -> Finding | None:
    """Groups in which one rollout counts, unless that is the rule."""
    if _mostly_alone(facts):
        return None
    alone = facts.groups.filter(pl.col("counted") == 1)
    return found(
        "singleton_groups",
        alone.height,
        facts.groups.height,
        "groups",
        facts.group_places(alone.with_columns(told=_members("size")), "told"),
    )


def missing_siblings(facts: Facts) -> Finding | None:
    """Groups below the expected size or, without one, below that of two thirds of the groups."""
    expected = facts.settings.outcome.expected_group_size
    size = "counted" if expected else "size"
    usual = expected or _usual_size(facts)
    small = facts.groups.filter(pl.col(size) < usual)
    absent = usual * small.height - small[size].sum()
    return found(
        "missing_siblings",
        small.height,
        facts.groups.height,
        "groups",
        facts.group_places(small.with_columns(told=_members(size)), "told"),
        f"{usual} each, {absent} missing in all",
    )


def _members(column: str) -> pl.Expr:
    plural = pl.when(pl.col(column) == 1).then(pl.lit("")).otherwise(pl.lit("s"))
    return pl.format("{} rollout{}", pl.col(column), plural)


def _usual_size(facts: Facts) -> int:
    """The size of at least two thirds of the groups, or 0."""
    sizes = facts.groups["size"].value_counts()
    sizes = sizes.filter(pl.col("count") * 3 >= 2 * facts.groups.height)
    return int(sizes["size"][0]) if sizes.height else 0


def oversized_groups(facts: Facts) -> Finding | None:
    """Groups above the expected size or, without one, above that of two thirds of the groups."""
    usual = facts.settings.outcome.expected_group_size or _usual_size(facts)
    large = facts.groups.filter((pl.col("size") > usual) & (usual > 1))
    return found(
        "oversized_groups",
        large.height,
        facts.groups.height,
        "groups",
        facts.group_places(large.with_columns(told=_members("size")), "told"),
        f"{usual} each",
    )


def uneven_groups(facts: Facts) -> Finding | None:
    """Different sizes without a usual one."""
    size = facts.groups["size"]
    explained = facts.settings.outcome.expected_group_size or _usual_size(facts)
    if explained or _mostly_alone(facts):
        return None
    low, high = facts.groups.select(low=pl.min("size"), high=pl.max("size")).row(0)
    detail = f"from {low} to {high} rollouts"
    return found("uneven_groups", len(size), len(size), "groups", detail=detail)


def conflicting_rows(facts: Facts) -> Finding | None:
    """Rows that say different things under one (group, rollout, step)."""
    pairs = facts.conflicts
    where = [
        f"{facts.place(kept)} and {facts.place(lost)}"
        for kept, lost in pairs.head(PLACES).iter_rows()
    ]
    refused = "other commands refuse this log"
    detail = refused if facts.settings.log.on_duplicate == "error" else ""
    rows = facts.rows + int(facts.rollouts["n:copy"].sum()) + pairs.height
    return found("conflicting_rows", pairs.height, rows, "rows", where, detail)


def duplicate_rows(facts: Facts) -> Finding | None:
    """Rows that repeat an earlier one."""
    copies = int(facts.rollouts["n:copy"].sum())
    rows = facts.rows + copies + facts.conflicts.height
    return found("duplicate_rows", copies, rows, "rows", _row_places(facts, "copy"))


def _row_places(facts: Facts, oddity: str) -> list[str]:
    hit = facts.rollouts.filter(pl.col(f"n:{oddity}") > 0)
    return facts.places(hit[f"at:{oddity}"])


def negative_steps(facts: Facts) -> Finding | None:
    """Steps below 0."""
    rows = int(facts.rollouts["n:negative"].sum())
    return found("negative_steps", rows, facts.rows, "rows", _row_places(facts, "negative"))


def first_steps(facts: Facts) -> Finding | None:
    """Rollouts that start late, or all at one step that is not 0."""
    first, total = facts.rollouts["first_step"], facts.rollouts.height
    lowest = int(first.min())  # type: ignore[arg-type]
    late = facts.rollouts.filter(pl.col("first_step") > max(lowest, 0))
    if late.height:
        where = facts.rollout_places(
            late.with_columns(told=pl.format("starts at step {}", "first_step")), "first", "told"
        )
        return found("missing_first_steps", late.height, total, "rollouts", where)
    shifted = total if lowest > 0 else 0
    return found("steps_offset", shifted, total, "rollouts", detail=f"step {lowest}")


def step_gaps(facts: Facts) -> Finding | None:
    """Rollouts whose steps are not consecutive."""
    hit = facts.rollouts.filter(pl.col("n:gap") > 0)
    detail = counted(int(hit["n:gap"].sum()), "gap")
    where = facts.rollout_places(hit, "at:gap")
    return found("step_gaps", hit.height, facts.rollouts.height, "rollouts", where, detail)


def rows_out_of_order(facts: Facts) -> Finding | None:
    """Rollouts whose rows come in another order than their steps."""
    hit = facts.rollouts.filter(pl.col("n:unsorted") > 0)
    where = facts.rollout_places(hit, "at:unsorted")
    return found("rows_out_of_order", hit.height, facts.rollouts.height, "rollouts", where)


def done_before_last(facts: Facts) -> Finding | None:
    """Rollouts that go on after their end."""
    hit = facts.rollouts.filter(pl.col("n:ended") > 0)
    where = facts.rollout_places(hit, "at:ended")
    return found("done_before_last", hit.height, facts.rollouts.height, "rollouts", where)


def shrinking_anchors(facts: Facts) -> Finding | None:
    """Cumulative text that gets shorter, where the file's order is all there is."""
    longer, shorter = (int(facts.rollouts[f"n:{name}"].sum()) for name in ("longer", "shorter"))
    if facts.settings.log.order_by != "file" or longer < 2 * shorter:
        return None
    hit = facts.rollouts.filter(pl.col("n:shorter") > 0)
    detail = f"{counted(longer, 'row')} longer than the one before, {shorter} shorter"
    where = facts.rollout_places(hit, "at:shorter")
    return found("shrinking_anchors", hit.height, facts.rollouts.height, "rollouts", where, detail)


IDENTITY_CHECKS = (
    group_key_too_fine,
    singleton_groups,
    missing_siblings,
    oversized_groups,
    uneven_groups,
    conflicting_rows,
    duplicate_rows,
    negative_steps,
    first_steps,
    step_gaps,
    rows_out_of_order,
    done_before_last,
    shrinking_anchors,
)
