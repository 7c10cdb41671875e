"""How sure V, Q and credit are: standard errors, intervals and sign reliability.

The rollouts of a group are independent, the steps of one rollout are not, so whole rollouts are
resampled and the closure is solved again for each resample. Two ways:

* jackknife: each of the G rollouts is left out once; se² = (G − 1)/G · Σ_j (x_(−j) − x)²
  (Efron and Stein, Annals of Statistics 9 (1981)).
* bootstrap: B times G rollouts are drawn with replacement; se² = G/(G − 1) · mean of (x* − x)²
  (Efron, Annals of Statistics 7 (1979)). All groups of one size share the draws, which depend on
  the seed and that size only, not on the order or the company in which groups come.

A resample says nothing about what it does not hold: an anchor or action that none of its rollouts
visited adds no deviation there, and does not count for the signs. So evidence that one rollout
alone gave has, as far as resampling can see, no spread of its own. What is missing is what one
rollout more would have shown, and that is added: a pseudo-rollout through the anchor that succeeds
with chance p = (R·V + ½)/(R + 1), R the rollouts that visited it, half of one taken from Jeffreys'
prior. It moves the mean of R rollouts by 1/(R + 1) of what it differs, so

    pseudo²(s) = p(1 − p)/(R + 1)²                                        for V(s)
    pseudo²(s,a) = β² Σ_x P(x|s,a) pseudo²(x)                             for Q(s,a)
    Σ_b (1{b = a} − μ(b|s))² pseudo²(s,b)                                 for the credit of a

where the boundaries, and depth 0, which looks no step ahead, use the rollouts of (s,a) and Q(s,a).
It fades as 1/R, the standard error as 1/√R. In a group whose rollouts all ended alike resampling
has no spread to see; V and Q there take the variance of the whole posterior, p(1 − p)/(R + 2),
instead of p(1 − p)/(R + 1)².

Intervals are x ± t·se, t the quantile of Student's distribution with G − 1 degrees of freedom, cut
to the values that can be had. The sign reliability of a credit is the share of the resamples, of
those that hold the action, whose credit has its sign.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.options import CreditOptions, UncertaintyOptions
from crbc_cli.process.closure import Values, solve_values
from crbc_cli.process.empirical import EmpiricalProcess, distinct
from crbc_cli.process.resample import resampled, rollouts_of

__all__ = ["Uncertainty", "resampling_plan", "uncertainty"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_BATCH_VISITS = 1 << 17


@dataclass(frozen=True)
class Uncertainty:
    """Columns of `crbc_cli.tables.UNCERTAINTY_COLUMNS`, float64 (n,) each, NaN is null."""

    state_value_se: Floats
    state_value_low: Floats
    state_value_high: Floats
    action_value_se: Floats
    action_value_low: Floats
    action_value_high: Floats
    credit_se: Floats
    credit_low: Floats
    credit_high: Floats
    sign_reliability: Floats


def uncertainty(
    process: EmpiricalProcess,
    values: Values,
    credit: CreditOptions,
    options: UncertaintyOptions,
    *,
    censored: bool,
) -> Uncertainty:
    """Standard errors, intervals and sign reliability of each visit's V, Q and credit.

    Args:
      process: merged groups.
      values: their V and Q.
      credit: depth and discount of these.
      options: how to resample, and the level.
      censored: cut rollouts lost their last transition.
    Returns:
      Uncertainty; NaN in groups of one rollout.
    Raises:
      ClosureError: as `solve_values`.
    """
    full = _numbers(process, values)
    by_state = _rollouts_per_group(process)[process.state_group].astype(np.float64)
    size = (by_state, by_state[process.pair_state], by_state[process.pair_state])
    spread, same_sign = _spread(process, full, size, credit, options, censored)
    pseudo = _pseudo_rollout(process, full, credit)
    quantile = _quantiles(int(by_state.max(initial=0)), options.level)
    columns: list[Floats] = []
    for i, visits in enumerate((process.state, process.pair, process.pair)):
        se = np.where(size[i] > 1, np.sqrt(spread[i] + pseudo[i]), np.nan)
        width = quantile[size[i].astype(np.int64)] * se
        low, high = full[i] - width, full[i] + width
        if process.reward is None:
            worst = -credit.discount if i == 2 else 0.0
            low, high = np.maximum(low, worst), np.minimum(high, credit.discount)
        columns += [se[visits], low[visits], high[visits]]
    columns.append(same_sign[process.pair])
    return Uncertainty(*columns)


_Three = tuple[Floats, Floats, Floats]
"""A number per state (V), per pair (Q) and per pair (credit)."""


def _numbers(process: EmpiricalProcess, values: Values) -> _Three:
    return values.state, values.pair, values.credit(process)


def _rollouts_per_group(process: EmpiricalProcess) -> Ints:
    first, _ = rollouts_of(process)
    return np.bincount(process.visit_group[first], minlength=process.groups)


def _spread(
    process: EmpiricalProcess,
    full: _Three,
    size: _Three,
    credit: CreditOptions,
    options: UncertaintyOptions,
    censored: bool,
) -> tuple[_Three, Floats]:
    """Variance over the resamples, and the share of them whose credit has the sign of `full`'s,
    NaN where that is 0."""
    squares = [np.zeros(len(x)) for x in full]
    held, same = np.zeros(process.pairs), np.zeros(process.pairs)
    held_state = np.zeros(process.states)
    for block, drawn in _plans(process, options):
        sample = resampled(process, block, drawn, censored=censored)
        values = solve_values(sample.process, credit.discount, credit.depth)
        found = _numbers(sample.process, values)
        # Added one by one: sums of sums would depend on where batches end.
        for i, ids in enumerate((sample.state, sample.pair, sample.pair)):
            np.add.at(squares[i], ids, (found[i] - full[i][ids]) ** 2)
        np.add.at(held_state, sample.state, 1.0)
        np.add.at(held, sample.pair, 1.0)
        np.add.at(same, sample.pair[found[2] * full[2][sample.pair] > 0], 1.0)
    number = [np.maximum(h, 1) for h in (held_state, held, held)]
    if options.resampling == "jackknife":
        variance = [(n - 1) / n * x for n, x in zip(size, squares, strict=True)]
    else:
        mean = [x / h for x, h in zip(squares, number, strict=True)]
        variance = [n / np.maximum(n - 1, 1) * x for n, x in zip(size, mean, strict=True)]
    share = np.where((full[2] != 0) & (held > 0), same / number[2], np.nan)
    return (variance[0], variance[1], variance[2]), share


def _plans(process: EmpiricalProcess, options: UncertaintyOptions) -> Iterator[tuple[Ints, Ints]]:
    """Batches of resamples: (block, rollout drawn), sorted by both, int64 (d,) each."""
    size = _rollouts_per_group(process)
    first = np.cumsum(size) - size
    plans = {g: resampling_plan(g, options) for g in np.unique(size[size > 1]).tolist()}
    most = max((len(plan) for plan in plans.values()), default=0)
    each = max(1, _BATCH_VISITS // max(1, len(process.state)))
    for start in range(0, most, each):
        blocks, rollouts = [], []
        for g, plan in plans.items():
            if len(rows := plan[start : start + each]):
                drawn = first[size == g][None, :, None] + rows[:, None, :]
                blocks.append(np.repeat(np.arange(len(rows)), drawn[0].size))
                rollouts.append(drawn.ravel())
        block, drawn = np.concatenate(blocks), np.concatenate(rollouts)
        order = np.argsort(block * int(size.sum()) + drawn, kind="stable")
        yield block[order], drawn[order]


def resampling_plan(rollouts: int, options: UncertaintyOptions) -> Ints:
    """Which of a group's rollouts each resample holds, int64 (resamples, k), rows sorted."""
    if options.resampling == "jackknife":
        everyone = np.arange(rollouts)
        return np.stack([everyone[everyone != left_out] for left_out in range(rollouts)])
    draws = np.random.Generator(np.random.Philox(key=[options.seed, rollouts]))
    return np.sort(draws.integers(rollouts, size=(options.resamples, rollouts)), axis=1)


