"""A slow, obvious second implementation of CRBC credit, for the tests only.

Written from the paper's equations (arXiv 2609.35082), with dicts, lists and a dense solve. It never
imports the package: a test compares the two. One function per published quantity, one visit = one
observed edge (s, a, x), and every mean is a literal mean over visits:

    G      suffix return of a visit along its own rollout                      (eq. 4)
    V⁰, Q⁰ mean of G over the visits of s, of (s, a)                           (eq. 6)
    BV     mean over the visits of (s, a) of  r + β·V(x)                       (eq. 7)
    TV     mean over the visits of s      of  r + β·V(x)    = βMV + b          (eqs. 8-9)
    V^(K) = T^K V⁰,  Q^(K) = B V^(K-1),  A^(K) = Q^(K) − V^(K)                  (eq. 10)
    A_S    1{gate} · A / max(σ, σ_min),  σ² = mean over the visits of s of A²  (eqs. 13-14)
    A      w_G·A_G + w_S·A_S                                                   (Algorithm 1)

r is 0 unless intermediate rewards are asked for; V of a boundary is fixed (1 and 0, or the graded
value). Small groups are computed in fractions.Fraction, hence without any rounding.

Public: credit_rows, coverage_counts, coverage_table, group_matrices, canonical.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

Row = Mapping[str, Any]
Key = Hashable  # the canonical value of an observation or an action
Pair = tuple[Key, Key]  # (anchor, action)
Number = Any  # Fraction in the exact mode, float otherwise; one type within a group
Depth = int | float  # closure depth K: an int, or math.inf for the fixed point

SUCCESS, FAILURE = "z+", "z-"  # canonical values are tuples, so these never collide with an anchor
EXACT_STATES, EXACT_DEPTH = 24, 40  # beyond these, floats and numpy instead of fractions

NUMBERS = (
    "anchor", "visits", "actions", "state_value", "action_value", "credit", "step_credit",
    "group_advantage", "advantage", "reachable_rollouts",
)  # fmt: skip
CONTENT = (
    "observation", "action", "success", "reward", "done", "truncated", "next_observation",
    "is_action_valid", "score",
)  # fmt: skip


class OracleError(Exception):
    """The rows cannot be annotated under the given options (crbc would exit 2)."""


@dataclass(frozen=True)
class Options:
    """Every option that changes a number, with its documented default."""

    depth: Depth = math.inf
    discount: float = 0.98
    w_g: float = 1.0
    w_s: float = 5.0
    sigma_min: float = 0.1
    sigma: str = "depth"  # depth | closure
    gate: str = "actions"  # actions | successors | none
    truncated: str = "fail"  # fail | censor | exclude | bootstrap
    unscored: str = "exclude"  # exclude | error | fail
    on_duplicate: str = "error"  # error | first | last
    episode_stats: str = "rollout"  # rollout | rows
    ddof: int = 1
    eps: float = 1e-6
    scale: str = "std"  # std | none
    estimator: str = "grpo"  # grpo | rloo
    penalty: str = "none"  # none | trajectory | step | both
    penalty_size: float = 0.1  # in units in which success is success_reward
    penalty_unit: str = "row"  # row | sum
    success_reward: float = 1.0
    reward: str = "outcome"  # outcome | sum | last | a column
    singleton: str = "zero"  # zero | raw | drop
    expected_group_size: int | None = None
    boundary: str | None = None  # column with the graded value of the end, in [0, 1]
    intermediate_rewards: bool = False
    spanning_groups: bool = False
    spanning_rollouts: bool = False
    key: tuple[str, ...] = ()  # further columns of the group key
    success_when: Callable[[Row], bool | None] | None = None  # on the last row, instead of success
    exact: bool = True  # fractions where the group is small enough

    def __post_init__(self) -> None:
        for name, allowed in (
            ("sigma", "depth closure"),
            ("gate", "actions successors none"),
            ("truncated", "fail censor exclude bootstrap"),
            ("unscored", "exclude error fail"),
            ("on_duplicate", "error first last"),
            ("episode_stats", "rollout rows"),
            ("scale", "std none"),
            ("estimator", "grpo rloo"),
            ("penalty", "none trajectory step both"),
            ("penalty_unit", "row sum"),
            ("singleton", "zero raw drop"),
        ):
            if getattr(self, name) not in allowed.split():
                raise ValueError(f"{name}={getattr(self, name)!r}: not one of {allowed}")


# --------------------------------------------------------------------------------------------------
# Canonical values: what makes two observations, or two actions, the same
# --------------------------------------------------------------------------------------------------


def canonical(value: Any) -> Key:
    """A hashable value, equal exactly for equal content.

    Strings as they are (never parsed as JSON), 1 == 1.0 but True != 1, NaN == NaN; objects
    without regard to key order, a null member being a missing one; lists in order.
    """
    if value is None:
        return ("null",)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int | float):
        return ("number", "nan" if value != value else value)
    if isinstance(value, str):
        return ("str", value)
    if isinstance(value, bytes):
        return ("bytes", value)
    if isinstance(value, list | tuple):
        return ("list", tuple(canonical(item) for item in value))
    if isinstance(value, Mapping):
        members = {name: canonical(v) for name, v in value.items() if v is not None}
        return ("object", frozenset(members.items()))
    raise TypeError(f"no canonical form for {type(value).__name__}")


def is_null(value: Any) -> bool:
    """Null, NaN and infinities all mean "not given" where a number or a flag is expected."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def is_true(flag: Any) -> bool:
    """A flag that is given and true; null counts as false."""
    return not is_null(flag) and bool(flag)


