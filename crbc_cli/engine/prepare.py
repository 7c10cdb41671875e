"""From loaded rows to merged processes, a chunk of groups at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.ids import dense_ids
from crbc_cli.engine.anchoring import anchor_rows, without_key_columns
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.load import Loaded
from crbc_cli.engine.merging import Similar, merge_similar
from crbc_cli.errors import CrbcError
from crbc_cli.methods.trajectory import Episodes
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.process.empirical import EmpiricalProcess, Visits, build_process, renumbered
from crbc_cli.rollouts.identity import Rollouts, arrange
from crbc_cli.rollouts.inference import infer_groups
from crbc_cli.rollouts.outcomes import Outcomes, read_outcomes
from crbc_cli.rollouts.tally import Tally

__all__ = ["CHUNK_ROWS", "Chunk", "Counted", "Prepared", "prepare"]

CHUNK_ROWS = 1 << 16
"""Rows merged and solved at a time: their arrays stay in the cache."""


@dataclass(frozen=True)
class Chunk:
    """Some groups of a `Prepared` log, merged.

    Attributes:
      process: the merged groups; group ids count from 0 inside the chunk.
      first_group: group of the log that is group 0 of the process.
      position: int64 (visits,), canonical position of each visit of the process.
      removed: int64 (k,), canonical positions of visits that censoring removed.
    """

    process: EmpiricalProcess
    first_group: int
    position: NDArray[np.int64]
    removed: NDArray[np.int64]


@dataclass(frozen=True)
class Prepared:
    """A log in canonical order, ready to be merged.

    Attributes:
      frame: step table of compact rows, in input order; `anchor_key` is null where a row has no
        anchor, `anchor_id` its digest if that was asked for.
      loaded: where the rows came from.
      rollouts: who is who.
      outcomes: how rollouts ended.
      anchor_key, action_key: uint64 (n,), in canonical order; 0 where there is no anchor.
      has_anchor: bool (n,), in canonical order.
      thought: bool (n,), rows that are no environment steps, in canonical order.
      invalid: bool (n,), in canonical order.
      reward: float64 (n,), intermediate rewards in canonical order, or None if they do not enter.
      next_key: uint64 (r,), anchor after each rollout's last row, where `has_next`.
      has_next: bool (r,), that anchor was read and is known.
      continues: bool (r,), cut rollouts whose last transition leads on (bootstrap).
      settings: all options.
      notes: remarks so far.
    """

    frame: pl.DataFrame
    loaded: Loaded
    rollouts: Rollouts
    outcomes: Outcomes
    anchor_key: NDArray[np.uint64]
    action_key: NDArray[np.uint64]
    has_anchor: NDArray[np.bool_]
    thought: NDArray[np.bool_]
    invalid: NDArray[np.bool_]
    reward: NDArray[np.float64] | None
    next_key: NDArray[np.uint64]
    has_next: NDArray[np.bool_]
    continues: NDArray[np.bool_]
    settings: Settings
    notes: Notes

    @property
    def is_visit(self) -> NDArray[np.bool_]:
        """Rows that are environment steps with an anchor, bool (n,), in canonical order."""
        return self.has_anchor & ~self.thought

    def episodes(self) -> Episodes:
        """What the trajectory term needs."""
        r = self.rollouts
        return Episodes(
            r.rollout, r.group, r.groups, self.outcomes.reward, self.outcomes.counts, self.invalid
        )

    def chunks(self, clock: Clock, chunk_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """Merged processes of consecutive groups, about `chunk_rows` rows each.

        Args:
          clock: the stage "build" is added to.
          chunk_rows: a chunk ends with the first group that reaches this many rows.
        """
        ends = np.flatnonzero(np.diff(self.rollouts.row_group(), append=-1)) + 1
        start = 0
        for end in ends:
            if end - start >= chunk_rows or end == ends[-1]:
                with clock("build"):
                    chunk = self._merge(start, int(end))
                yield chunk
                start = int(end)

    def only(self, group: int) -> "Prepared":
        """The log with nothing but one group, whose numbers stay the same bit for bit."""
        mask = pl.Series(self.rollouts.group_of_row == group)
        frame, extra = self.frame.filter(mask), self.loaded.extra
        extra = extra.filter(mask) if extra.width else extra
        loaded = replace(self.loaded, frame=self.loaded.frame.filter(mask), extra=extra)
        row = self.rollouts.row_group() == group
        rollout = self.rollouts.group == group
        return replace(
            self,
            frame=frame,
            loaded=loaded,
            rollouts=arrange(frame, self.settings.log, loaded.place, Tally()),
            outcomes=_outcomes_of(self.outcomes, rollout, group),
            anchor_key=self.anchor_key[row],
            action_key=self.action_key[row],
            has_anchor=self.has_anchor[row],
            thought=self.thought[row],
            invalid=self.invalid[row],
            reward=None if self.reward is None else self.reward[row],
            next_key=self.next_key[rollout],
            has_next=self.has_next[rollout],
            continues=self.continues[rollout],
            notes=Notes(),
        )

    def _merge(self, start: int, end: int) -> Chunk:
        visits, position = self._visits(start, end)
        first_group = int(self.rollouts.group[self.rollouts.rollout[start]])
        process, kept = build_process(visits, dense_ids)
        return Chunk(process, first_group, position[kept], position[~kept])

    def _visits(self, start: int, end: int) -> tuple[Visits, NDArray[np.int64]]:
        """Rows start:end of the canonical order that are visits, as arrays."""
        r, outcomes = self.rollouts, self.outcomes
        rollout = r.rollout[start:end]
        position = start + np.flatnonzero(outcomes.takes_part[rollout] & self.is_visit[start:end])
        left, local = renumbered(r.rollout[position])
        visits = Visits(
            r.group[r.rollout[position]] - r.group[r.rollout[start]],
            local,
            self.anchor_key[position],
            self.action_key[position],
            outcomes.success[left],
            outcomes.boundary[left],
            outcomes.cut[left] & (self.settings.outcome.truncated == "censor"),
            self.next_key[left],
            self.continues[left],
            None if self.reward is None else self.reward[position],
            self.invalid[position],
        )
        return visits, position


def prepare(loaded: Loaded, settings: Settings, clock: Clock) -> Prepared:
    """Finds rollouts, order and outcomes of a whole log, and tells what was found.

    Raises:
      IdentityError, OutcomeError: see `crbc_cli.rollouts`.
    """
    counted = Counted()
    log = counted.arranging(loaded, settings, clock)
    counted.tell(settings, loaded.notes)
    assert log is not None  # or telling had raised
    return log


@dataclass
class Counted:
    """What was counted while groups were arranged; add pieces of a log, then tell once.

    Attributes:
      tally: about rows and rollouts.
      similar: about merged replies.
      failure: the first error that is not counted.
    """

    tally: Tally = field(default_factory=Tally)
    similar: Similar = field(default_factory=Similar)
    failure: CrbcError | None = None

    @property
    def failed(self) -> bool:
        """Whether telling will raise, whatever comes, where `settings` make counts errors."""
        return self.failure is not None or self.tally.clashes > 0

    def arranging(self, loaded: Loaded, settings: Settings, clock: Clock) -> Prepared | None:
        """Arranges some complete groups; None, and the failure kept, where that failed."""
        try:
            with clock("arrange"):
                return _arranged(loaded, settings, self)
        except CrbcError as error:
            self.failure = self.failure or error
            return None

    def add(self, later: "Counted") -> None:
        """Adds a later piece of the same log."""
        self.tally.add(later.tally)
        self.similar.add(later.similar)
        self.failure = self.failure or later.failure

    def tell(self, settings: Settings, notes: Notes) -> None:
        """Says what was tolerated.

        Raises:
          CrbcError: what was counted is an error, or the failure.
        """
        self.tally.tell(settings.log, settings.outcome, notes)
        if self.failure is not None:
            raise self.failure
        self.similar.tell(settings.anchor.merge_similar, notes)


def _arranged(loaded: Loaded, settings: Settings, counted: Counted) -> Prepared:
    tally, place = counted.tally, loaded.place
    frame = infer_groups(loaded.frame, settings.log, place, tally, loaded.before)
    rollouts = arrange(frame, settings.log, place, tally)
    outcomes = read_outcomes(
        frame, rollouts, settings.outcome, settings.group_advantage, place, tally
    )
    _count_repeated_reward(frame, rollouts, tally)
    threshold = settings.anchor.merge_similar
    frame = merge_similar(frame, rollouts, loaded.rules, threshold, place, counted.similar)
    anchors = anchor_rows(frame, rollouts, loaded.rules)
    continues = np.zeros(len(outcomes.cut), bool)
    if settings.outcome.truncated == "bootstrap":
        continues = outcomes.cut & anchors.has_next
        tally.cut = int(np.count_nonzero(outcomes.cut))
        tally.blind = tally.cut - int(np.count_nonzero(continues))
    return Prepared(
        frame=without_key_columns(frame, rollouts, anchors),
        loaded=loaded,
        rollouts=rollouts,
        outcomes=outcomes,
        anchor_key=anchors.key,
        action_key=frame["action_key"].to_numpy()[rollouts.row],
        has_anchor=anchors.has_anchor,
        thought=anchors.thought,
        invalid=_invalid_rows(frame, rollouts),
        reward=_intermediate_rewards(frame, rollouts)
        if settings.credit.intermediate_rewards
        else None,
        next_key=anchors.next_key,
        has_next=anchors.has_next,
        continues=continues,
        settings=settings,
        notes=loaded.notes,
    )


def _outcomes_of(outcomes: Outcomes, rollout: NDArray[np.bool_], group: int) -> Outcomes:
    """Facts of one group's rollouts."""
    per_rollout = [f.name for f in fields(outcomes) if f.name != "group_status"]
    kept = {name: getattr(outcomes, name)[rollout] for name in per_rollout}
    return Outcomes(**kept, group_status=outcomes.group_status[group : group + 1])