def _pseudo_rollout(process: EmpiricalProcess, full: _Three, credit: CreditOptions) -> _Three:
    """Variance of what one rollout more would change; see the module docstring."""
    lowest, span, constant = _outcomes(process, credit)
    at_state, at_pair = _visitors(process)
    of_group = (process.state_group, process.state_group[process.pair_state])

    def chance(value: Floats, visitors: Ints, group: Ints) -> Floats:
        """p(1 - p), on the scale of the outcomes."""
        share = np.clip((value - lowest[group]) / np.where(span > 0, span, 1)[group], 0.0, 1.0)
        p = (visitors * share + 0.5) / (visitors + 1)
        return p * (1 - p) * span[group] ** 2

    def one_step_on(state: Floats, pair: Floats) -> Floats:
        if credit.depth == 0:
            return pair
        following = np.append(state, [0.0, 0.0])[process.successor]
        ahead = np.where(process.successor < 0, pair[process.pair], following)
        return credit.discount**2 * process.pair_mean(ahead)

    spread = [chance(*x) for x in zip(full, (at_state, at_pair), of_group, strict=False)]
    moved = [v / (n + 1) ** 2 for v, n in zip(spread, (at_state, at_pair), strict=True)]
    whole = [
        np.where(constant[group], v / (n + 2), m)
        for v, n, m, group in zip(spread, (at_state, at_pair), moved, of_group, strict=True)
    ]
    share = process.pair_visits / process.state_visits[process.pair_state]
    of_pair = one_step_on(*moved)
    squares = np.bincount(process.pair_state, share**2 * of_pair, process.states)
    of_credit = np.maximum((1 - 2 * share) * of_pair + squares[process.pair_state], 0.0)
    lone = process.state_actions[process.pair_state] == 1
    return whole[0], one_step_on(*whole), np.where(lone, 0.0, of_credit)