def is_invalid(row: Row) -> bool:
    """The row's action was marked invalid; null counts as valid."""
    return not is_null(row.get("is_action_valid")) and not row["is_action_valid"]


# --------------------------------------------------------------------------------------------------
# From rows to groups, rollouts and visits
# --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Visit:
    """One observed edge (s, a, x): a row that has an anchor and takes part."""

    row: int  # position in the input
    rollout: int  # position in Group.rollouts
    state: Key
    action: Key
    invalid: bool
    reward: Number = 0  # r of the edge; 0 unless intermediate rewards are on
    successor: Key = FAILURE  # an anchor, SUCCESS or FAILURE
    end_value: Number = 0  # V(x) if x is a boundary
    suffix: Number = 0  # G, the realized discounted return from here on
    following: Visit | None = None  # the next visit of the same rollout

    @property
    def pair(self) -> Pair:
        return (self.state, self.action)

    @property
    def ends(self) -> bool:
        return self.successor in (SUCCESS, FAILURE)


@dataclass(eq=False)
class Rollout:
    """One episode: its rows by step, without duplicates, and what became of it."""

    rows: list[int]
    role: str  # counted | unscored | excluded | censored (cut under `censor`)
    outcome: int = 0
    cut: bool = False
    total: float = 0.0  # R_i, the reward of the trajectory term
    end_value: float = 0.0  # what reaching the end is worth: 0/1, or graded


@dataclass(eq=False)
class Group:
    """The rollouts that are merged, in canonical order, and the visits that take part."""

    key: tuple[Any, ...]
    rows: list[int] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)  # duplicate row -> its first occurrence
    rollouts: list[Rollout] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)  # by (rollout, step)
    beta: Number = 0
    exact: bool = False

    @property
    def counted(self) -> list[Rollout]:
        return [rollout for rollout in self.rollouts if rollout.role == "counted"]


def read_groups(rows: Sequence[Row], opt: Options) -> list[Group]:
    """Groups by first appearance, each with rollouts, endings and participating visits."""
    columns = {name for row in rows for name in row}
    if opt.truncated != "fail" and not columns & {"done", "truncated"}:
        raise OracleError(f"truncated={opt.truncated} needs a column done or truncated")
    files: dict[Any, int] = {}
    groups: dict[tuple[Any, ...], Group] = {}
    for index, row in enumerate(rows):
        file = row.get("source_file")
        files.setdefault(file, len(files))
        further = (canonical(row.get(name)) for name in opt.key)
        key = (None if opt.spanning_groups else file, row["group_id"], *further)
        groups.setdefault(key, Group(key)).rows.append(index)

    for group in groups.values():
        rollouts: dict[tuple[int, Any], list[int]] = defaultdict(list)
        for index in group.rows:
            file = 0 if opt.spanning_rollouts else files[rows[index].get("source_file")]
            rollouts[file, rows[index]["rollout_id"]].append(index)
        for identity in sorted(rollouts, key=rollout_order):
            kept = without_duplicates(rows, rollouts[identity], group, opt)
            group.rollouts.append(read_rollout(rows, kept, columns, opt))
        make_visits(rows, group, opt)
    return list(groups.values())


def rollout_order(identity: tuple[int, Any]) -> tuple[Any, ...]:
    """By file, then by id: integers by value, strings by their UTF-8 bytes."""
    file, name = identity
    return (file, 1, name.encode()) if isinstance(name, str) else (file, 0, name)


