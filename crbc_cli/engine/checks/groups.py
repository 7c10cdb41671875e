"""One row per group: its size, and what merging it shows about anchors and actions."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.checks.facts import NO_PLACE
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.growth import growth
from crbc_cli.engine.prepare import Chunk, Prepared
from crbc_cli.process.empirical import FAILURE, SUCCESS, EmpiricalProcess
from crbc_cli.process.quality import pair_outcomes
from crbc_cli.tables import GROUP_STATUSES

__all__ = ["group_facts"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_MEETING = 3
_HUB_BYTES = 64
_HUB_ACTIONS = 4
_VOCABULARY = 10


def group_facts(
    log: Prepared, row_code: Ints, clock: Clock
) -> tuple[pl.DataFrame, NDArray[np.uint64]]:
    """Facts of each group of a log that has rows.

    Args:
      log: the log.
      row_code: int64, place code of each row of the step table.
      clock: the stage "build" is added to.
    Returns:
      (frame, content key of every anchor). The frame has `label, group_id, key:*, size, counted,
      status, first` (place code), `growth` (of anchor length over all rows of the group, null
      where rollouts have several rows) and the columns of `_Merged`.
    """
    r, outcomes = log.rollouts, log.outcomes
    first = np.searchsorted(r.group, np.arange(r.groups))
    head = r.first[first]
    ids = log.frame.select(pl.col("group_id", "^key:.*$").cast(pl.String))[head]
    named = ids.select(
        pl.concat_str(
            pl.col("group_id"),
            *(pl.format(f", {c.removeprefix('key:')}={{}}", pl.col(c)) for c in ids.columns[1:]),
            ignore_nulls=True,
        ).alias("label")
    )
    status = np.array(list(GROUP_STATUSES))[outcomes.group_status]
    merged = _Merged.empty(r.groups)
    keys = [np.empty(0, np.uint64)]
    for chunk in log.chunks(clock):
        keys.append(merged.add(log, chunk, row_code))
    frame = pl.DataFrame(
        {
            "size": np.bincount(r.group, minlength=r.groups),
            "counted": np.bincount(r.group[outcomes.counts], minlength=r.groups),
            "status": pl.Series(status, dtype=pl.Enum(list(GROUP_STATUSES))),
            "first": row_code[head],
            "growth": _growth_across_rollouts(log),
            **vars(merged),
        }
    )
    return pl.concat([named, ids, frame], how="horizontal"), np.concatenate(keys)


def _growth_across_rollouts(log: Prepared) -> pl.Series:
    """Where a log keeps one row per rollout, anchor length against step inside each group."""
    r = log.rollouts
    if (r.lengths > 1).any():
        return pl.Series([None] * r.groups, dtype=pl.Float64)
    at = np.flatnonzero(log.is_visit)
    size = log.frame["anchor_bytes"].to_numpy()[r.row[at]].astype(np.int64)
    rho = growth(r.row_group()[at], r.step[at], size, r.groups)
    return pl.Series(rho, nan_to_null=True)


@dataclass
class _Merged:
    """What merging shows, one entry per group, int64 (groups,).

    Attributes:
      members: rollouts that take part with a visit.
      visits, anchors: sizes.
      single: anchors visited once.
      shared: visits to anchors that several rollouts visit.
      choice: visits to anchors with several actions.
      top: visits of the most visited anchor.
      choices: (anchor, action) pairs at anchors with three visits or more that several rollouts
        share; once: of these, pairs with one visit; at_once: first row of the first such pair.
      aliased: anchors where one action led to several successors; mixed: of these, to both
        success and failure; aliased_visits: visits of such actions; at_aliased: first row of the
        most frequent one.
      hubs: short anchors that follow many different actions; hub_visits: their visits; at_hub:
        first row of the most visited one, hub_key: its content key.
    """

    members: Ints
    visits: Ints
    anchors: Ints
    single: Ints
    shared: Ints
    choice: Ints
    top: Ints
    choices: Ints
    once: Ints
    at_once: Ints
    aliased: Ints
    mixed: Ints
    aliased_visits: Ints
    at_aliased: Ints
    hubs: Ints
    hub_visits: Ints
    at_hub: Ints
    hub_key: Ints

    @classmethod
    def empty(cls, groups: int) -> "_Merged":
        columns = {name: np.zeros(groups, np.int64) for name in cls.__dataclass_fields__}
        merged = cls(**columns)
        merged.at_once[:] = merged.at_aliased[:] = merged.at_hub[:] = NO_PLACE
        return merged

    def add(self, log: Prepared, chunk: Chunk, row_code: Ints) -> NDArray[np.uint64]:
        """Fills in a chunk's groups; returns the content key of each of its anchors."""
        p = chunk.process
        row = log.rollouts.row[chunk.position]
        first_visit = _first(p.state, p.states)
        group = slice(chunk.first_group, chunk.first_group + p.groups)

        def per_group(states: Ints, weight: Ints | None = None) -> Ints:
            return np.bincount(p.state_group[states], weight, p.groups).astype(np.int64)

        every, visits = np.arange(p.states), p.state_visits
        starts = np.flatnonzero(np.diff(p.rollout, prepend=-1))
        self.members[group] = np.bincount(p.visit_group[starts], minlength=p.groups)
        self.visits[group] = per_group(every, visits)
        self.anchors[group] = per_group(every)
        self.single[group] = per_group(every[visits == 1])
        several = _rollouts_at(p) > 1
        shared = every[several]
        self.shared[group] = per_group(shared, visits[shared])
        choice = every[p.state_actions > 1]
        self.choice[group] = per_group(choice, visits[choice])
        np.maximum.at(self.top[group], p.state_group, visits)

        pair_place = row_code[row[_first(p.pair, p.pairs)]]
        pairs = np.flatnonzero((several & (visits >= _MEETING))[p.pair_state])
        self.choices[group] = per_group(p.pair_state[pairs])
        pairs = pairs[p.pair_visits[pairs] == 1]
        self.once[group] = per_group(p.pair_state[pairs])
        _put_first(self.at_once[group], p.state_group[p.pair_state[pairs]], pair_place[pairs])

        pairs, mixed = _aliased_pairs(p, self._known(log, chunk))
        self.aliased[group] = per_group(np.unique(p.pair_state[pairs]))
        self.mixed[group] = per_group(np.unique(p.pair_state[mixed]))
        self.aliased_visits[group] = per_group(p.pair_state[pairs], p.pair_visits[pairs])
        pairs = pairs[np.argsort(-p.pair_visits[pairs], kind="stable")]
        _put_first(self.at_aliased[group], p.state_group[p.pair_state[pairs]], pair_place[pairs])

        size = log.frame["anchor_bytes"].to_numpy()[row[first_visit]]
        hubs = np.flatnonzero(_hubs(p, log.action_key[chunk.position], size))
        hubs = hubs[np.argsort(-visits[hubs], kind="stable")]
        self.hubs[group] = per_group(hubs)
        self.hub_visits[group] = per_group(hubs, visits[hubs])
        key = log.anchor_key[chunk.position[first_visit]]
        _put_first(self.at_hub[group], p.state_group[hubs], row_code[row[first_visit[hubs]]])
        _put_first(self.hub_key[group], p.state_group[hubs], key[hubs].view(np.int64))
        return key

    @staticmethod
    def _known(log: Prepared, chunk: Chunk) -> Bools:
        """Visits whose successor was observed: not the last of a rollout that a limit cut."""
        is_last = np.diff(chunk.process.rollout, append=-1) != 0
        cut = log.outcomes.cut[log.rollouts.rollout[chunk.position]]
        observed: Bools = ~(is_last & cut)
        return observed


