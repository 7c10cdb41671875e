"""Checks on how rollouts end, what they are worth, and whether rewards add up."""

import polars as pl

from crbc_cli.engine.checks.codes import Finding, found
from crbc_cli.engine.checks.facts import Facts

__all__ = ["ENDING_CHECKS", "rewards_are_repeated"]

_TOLERANCE = 1e-4
_LIMIT_SHARE = 0.5
_LIMIT_ROWS = 3


def _rollouts(
    facts: Facts, code: str, chosen: pl.DataFrame, detail: str = "", at: str = "last"
) -> Finding | None:
    where = facts.rollout_places(chosen, at)
    return found(code, chosen.height, facts.rollouts.height, "rollouts", where, detail)


_FATES = {
    "fail": "count as failures",
    "censor": "lose their last step",
    "exclude": "are left out",
    "bootstrap": "go on at their next observation, where they log one",
}


def _fate(facts: Facts) -> str:
    rule = facts.settings.outcome.truncated
    return f"{_FATES[rule]} (--truncated {rule})"


def unterminated(facts: Facts) -> Finding | None:
    """Last rows that are neither done nor truncated."""
    hit = facts.rollouts.filter("unterminated")
    won = int(hit["success"].sum())
    detail = f"{won} count as successes, {hit.height - won} {_fate(facts)}"
    return _rollouts(facts, "unterminated", hit, detail)


def truncated(facts: Facts) -> Finding | None:
    """Rollouts that a limit cut."""
    hit = facts.rollouts.filter(pl.col("ending") == "truncated")
    return _rollouts(facts, "truncated", hit, f"they {_fate(facts)}")


def step_limit(facts: Facts) -> Finding | None:
    """A limit that the log does not own up to: most failures have exactly the longest length."""
    rollouts = facts.rollouts
    if rollouts["truncated"].any() or rollouts["unterminated"].any():
        return None
    failures = rollouts.filter(pl.col("ending") == "failure")
    longest = int(rollouts["rows"].max())  # type: ignore[arg-type]
    hit = failures.filter(pl.col("rows") == longest)
    few = hit.height < 2 or hit.height < _LIMIT_SHARE * failures.height
    if few or longest < _LIMIT_ROWS or rollouts["rows"].n_unique() == 1:
        return None
    detail = f"{hit.height} of {failures.height} failures have {longest} rows"
    return _rollouts(facts, "step_limit", hit, detail)


def no_ending_columns(facts: Facts) -> Finding | None:
    """Files without any end flag."""
    hit = [file.source.name for file in facts.files if not file.says_end]
    return found("no_ending_columns", len(hit), len(facts.files), "files", hit)


def unscored(facts: Facts) -> Finding | None:
    """Rollouts without an outcome."""
    hit = facts.rollouts.filter(~pl.col("scored"))
    return _rollouts(facts, "unscored", hit, "left out (--unscored exclude)")


def success_lost(facts: Facts) -> Finding | None:
    """Success on an earlier row that the last row takes back."""
    hit = facts.rollouts.filter((pl.col("n:early_success") > 0) & ~pl.col("success"))
    return _rollouts(facts, "success_lost", hit, at="at:early_success")


def success_without_reward(facts: Facts) -> Finding | None:
    """Successes all of whose rewards are 0 or less."""
    hit = facts.rollouts.filter(
        pl.col("success") & (pl.col("rewards") > 0) & (pl.col("reward_max") <= 0)
    )
    return _rollouts(facts, "success_without_reward", hit)


def constant_groups(facts: Facts) -> Finding | None:
    """Groups of several rollouts whose outcome or reward does not vary."""
    groups = facts.groups
    kinds = ("all_success", "all_fail", "constant")
    hit = groups.filter(pl.col("status").is_in(kinds))
    counts = dict(hit["status"].cast(pl.String).value_counts().iter_rows())
    detail = ", ".join(f"{counts[kind]} {kind}" for kind in kinds if kind in counts)
    where = facts.group_places(hit, "status")
    return found("constant_groups", hit.height, groups.height, "groups", where, detail)


def rewards_are_repeated(facts: Facts) -> bool:
    """Every rollout has one reward on all its rows, and not the same one in every rollout.

    A constant step cost (-0.1 on each row) is a step reward, and one row alone repeats nothing.
    """
    several = facts.rollouts.filter((pl.col("rows") > 1) & (pl.col("rewards") > 1))
    constant = (several["reward_min"] == several["reward_max"]).all()
    return bool(several.height and constant) and several["reward_max"].n_unique() > 1


def repeated_reward(facts: Facts) -> Finding | None:
    """A reward column that holds the episode's reward on each row."""
    several = facts.rollouts.filter((pl.col("rows") > 1) & (pl.col("rewards") > 1))
    hit = several if rewards_are_repeated(facts) else several.clear()
    return _rollouts(facts, "repeated_reward", hit, at="first")


def reward_mismatch(facts: Facts) -> Finding | None:
    """Step rewards against the logged episode reward, to 1e-4 of its size."""
    logged = facts.rollouts.filter(pl.col("episode_reward").is_not_null())
    total = pl.col("reward_last" if rewards_are_repeated(facts) else "reward_sum")
    episode = pl.col("episode_reward")
    room = _TOLERANCE * pl.max_horizontal(episode.abs(), pl.lit(1.0))
    hit = logged.filter((pl.col("rewards") > 0) & ((total - episode).abs() > room))
    told = pl.format("{} against {}", total.round_sig_figs(6), episode.round_sig_figs(6))
    where = facts.rollout_places(hit.with_columns(told=told), "last", "told")
    detail = f"{logged.height - hit.height} of {logged.height} agree"
    return found("reward_mismatch", hit.height, logged.height, "rollouts", where, detail)


def missing_rewards(facts: Facts) -> Finding | None:
    """Rows of scored rollouts without a reward, where others have one."""
    if not facts.rollouts["rewards"].sum():
        return None
    hit = facts.rollouts.filter(pl.col("n:no_reward") > 0)
    rows = int(hit["n:no_reward"].sum())
    return found("missing_rewards", rows, facts.rows, "rows", facts.places(hit["at:no_reward"]))


ENDING_CHECKS = (
    unterminated,
    truncated,
    step_limit,
    no_ending_columns,
    unscored,
    success_lost,
    success_without_reward,
    constant_groups,
    reward_mismatch,
    repeated_reward,
    missing_rewards,
)