def without_duplicates(
    rows: Sequence[Row], indices: Iterable[int], group: Group, opt: Options
) -> list[int]:
    """The rows of one rollout by step, one per step; fills group.copies with identical copies.

    The first (or last) row of a step in file order wins; rows equal to it are copies of the
    earliest of them; rows that differ from it lose, and appear neither here nor in copies.
    """
    names = [*CONTENT, *opt.key, *(name for name in (opt.reward, opt.boundary) if name)]
    by_step: dict[int, list[int]] = defaultdict(list)
    for index in indices:
        by_step[rows[index]["step"]].append(index)
    kept = []
    for _, same_step in sorted(by_step.items()):
        content = {i: tuple(canonical(rows[i].get(name)) for name in names) for i in same_step}
        if len(set(content.values())) > 1 and opt.on_duplicate == "error":
            raise OracleError(f"rows {same_step} differ but share group, rollout and step")
        winner = content[same_step[-1 if opt.on_duplicate == "last" else 0]]
        first, *copies = [i for i in same_step if content[i] == winner]
        group.copies.update(dict.fromkeys(copies, first))
        kept.append(first)
    return kept


def read_rollout(rows: Sequence[Row], kept: list[int], columns: set[str], opt: Options) -> Rollout:
    """Outcome (on the last row), reward R_i, ending, and hence the rollout's role."""
    last = rows[kept[-1]]
    success: Any  # of the rollout: true, false or null
    total: Any  # its R_i, or null
    if opt.success_when is not None:
        success = opt.success_when(last)
    elif "success" in columns:
        success = last.get("success")
    else:
        raise OracleError("no column success and no success_when: an outcome is never guessed")
    if not is_null(success) and success not in (0, 1):
        raise OracleError(f"success must be true or false, not {success!r}")

    graded: Any = success if opt.boundary is None else last.get(opt.boundary)
    if not is_null(graded) and not 0 <= graded <= 1:
        raise OracleError(f"{opt.boundary} must lie in [0, 1], not {graded!r}")
    if opt.reward == "outcome":
        total = None if is_null(success) else opt.success_reward * int(success)
    elif opt.reward == "sum":
        logged: list[Any] = [rows[i].get("reward") for i in kept]
        rewards = [float(reward) for reward in logged if not is_null(reward)]
        total = math.fsum(rewards) if rewards else None  # nothing but nulls is no reward, not 0
    else:
        total = last.get("reward" if opt.reward == "last" else opt.reward)

    if is_null(success) or is_null(graded) or is_null(total):
        if opt.unscored == "error":
            raise OracleError(f"row {kept[-1]}: the rollout has no outcome")
        if opt.unscored == "exclude":
            return Rollout(kept, "unscored")
        success, graded = 0, 0
        total = 0 if opt.reward == "outcome" or is_null(total) else total

    unfinished = "done" in columns and not is_true(last.get("done"))
    cut = not success and (is_true(last.get("truncated")) or unfinished)
    role = {"censor": "censored", "exclude": "excluded"}.get(opt.truncated) if cut else None
    return Rollout(
        rows=kept,
        role=role or "counted",
        outcome=int(success),
        cut=cut,
        total=float(total),
        end_value=0.0 if cut else float(graded),
    )


def make_visits(rows: Sequence[Row], group: Group, opt: Options) -> None:
    """Link each rollout's visits into a chain that leads to a boundary (eq. 1), apply the rule for
    cut rollouts, and set the suffix returns (eq. 4)."""
    chains: list[list[Visit]] = []
    for number, rollout in enumerate(group.rollouts):
        chain: list[Visit] = []
        for index in rollout.rows if rollout.role in ("counted", "censored") else []:
            observation = rows[index].get("observation")
            if observation is None:
                continue  # no anchor: the chain skips the row
            action = canonical(rows[index].get("action"))
            visit = Visit(index, number, canonical(observation), action, is_invalid(rows[index]))
            if opt.intermediate_rewards and index != rollout.rows[-1]:
                reward = rows[index].get("reward")
                visit.reward = 0 if is_null(reward) else reward
            chain.append(visit)
        for visit, following in itertools.pairwise(chain):
            visit.successor, visit.following = following.state, following
        if chain:
            chain[-1].successor = SUCCESS if rollout.outcome else FAILURE
            chain[-1].end_value = rollout.end_value
        chains.append(chain)
    group.visits = [visit for chain in chains for visit in chain]

    states = {visit.state for visit in group.visits}
    depth_is_small = math.isinf(opt.depth) or opt.depth <= EXACT_DEPTH
    group.exact = opt.exact and len(states) <= EXACT_STATES and depth_is_small
    number_type: Callable[[Any], Number] = Fraction if group.exact else float
    group.beta = Fraction(str(opt.discount)) if group.exact else float(opt.discount)
    for visit in group.visits:
        visit.reward = number_type(visit.reward)
        visit.end_value = number_type(visit.end_value)
    for chain in chains:
        for visit in reversed(chain):  # G_t = r_t + β·G_{t+1}, and β·(value of the end) at the end
            ahead = visit.following.suffix if visit.following else visit.end_value
            visit.suffix = visit.reward + group.beta * ahead

    for rollout, chain in zip(group.rollouts, chains, strict=True):
        if not (rollout.cut and chain):
            continue
        if opt.truncated == "bootstrap":
            seen = rows[rollout.rows[-1]].get("next_observation")
            if seen is not None and canonical(seen) in states:
                chain[-1].successor = canonical(seen)
        if opt.truncated == "censor":
            group.visits.remove(chain[-1])
    if opt.truncated == "censor":
        group.visits = without_dead_ends(group.visits)