def _first(ids: Ints, count: int) -> Ints:
    """First position of each dense id, int64 (count,)."""
    first = np.zeros(count, np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return first


def _put_first(target: Ints, group: Ints, place: Ints) -> None:
    """Writes the first place of each group."""
    hit, first = np.unique(group, return_index=True)
    target[hit] = place[first]


def _rollouts_at(p: EmpiricalProcess) -> Ints:
    """Distinct rollouts at each state, int64 (states,)."""
    width = int(p.rollout.max(initial=0)) + 1
    return np.bincount(np.unique(p.state * width + p.rollout) // width, minlength=p.states)


def _aliased_pairs(p: EmpiricalProcess, known: Bools) -> tuple[Ints, Ints]:
    """(pairs with several successors, pairs that end both ways) among `known` visits; a failure
    is another successor beside a success only, as in the conflict rate."""
    known = known & pair_outcomes(p).telling
    width = p.states + 2
    code = np.unique(p.pair[known] * width + (p.successor[known] - FAILURE))
    pair, successor = code // width, code % width + FAILURE
    ends = np.bincount(pair[(successor == SUCCESS) | (successor == FAILURE)], minlength=p.pairs)
    return np.flatnonzero(np.bincount(pair, minlength=p.pairs) > 1), np.flatnonzero(ends > 1)


def _hubs(p: EmpiricalProcess, action: NDArray[np.uint64], size: NDArray[np.uint32]) -> Bools:
    """States like a reply that is no state: short, and following many different actions.

    A true state is entered by few actions. In a group with few actions (a grid) that says
    nothing, so those have no hubs. `action` is uint64 (n,), `size` uint32 (states,).
    """
    entered = p.successor >= 0
    entered &= p.successor != p.state
    ways = _distinct_per(p.successor[entered], action[entered], p.states)
    vocabulary = _distinct_per(p.visit_group, action, p.groups)
    short = (size > 0) & (size <= _HUB_BYTES)
    many: Bools = (ways >= _HUB_ACTIONS) & (vocabulary[p.state_group] >= _VOCABULARY)
    return many & short


def _distinct_per(owner: Ints, value: NDArray[np.uint64], owners: int) -> Ints:
    """Distinct values of each owner, int64 (owners,)."""
    order = np.lexsort((value, owner))
    owner, value = owner[order], value[order]
    new = np.ones(len(owner), bool)
    new[1:] = (owner[1:] != owner[:-1]) | (value[1:] != value[:-1])
    return np.bincount(owner[new], minlength=owners)
