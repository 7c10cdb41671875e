"""From loaded rows to merged processes, a chunk of groups at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.ids import dense_ids
from crbc_cli.credit.trajectory import Episodes
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.load import Loaded
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.process.empirical import EmpiricalProcess, Visits, build_process
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
      frame: step table of compact rows, in input order.
      loaded: where the rows came from.
      rollouts: who is who.
      outcomes: how rollouts ended.
      has_anchor: bool (n,), in canonical order.
      invalid: bool (n,), in canonical order.
      settings: all options.
      notes: remarks so far.
    """

    frame: pl.DataFrame
    loaded: Loaded
    rollouts: Rollouts
    outcomes: Outcomes
    has_anchor: NDArray[np.bool_]
    invalid: NDArray[np.bool_]
    settings: Settings
    notes: Notes

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

    def _merge(self, start: int, end: int) -> Chunk:
        visits, position = self._visits(start, end)
        first_group = int(self.rollouts.group[self.rollouts.rollout[start]])
        process, kept = build_process(visits, dense_ids)
        return Chunk(process, first_group, position[kept], position[~kept])

    def _visits(self, start: int, end: int) -> tuple[Visits, NDArray[np.int64]]:
        """Rows start:end of the canonical order that are visits, as arrays."""
        r, outcomes, settings = self.rollouts, self.outcomes, self.settings
        rollout = r.rollout[start:end]
        position = start + np.flatnonzero(outcomes.takes_part[rollout] & self.has_anchor[start:end])
        rows = r.row[position]
        left, local = np.unique(r.rollout[position], return_inverse=True)
        cut = outcomes.cut[left]
        frame = self.frame
        reward = None
        if settings.credit.intermediate_rewards:
            reward = frame["reward"].fill_null(0.0).to_numpy()[rows]
            reward = np.where(np.isin(position, r.offsets[1:] - 1), 0.0, reward)
        no_key = np.zeros(len(left), np.uint64)
        next_key, continues = no_key, np.zeros(len(left), bool)
        if settings.outcome.truncated == "bootstrap" and "next_key" in frame.columns:
            following = frame["next_key"][r.last[left]]
            next_key = following.fill_null(0).to_numpy()
            continues = cut & following.is_not_null().to_numpy()
        group = r.group[r.rollout[position]]
        visits = Visits(
            group - r.group[r.rollout[start]],
            local.astype(np.int64),
            frame["anchor_key"].to_numpy()[rows]
            if not frame["anchor_key"].null_count()
            else frame["anchor_key"].fill_null(0).to_numpy()[rows],
            frame["action_key"].to_numpy()[rows],
            outcomes.success[left],
            outcomes.boundary[left],
            cut & (settings.outcome.truncated == "censor"),
            next_key,
            continues,
            reward,
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
        has_anchor = frame["anchor_key"].is_not_null().to_numpy()[rollouts.row]
        invalid = np.zeros(len(rollouts.row), bool)
        if "is_action_valid" in frame.columns:
            valid = frame["is_action_valid"].fill_null(True).to_numpy()
            invalid = ~valid[rollouts.row]
        _say_repeated_reward(frame, rollouts, notes)
    return Prepared(frame, loaded, rollouts, outcomes, has_anchor, invalid, settings, notes)


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
