"""From loaded rows to merged processes, a chunk of groups at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.ids import dense_ids
from crbc_cli.engine.anchoring import anchor_rows, without_key_columns
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.load import Loaded
from crbc_cli.engine.merging import merge_similar
from crbc_cli.methods.trajectory import Episodes
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.process.empirical import EmpiricalProcess, Visits, build_process, renumbered
from crbc_cli.rollouts.identity import Rollouts, arrange
from crbc_cli.rollouts.inference import check_inferred_groups, infer_groups
from crbc_cli.rollouts.outcomes import Outcomes, read_outcomes

__all__ = ["CHUNK_ROWS", "Chunk", "Prepared", "prepare"]

CHUNK_ROWS = 250_000


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
        frame, extra, notes = self.frame.filter(mask), self.loaded.extra, Notes()
        extra = extra.filter(mask) if extra.width else extra
        loaded = replace(self.loaded, frame=self.loaded.frame.filter(mask), extra=extra)
        row = self.rollouts.row_group() == group
        rollout = self.rollouts.group == group
        return replace(
            self,
            frame=frame,
            loaded=loaded,
            rollouts=arrange(frame, self.settings.log, loaded.place, notes),
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
            notes=notes,
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
    """Finds rollouts, order and outcomes.

    Raises:
      IdentityError, OutcomeError: see `crbc_cli.rollouts`.
    """
    notes = loaded.notes
    with clock("arrange"):
        frame = infer_groups(loaded.frame, settings.log, loaded.place, notes)
        rollouts = arrange(frame, settings.log, loaded.place, notes)
        check_inferred_groups(rollouts, settings.log, notes)
        outcomes = read_outcomes(
            frame, rollouts, settings.outcome, settings.group_advantage, loaded.place, notes
        )
        _say_repeated_reward(frame, rollouts, notes)
        threshold = settings.anchor.merge_similar
        frame = merge_similar(frame, rollouts, loaded.rules, threshold, loaded.place, notes)
        anchors = anchor_rows(frame, rollouts, loaded.rules)
        continues = outcomes.cut & anchors.has_next & (settings.outcome.truncated == "bootstrap")
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
            notes=notes,
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


def _say_repeated_reward(frame: pl.DataFrame, rollouts: Rollouts, notes: Notes) -> None:
    """A reward column that holds the episode's reward on each row is not a step reward."""
    if "reward" not in frame.columns:
        return
    reward = frame["reward"].fill_null(0.0).to_numpy()[rollouts.row]
    several = (rollouts.lengths > 1)[rollouts.rollout]
    if not (several & (reward != 0)).any():
        return
    first = reward[rollouts.offsets[:-1]][rollouts.rollout]
    if np.array_equal(first[several], reward[several]):
        notes.say(
            "repeated_reward",
            "the reward column repeats each rollout's reward on all of "
            "its rows: it is an episode reward, so use --reward last, not sum",
        )
