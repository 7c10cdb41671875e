"""How rollouts ended, what they are worth, and which of them count."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from crbc_cli.errors import OptionError, OutcomeError
from crbc_cli.options import GroupAdvantageOptions, OutcomeOptions
from crbc_cli.rollouts.identity import Place, Rollouts
from crbc_cli.rollouts.tally import Tally
from crbc_cli.tables import GROUP_STATUSES

__all__ = ["Outcomes", "group_status", "read_outcomes"]

_STATUS_CODE = {name: code for code, name in enumerate(GROUP_STATUSES)}


@dataclass(frozen=True)
class Outcomes:
    """Per-rollout and per-group facts, in the canonical order of `Rollouts`.

    Attributes:
      success: bool (r,), false where unscored.
      scored: bool (r,), has an outcome.
      cut: bool (r,), did not succeed and was truncated or never done.
      takes_part: bool (r,), its visits enter the process.
      counts: bool (r,), it enters the group advantage.
      boundary: float64 (r,), value of the boundary it ends in.
      reward: float64 (r,), raw reward for the group advantage (no penalty yet), 0 where it does
        not count.
      group_status: int64 (groups,), index into GROUP_STATUSES.
    """

    success: NDArray[np.bool_]
    scored: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    takes_part: NDArray[np.bool_]
    counts: NDArray[np.bool_]
    boundary: NDArray[np.float64]
    reward: NDArray[np.float64]
    group_status: NDArray[np.int64]


def read_outcomes(
    frame: pl.DataFrame,
    rollouts: Rollouts,
    options: OutcomeOptions,
    advantage: GroupAdvantageOptions,
    place: Place,
    tally: Tally,
) -> Outcomes:
    """Outcome, ending and reward of each rollout, from its last row; `tally` counts the unscored.

    Raises:
      OutcomeError: no outcome column and no rule, a boundary value outside [0, 1], or a rule that
        ends rollouts the log cannot tell apart.
      OptionError: --success-when cannot be parsed or is not a condition.
    """
    last = frame[rollouts.last]
    outcome = _outcome(last, options)
    reward, rewarded = _reward(frame, last, rollouts, advantage)
    scored = outcome.is_not_null().to_numpy() & rewarded
    if options.boundary != "outcome":
        scored &= last.get_column(f"number:{options.boundary}").is_not_null().to_numpy()
    success = outcome.fill_null(False).to_numpy() & scored
    unscored = np.flatnonzero(~scored)
    if len(unscored):
        tally.unscore(len(unscored), place(int(rollouts.last[unscored[0]])))
        if options.unscored == "fail":
            scored = np.ones_like(scored)
    cut = ~success & scored & _cut(last, options)
    takes_part = scored & ~(cut & (options.truncated == "exclude"))
    counts = takes_part & ~(cut & (options.truncated == "censor"))
    boundary = _boundary(last, success, options, rollouts, place)
    boundary[cut] = 0.0
    boundary[unscored] = 0.0
    if advantage.reward == "outcome":
        reward = success.astype(np.float64) * advantage.success_reward
    reward = np.where(counts, reward, 0.0)
    worths = [reward] if options.boundary == "outcome" else [reward, boundary]
    status = group_status(rollouts, counts, success, worths, options.expected_group_size)
    return Outcomes(success, scored, cut, takes_part, counts, boundary, reward, status)


def _outcome(last: pl.DataFrame, options: OutcomeOptions) -> pl.Series:
    """Boolean, null where unscored, shape (r,)."""
    if not options.success_when:
        if "success" not in last.columns:
            raise OutcomeError(
                "the log has no success column",
                todo='give the rule, for example --success-when "reward >= 1"',
            )
        return last.get_column("success")
    # polars orders NaN above every number, so that NaN >= 1 would be a success.
    finite = last.select(
        pl.col(c).alias(c.removeprefix("rule:")) for c in last.columns if c.startswith("rule:")
    ).with_columns(pl.when(cs.float().is_finite()).then(cs.float()))
    flag = f"--success-when {options.success_when!r}"
    try:
        rule = pl.sql_expr(options.success_when).alias(":outcome")
        outcome = finite.with_columns(rule).get_column(":outcome")
    except (pl.exceptions.PolarsError, pl.exceptions.SQLInterfaceError) as error:
        raise OptionError(
            f"{flag} cannot be evaluated ({str(error).strip().splitlines()[0]})",
            todo='for example --success-when "reward >= 1"',
        ) from error
    if outcome.dtype not in (pl.Boolean, pl.Null):
        raise OptionError(
            f"{flag} gives {outcome.dtype}, not true or false",
            todo='compare something, for example "reward >= 1"',
        )
    return outcome.cast(pl.Boolean)


def _cut(last: pl.DataFrame, options: OutcomeOptions) -> NDArray[np.bool_]:
    columns = [c for c in ("done", "truncated") if c in last.columns]
    if not columns:
        if options.truncated != "fail":
            raise OutcomeError(
                f"--truncated {options.truncated} needs a done or truncated column",
                todo="map one with --map truncated=COLUMN",
            )
        return np.zeros(last.height, bool)
    cut = np.zeros(last.height, bool)
    if "truncated" in columns:
        cut |= last.get_column("truncated").fill_null(False).to_numpy()
    if "done" in columns:
        cut |= ~last.get_column("done").fill_null(False).to_numpy()
    return cut


def _boundary(
    last: pl.DataFrame,
    success: NDArray[np.bool_],
    options: OutcomeOptions,
    rollouts: Rollouts,
    place: Place,
) -> NDArray[np.float64]:
    """Value of each rollout's end if it was not cut, float64 (r,)."""
    if options.boundary == "outcome":
        return success.astype(np.float64)
    values = last.get_column(f"number:{options.boundary}")
    odd = (~values.is_between(0, 1)).fill_null(False).to_numpy()
    if odd.any():
        first = int(np.flatnonzero(odd)[0])
        raise OutcomeError(
            f"--boundary {options.boundary} is {values[first]}, outside [0, 1]",
            place(int(rollouts.last[first])),
            "rescale the column",
        )
    return values.fill_null(0.0).to_numpy().copy()