def without_dead_ends(visits: list[Visit]) -> list[Visit]:
    """Drop edges into states that have no outgoing edge left, again and again."""
    while True:
        alive = {visit.state for visit in visits}
        kept = [visit for visit in visits if visit.ends or visit.successor in alive]
        if len(kept) == len(visits):
            return kept
        visits = kept


# --------------------------------------------------------------------------------------------------
# Values: depth 0, backups, closure
# --------------------------------------------------------------------------------------------------


def means(items: Iterable[tuple[Key, Number]]) -> dict[Any, Number]:
    """Mean of the values that share a key."""
    values: dict[Key, list[Number]] = defaultdict(list)
    for key, value in items:
        values[key].append(value)
    return {key: sum(some) / len(some) for key, some in values.items()}


def target(visit: Visit, values: Mapping[Key, Number], beta: Number) -> Number:
    """r + β·V(x), with the fixed value of x where x is a boundary."""
    ahead = visit.end_value if visit.ends else values[visit.successor]
    return visit.reward + beta * ahead


def action_backup(group: Group, values: Mapping[Key, Number]) -> dict[Pair, Number]:
    """(BV)(s,a) = mean over the visits of (s,a) of r + β·V(x)  (eq. 7)."""
    return means((visit.pair, target(visit, values, group.beta)) for visit in group.visits)


def state_backup(group: Group, values: Mapping[Key, Number]) -> dict[Key, Number]:
    """(TV)(s) = mean over the visits of s of r + β·V(x) = Σ_a μ(a|s)·(BV)(s,a)  (eq. 8)."""
    return means((visit.state, target(visit, values, group.beta)) for visit in group.visits)


def local_state_values(group: Group) -> dict[Key, Number]:
    """V⁰(s) = mean of G over the visits of s  (eq. 6)."""
    return means((visit.state, visit.suffix) for visit in group.visits)


def local_action_values(group: Group) -> dict[Pair, Number]:
    """Q⁰(s,a) = mean of G over the visits of (s,a)  (eq. 6)."""
    return means((visit.pair, visit.suffix) for visit in group.visits)


def fixed_point(group: Group) -> dict[Key, Number]:
    """V = TV, one dense solve of (I − βM)V = b  (eq. 9).

    At β = 1 the states from which no boundary can be reached have value 0, the minimal
    non-negative solution and the limit β → 1; the system of the others is non-singular.
    """
    trapped = set() if group.beta < 1 else states_without_exit(group.visits)
    if any(visit.reward != 0 for visit in group.visits if visit.state in trapped):
        raise OracleError("discount 1: rewards in a closed class without exit have no finite sum")
    counts = Counter(visit.state for visit in group.visits)
    states = [state for state in counts if state not in trapped]
    place = {state: i for i, state in enumerate(states)}
    zero = group.beta * 0
    matrix = [[zero + (i == j) for j in range(len(states))] for i in range(len(states))]
    vector = [zero for _ in states]
    for visit in group.visits:
        if visit.state in trapped:
            continue
        row, share = place[visit.state], (zero + 1) / counts[visit.state]
        vector[row] += share * (visit.reward + group.beta * visit.end_value * visit.ends)
        if not visit.ends and visit.successor not in trapped:
            matrix[row][place[visit.successor]] -= share * group.beta
    solve = eliminate if group.exact else np.linalg.solve
    solution = solve(matrix, vector) if states else []
    return dict.fromkeys(trapped, zero) | dict(zip(states, solution, strict=True))


def states_without_exit(visits: list[Visit]) -> set[Key]:
    """The states from which no boundary can be reached."""
    states = {visit.state for visit in visits}
    leaving: set[Key] = set()
    while True:
        grown = {visit.state for visit in visits if visit.ends or visit.successor in leaving}
        if grown == leaving:
            return states - leaving
        leaving = grown


def eliminate(matrix: list[list[Number]], vector: list[Number]) -> list[Number]:
    """Solve matrix @ x = vector by Gauss-Jordan elimination, in exact arithmetic."""
    size = len(vector)
    table = [[*row, right] for row, right in zip(matrix, vector, strict=True)]
    for column in range(size):
        pivot = next(row for row in range(column, size) if table[row][column] != 0)
        table[column], table[pivot] = table[pivot], table[column]
        table[column] = [cell / table[column][column] for cell in table[column]]
        for row in range(size):
            factor = table[row][column]
            if row != column and factor != 0:
                lead = table[column]
                table[row] = [x - factor * y for x, y in zip(table[row], lead, strict=True)]
    return [row[-1] for row in table]