def _invalid_rows(frame: pl.DataFrame, rollouts: Rollouts) -> NDArray[np.bool_]:
    if "is_action_valid" not in frame.columns:
        return np.zeros(len(rollouts.row), bool)
    valid: NDArray[np.bool_] = frame["is_action_valid"].fill_null(True).to_numpy()
    return ~valid[rollouts.row]


def _intermediate_rewards(frame: pl.DataFrame, rollouts: Rollouts) -> NDArray[np.float64]:
    """Rewards of all rows but a rollout's last, whose worth is the boundary's."""
    reward: NDArray[np.float64] = frame["reward"].fill_null(0.0).to_numpy()[rollouts.row]
    reward[rollouts.offsets[1:] - 1] = 0.0
    return reward


def _count_repeated_reward(frame: pl.DataFrame, rollouts: Rollouts, tally: Tally) -> None:
    """A reward column that holds the episode's reward on each row is not a step reward."""
    if "reward" not in frame.columns or not tally.repeated:
        return
    reward = frame["reward"].fill_null(0.0).to_numpy()[rollouts.row]
    several = (rollouts.lengths > 1)[rollouts.rollout]
    first = reward[rollouts.offsets[:-1]][rollouts.rollout]
    tally.rewarded = bool((several & (reward != 0)).any())
    tally.repeated = bool(np.array_equal(first[several], reward[several]))