def _reward(
    frame: pl.DataFrame, last: pl.DataFrame, rollouts: Rollouts, options: GroupAdvantageOptions
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(reward of each rollout, whether it has one).

    Null rewards inside a sum are passed over; a sum of nothing but nulls is no reward, not 0.
    """
    rule = options.reward
    if rule == "outcome":
        return np.zeros(last.height), np.ones(last.height, bool)
    if rule == "sum":
        rewards = frame.get_column("reward")[rollouts.row]
        known = rewards.is_not_null().to_numpy()
        values = rewards.fill_null(0.0).to_numpy()
        total = np.bincount(rollouts.rollout, values, last.height).astype(np.float64)
        return total, np.bincount(rollouts.rollout, known, last.height) > 0
    column = last.get_column("reward" if rule == "last" else f"number:{rule}")
    return column.fill_null(0.0).to_numpy(), column.is_not_null().to_numpy()


def group_status(
    rollouts: Rollouts,
    counts: NDArray[np.bool_],
    success: NDArray[np.bool_],
    worths: list[NDArray[np.float64]],
    expected: int,
) -> NDArray[np.int64]:
    """Index into GROUP_STATUSES of the first that holds, shape (groups,).

    A group is constant where one of `worths` (reward, graded boundary) is equal for all.
    """
    group, groups = rollouts.group[counts], rollouts.groups
    number = np.bincount(group, minlength=groups)
    successes = np.bincount(group, success[counts], groups)
    constant = np.zeros(groups, bool)
    for worth in worths:
        high, low = np.full(groups, -np.inf), np.full(groups, np.inf)
        np.maximum.at(high, group, worth[counts])
        np.minimum.at(low, group, worth[counts])
        constant |= high == low
    conditions = {
        "unscored": number == 0,
        "singleton": number == 1,
        "incomplete": number < expected,
        "all_success": successes == number,
        "all_fail": successes == 0,
        "constant": constant,
        "ok": np.ones(groups, bool),
    }
    return np.select(list(conditions.values()), [_STATUS_CODE[name] for name in conditions])