def values_at(group: Group, depth: Depth) -> tuple[dict[Key, Number], dict[Pair, Number]]:
    """V^(K) and Q^(K)  (eq. 10)."""
    if math.isinf(depth):
        values = fixed_point(group)
        return values, action_backup(group, values)
    values, action_values = local_state_values(group), local_action_values(group)
    for _ in range(int(depth)):
        values, action_values = state_backup(group, values), action_backup(group, values)
    return values, action_values


# --------------------------------------------------------------------------------------------------
# Step credit
# --------------------------------------------------------------------------------------------------


def centered(group: Group, depth: Depth) -> dict[Pair, float]:
    """A^(K)(s,a) = Q^(K)(s,a) − V^(K)(s); rounding noise, and a lone action, count as 0."""
    values, action_values = values_at(group, depth)
    lone = {state for state, number in distinct_actions(group).items() if number == 1}
    credit = {}
    for (state, action), q in action_values.items():
        v = values[state]
        noise = abs(q - v) <= Fraction(1, 10**13) * max(abs(q), abs(v))
        credit[state, action] = 0.0 if noise or state in lone else float(q - v)
    return credit


def distinct_actions(group: Group) -> Counter[Key]:
    """The number of distinct actions observed at each state."""
    return Counter(state for state, _ in {visit.pair for visit in group.visits})


def distinct_successors(group: Group) -> Counter[Key]:
    """The number of distinct successors observed after each state; boundaries count."""
    return Counter(state for state, _ in {(visit.state, visit.successor) for visit in group.visits})


def penalized(group: Group, credit: dict[Pair, float], opt: Options) -> dict[Pair, float]:
    """A minus p/(success reward) · (share of invalid visits of (s,a) − share of those of s)."""
    if opt.penalty not in ("step", "both"):
        return credit
    size = opt.penalty_size / opt.success_reward
    of_pair = means((visit.pair, float(visit.invalid)) for visit in group.visits)
    of_state = means((visit.state, float(visit.invalid)) for visit in group.visits)
    return {pair: a - size * (of_pair[pair] - of_state[pair[0]]) for pair, a in credit.items()}


def spread(group: Group, credit: Mapping[Pair, float]) -> dict[Key, float]:
    """σ(s) = sqrt(Σ_a μ(a|s)·A(s,a)²) = root mean square of A over the visits of s  (eq. 13)."""
    squares = means((visit.state, credit[visit.pair] ** 2) for visit in group.visits)
    return {state: math.sqrt(square) for state, square in squares.items()}


def step_credits(group: Group, opt: Options) -> dict[Pair, float]:
    """A_S(s,a) = 1{gate} · A(s,a) / max(σ(s), σ_min)  (eq. 14)."""
    credit = penalized(group, centered(group, opt.depth), opt)
    if opt.sigma == "closure":
        sigma = spread(group, penalized(group, centered(group, math.inf), opt))
    else:
        sigma = spread(group, credit)
    actions, successors = distinct_actions(group), distinct_successors(group)
    result = {}
    for (state, action), a in credit.items():
        gate_open = {
            "actions": actions[state] >= 2,
            "successors": successors[state] >= 2,
            "none": True,
        }[opt.gate]
        divisor = max(sigma[state], opt.sigma_min)
        result[state, action] = a / divisor if gate_open and a != 0 else 0.0
    return result


# --------------------------------------------------------------------------------------------------
# The trajectory term A_G and the group's status
# --------------------------------------------------------------------------------------------------


def row_scores(rows: Sequence[Row], rollout: Rollout, opt: Options) -> dict[int, float]:
    """Every row's score: R_i, less the penalty of this row (`row`) or of all rows (`sum`)."""
    size = opt.penalty_size if opt.penalty in ("trajectory", "both") else 0.0
    invalid = {index: is_invalid(rows[index]) for index in rollout.rows}
    if opt.penalty_unit == "sum":
        return dict.fromkeys(rollout.rows, rollout.total - size * sum(invalid.values()))
    return {index: rollout.total - size * bad for index, bad in invalid.items()}