def _outcomes(process: EmpiricalProcess, credit: CreditOptions) -> tuple[Floats, Floats, Bools]:
    """Of each group: the worst outcome and what the best is above it, and whether all are equal.

    Worst and best are 0 and 1, widened to the returns where rewards enter.
    """
    first, _ = rollouts_of(process)
    group, worth = process.visit_group[first], process.rollout_boundary[process.rollout[first]]
    lowest, highest = np.zeros(process.groups), np.ones(process.groups)
    if process.reward is not None:
        worth = process.suffix_returns(credit.discount)[first]
        np.minimum.at(lowest, group, worth)
        np.maximum.at(highest, group, worth)
    least, most = np.full(process.groups, np.inf), np.full(process.groups, -np.inf)
    np.minimum.at(least, group, worth)
    np.maximum.at(most, group, worth)
    return lowest, highest - lowest, least == most


def _quantiles(most: int, level: float) -> Floats:
    """Student's t that a two-sided interval takes with 0, 1, … `most` rollouts, NaN below 2."""
    from scipy.special import stdtrit

    known = stdtrit(np.arange(1, most), 0.5 + level / 2)
    return np.concatenate([[np.nan, np.nan], known])


def _visitors(process: EmpiricalProcess) -> tuple[Ints, Ints]:
    """Distinct rollouts that visit each state and each pair."""
    width = len(process.rollout_success)
    codes = distinct(process.pair * width + process.rollout)
    pair, rollout = codes // width, codes % width
    at_state = distinct(process.pair_state[pair] * width + rollout) // width
    return (
        np.bincount(at_state, minlength=process.states),
        np.bincount(pair, minlength=process.pairs),
    )