def group_advantages(rows: Sequence[Row], group: Group, opt: Options) -> dict[int, float]:
    """A_G of the rows of the counted rollouts (eq. 3); groups of one are the caller's business.

    GRPO: (score − mean)/(std + eps), or score − mean. RLOO: n/(n−1)·(score − mean).
    The statistics take one value per rollout (its first row's score), or one per row.
    """
    scores = [row_scores(rows, rollout, opt) for rollout in group.counted]
    if opt.episode_stats == "rows":
        sample = [score for of_rollout in scores for score in of_rollout.values()]
    else:
        sample = [next(iter(of_rollout.values())) for of_rollout in scores]
    constant = len(set(sample)) == 1
    n = len(sample)
    mean = sample[0] if constant else math.fsum(sample) / n
    result = {}
    for of_rollout in scores:
        for index, score in of_rollout.items():
            if opt.estimator == "rloo":
                result[index] = n / (n - 1) * (score - mean)
            elif opt.scale == "none":
                result[index] = score - mean
            elif constant:
                result[index] = 0.0
            else:
                std = math.sqrt(math.fsum((x - mean) ** 2 for x in sample) / (n - opt.ddof))
                result[index] = (score - mean) / (std + opt.eps)
    return result


def status_of(group: Group, opt: Options) -> str:
    """The first that holds, judged on the rollouts that count."""
    counted = group.counted
    outcomes = {rollout.outcome for rollout in counted}
    if not counted:
        return "unscored"
    if len(counted) == 1:
        return "singleton"
    if len(counted) < (opt.expected_group_size or 0):
        return "incomplete"
    if outcomes == {1}:
        return "all_success"
    if outcomes == {0}:
        return "all_fail"
    if len({rollout.total for rollout in counted}) == 1:
        return "constant"
    if opt.boundary is not None and len({rollout.end_value for rollout in counted}) == 1:
        return "constant"
    return "ok"


# --------------------------------------------------------------------------------------------------
# The credit table
# --------------------------------------------------------------------------------------------------


def credit_rows(rows: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """The credit columns of every input row, in input order; see Options for the keywords."""
    opt = Options(**options)
    result: list[dict[str, Any]] = [{} for _ in rows]
    for group in read_groups(rows, opt):
        for index, cells in group_credit(rows, group, opt).items():
            result[index] = cells
    return result


def group_credit(rows: Sequence[Row], group: Group, opt: Options) -> dict[int, dict[str, Any]]:
    """Algorithm 1 for one group: the cells of each of its rows."""
    status = status_of(group, opt)
    empty: dict[str, Any] = dict.fromkeys(NUMBERS)
    empty |= {"group_status": status, "reason": "duplicate"}
    cells = {index: dict(empty) for index in group.rows}  # rows lost to a duplicate stay so

    visits = {visit.row: visit for visit in group.visits}
    anchors = {state: i for i, state in enumerate(dict.fromkeys(v.state for v in group.visits))}
    counts = Counter(visit.state for visit in group.visits)
    actions = distinct_actions(group)
    values, action_values = values_at(group, opt.depth)
    credit = centered(group, opt.depth)
    step_credit = step_credits(group, opt)
    coverage = coverage_of(group, math.inf)
    advantages: dict[int, float] = {}  # null where absent
    if len(group.counted) > 1:
        advantages = group_advantages(rows, group, opt)
    elif group.counted and opt.singleton == "zero":
        advantages = dict.fromkeys(group.counted[0].rows, 0.0)
    elif group.counted and opt.singleton == "raw":
        advantages = row_scores(rows, group.counted[0], opt)

    for rollout in group.rollouts:
        for index in rollout.rows:
            cell = cells[index]
            visit = visits.get(index)
            if visit is not None:
                cell["anchor"] = anchors[visit.state]
                cell["visits"] = counts[visit.state]
                cell["actions"] = actions[visit.state]
                cell["state_value"] = float(values[visit.state])
                cell["action_value"] = float(action_values[visit.pair])
                cell["credit"] = credit[visit.pair]
                cell["step_credit"] = step_credit[visit.pair]
                cell["reachable_rollouts"] = coverage[visit.state]
                if status == "singleton" and opt.singleton == "zero":
                    cell["step_credit"] = 0.0
                if status == "singleton" and opt.singleton == "drop":
                    for name in ("state_value", "action_value", "credit", "step_credit"):
                        cell[name] = None
            if index in advantages:
                a_g, a_s = advantages[index], cell["step_credit"] if visit else 0.0
                cell["group_advantage"] = a_g
                cell["advantage"] = opt.w_g * a_g + opt.w_s * a_s
            cell["reason"] = reason_of(rollout, rows[index], status)
    for copy, first in group.copies.items():
        cells[copy] = cells[first] | {"reason": "duplicate"}
    return cells


def reason_of(rollout: Rollout, row: Row, status: str) -> str | None:
    """Why a cell is null or special, the first that holds (duplicates are handled outside)."""
    if rollout.role != "counted":
        return rollout.role
    if row.get("observation") is None:
        return "no_anchor"
    return "singleton_group" if status == "singleton" else None


# --------------------------------------------------------------------------------------------------
# Coverage (appendix D.2, figure 5)
# --------------------------------------------------------------------------------------------------


def coverage_of(group: Group, depth: Depth) -> dict[Key, int]:
    """cover_K(s): distinct rollouts that visit some anchor at directed distance <= K from s."""
    successors: dict[Key, set[Key]] = defaultdict(set)
    visitors: dict[Key, set[int]] = defaultdict(set)
    for visit in group.visits:
        visitors[visit.state].add(visit.rollout)
        if not visit.ends:
            successors[visit.state].add(visit.successor)
    result = {}
    for start in visitors:
        reached, frontier, distance = {start}, {start}, 0
        while frontier and distance < depth:
            frontier = {x for state in frontier for x in successors[state]} - reached
            reached |= frontier
            distance += 1
        result[start] = len(set().union(*(visitors[state] for state in reached)))
    return result


def coverage_counts(rows: list[dict[str, Any]], depth: Depth, **options: Any) -> list[int | None]:
    """Per input row, the rollouts whose evidence reaches it at depth K (null: not a visit)."""
    result: list[int | None] = [None] * len(rows)
    for group in read_groups(rows, Options(**options)):
        coverage = coverage_of(group, depth)
        for visit in group.visits:
            result[visit.row] = coverage[visit.state]
        for copy, first in group.copies.items():
            result[copy] = result[first]
    return result


@dataclass(frozen=True)
class CoverageTable:
    """Coverage pooled over the eligible visits of all groups (at least 2 distinct actions)."""

    eligible: int
    distribution: dict[Depth, dict[int, int]]  # depth -> coverage -> visits
    full: dict[Depth, int]  # depth -> visits that reach every rollout of their group
    paired: dict[tuple[int, int], int]  # (coverage at K = 0, at full closure) -> visits
    expanded: int  # visits off the diagonal of `paired`


def coverage_table(
    rows: list[dict[str, Any]], depths: Iterable[Depth] = (0, 1, 2, 3, math.inf), **options: Any
) -> CoverageTable:
    """Fig. 5: the distribution for each depth, and K = 0 paired with full closure."""
    groups = read_groups(rows, Options(**options))
    eligible = []
    for group in groups:
        actions = distinct_actions(group)
        eligible += [(group, visit) for visit in group.visits if actions[visit.state] >= 2]
    cover = {k: {id(g): coverage_of(g, k) for g in groups} for k in {*depths, 0, math.inf}}
    size = {id(group): len({visit.rollout for visit in group.visits}) for group in groups}

    def at(k: Depth, group: Group, visit: Visit) -> int:
        return cover[k][id(group)][visit.state]

    paired = Counter((at(0, g, v), at(math.inf, g, v)) for g, v in eligible)
    return CoverageTable(
        eligible=len(eligible),
        distribution={k: dict(Counter(at(k, g, v) for g, v in eligible)) for k in cover},
        full={k: sum(at(k, g, v) == size[id(g)] for g, v in eligible) for k in cover},
        paired=dict(paired),
        expanded=sum(n for (before, after), n in paired.items() if after > before),
    )


# --------------------------------------------------------------------------------------------------
# What a number is made of
# --------------------------------------------------------------------------------------------------


def visit_uses(group: Group, at: Visit, depth: Depth) -> dict[str, list[tuple[Number, Number]]]:
    """How V(s) and Q(s,a) of one visit answer to what each visit earns, (transition, return).

    The numbers are linear in the rewards r and the returns G of the visits: with nothing earned
    anywhere but 1 by one transition, or one return of 1, they are the factors themselves.
    """
    kept = [(v.reward, v.end_value, v.suffix) for v in group.visits]
    zero = group.beta * 0
    uses: dict[str, list[tuple[Number, Number]]] = {"state_value": [], "action_value": []}
    for v in group.visits:
        v.reward, v.end_value, v.suffix = zero, zero, zero
    for v in group.visits:
        found = []
        for name in ("reward", "suffix"):
            setattr(v, name, zero + 1)
            values, action_values = values_at(group, depth)
            found.append((values[at.state], action_values[at.pair]))
            setattr(v, name, zero)
        for i, numbers in enumerate(uses.values()):
            numbers.append((found[0][i], found[1][i]))
    for v, earned in zip(group.visits, kept, strict=True):
        v.reward, v.end_value, v.suffix = earned
    return uses


# --------------------------------------------------------------------------------------------------
# Matrices, for identities between them
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupMatrices:
    """One group as arrays over its n states and p pairs (s,a), both by first visit.

    M (n,n), b (n,): eq. 9.  P (p,n): P(s'|s,a) on anchors only.  ending (p,): mean r + β·V(z).
    mu (p,): μ(a|s).  state_of (p,): index of the state of a pair.  V0, V (n,); Q0, Q (p,).
    """

    group: tuple[Any, ...]
    visits: list[Visit]
    states: list[Key]
    pairs: list[Pair]
    state_of: np.ndarray
    mu: np.ndarray
    P: np.ndarray
    ending: np.ndarray
    M: np.ndarray
    b: np.ndarray
    V0: np.ndarray
    Q0: np.ndarray
    V: np.ndarray
    Q: np.ndarray
    discount: float

    def B(self, values: np.ndarray) -> np.ndarray:  # noqa: N802 - the paper's name
        """(BV)(s,a) = β·Σ_x P(x|s,a)·V(x)  (eq. 7), boundaries included."""
        return np.asarray(self.ending + self.discount * self.P @ values)

    def T(self, values: np.ndarray) -> np.ndarray:  # noqa: N802 - the paper's name
        """TV = βMV + b  (eq. 8)."""
        return np.asarray(self.discount * self.M @ values + self.b)

    def at(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """V^(K), Q^(K) by repeated T  (eq. 10)."""
        values, action_values = self.V0, self.Q0
        for _ in range(depth):
            values, action_values = self.T(values), self.B(values)
        return values, action_values

    def average(self, per_pair: np.ndarray, policy: np.ndarray | None = None) -> np.ndarray:
        """Σ_a policy(a|s)·x(s,a) for each state; the behaviour policy μ by default."""
        weights = self.mu if policy is None else policy
        return np.array(
            [(weights * per_pair)[self.state_of == i].sum() for i in range(len(self.states))]
        )

    def transitions_under(self, policy: np.ndarray) -> np.ndarray:
        """M^ν(s,s') = Σ_a ν(a|s)·P(s'|s,a)."""
        return np.array([self.average(column, policy) for column in self.P.T]).T

    def solve_under(self, policy: np.ndarray) -> np.ndarray:
        """V^ν, the fixed point under another policy on the observed pairs."""
        matrix = np.eye(len(self.states)) - self.discount * self.transitions_under(policy)
        return np.linalg.solve(matrix, self.average(self.ending, policy))

    def arrival_value(self, pair: int, state: int) -> float | None:
        """V⁰_{from (s,a)}(x): mean suffix return at x of the visits that came from (s,a)
        (eq. 20); None where no visit did."""
        suffixes = [
            float(visit.following.suffix)
            for visit in self.visits
            if visit.pair == self.pairs[pair]
            and visit.following is not None
            and visit.following.state == self.states[state]
        ]
        return math.fsum(suffixes) / len(suffixes) if suffixes else None


def group_matrices(rows: list[dict[str, Any]], **options: Any) -> list[GroupMatrices]:
    """The merged process of each group that has visits, as matrices."""
    result = []
    for group in read_groups(rows, Options(**options)):
        visits = group.visits
        states = list(dict.fromkeys(visit.state for visit in visits))
        pairs = list(dict.fromkeys(visit.pair for visit in visits))
        if not visits:
            continue
        place = {state: i for i, state in enumerate(states)}
        row_of = {pair: i for i, pair in enumerate(pairs)}
        n_pair = Counter(visit.pair for visit in visits)
        n_state = Counter(visit.state for visit in visits)
        transition = np.zeros((len(pairs), len(states)))
        ending = np.zeros(len(pairs))
        matrix = np.zeros((len(states), len(states)))
        vector = np.zeros(len(states))
        for visit in visits:
            s, p = place[visit.state], row_of[visit.pair]
            gain = float(visit.reward + group.beta * visit.end_value * visit.ends)
            ending[p] += gain / n_pair[visit.pair]
            vector[s] += gain / n_state[visit.state]
            if not visit.ends:
                x = place[visit.successor]
                transition[p, x] += 1 / n_pair[visit.pair]
                matrix[s, x] += 1 / n_state[visit.state]
        local, local_q = local_state_values(group), local_action_values(group)
        values, action_values = values_at(group, math.inf)
        result.append(
            GroupMatrices(
                group=group.key,
                visits=visits,
                states=states,
                pairs=pairs,
                state_of=np.array([place[state] for state, _ in pairs]),
                mu=np.array([n_pair[pair] / n_state[pair[0]] for pair in pairs]),
                P=transition,
                ending=ending,
                M=matrix,
                b=vector,
                V0=np.array([float(local[state]) for state in states]),
                Q0=np.array([float(local_q[pair]) for pair in pairs]),
                V=np.array([float(values[state]) for state in states]),
                Q=np.array([float(action_values[pair]) for pair in pairs]),
                discount=float(group.beta),
            )
        )
    return result
