"""Episodes of classic reinforcement learning -> step table: what Minari, RLDS and D4RL share."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.endings import Endings
from crbc_cli.logs.formats.format import Remarks

__all__ = ["Episode", "episode_table", "flat_episodes"]


@dataclass(frozen=True)
class Episode:
    """T steps of one episode.

    Attributes:
      number: its id.
      observations: T or T + 1 values; the last of T + 1 is what followed the last action.
      actions: T values.
      rewards, terminated, truncated: T values each.
      success: outcome where the log has one.
      seed: of the reset, where logged.
    """

    number: Any
    observations: pl.Series
    actions: pl.Series
    rewards: Sequence[float]
    terminated: Sequence[bool]
    truncated: Sequence[bool]
    success: bool | None = None
    seed: int | None = None


def episode_table(
    dump: Dump, episodes: Iterable[Episode], group: str, remarks: Remarks
) -> pl.DataFrame:
    """All episodes as one group.

    An episode that neither terminated nor was truncated ends with the data: it counts as cut.

    Raises:
      InputError: there is no step.
    """
    endings = Endings()
    tables, seeds = [], set()
    for index, episode in enumerate(episodes):
        if not len(episode.actions):
            endings.empty += 1
            continue
        seeds.add(episode.seed)
        ended = any(episode.terminated)
        if not ended:
            endings.cut["truncated" if any(episode.truncated) else "data ends"] += 1
        tables.append(_table(episode, group, index))
    if not tables:
        raise InputError("holds no steps", dump.name)
    remarks.say(
        "group_id",
        f"all episodes are one group, {group}: it takes equal starts for granted"
        + ("; --key seed tells them by seed" if len(seeds) > 1 else ""),
    )
    table = pl.concat(tables, how="diagonal_relaxed")
    if table["success"].null_count() == table.height:
        table = table.drop("success")
    else:
        remarks.say("outcome", "success is the last infos.success or infos.is_success")
    endings.tell(remarks)
    return table.drop("seed") if seeds == {None} else table


def _table(episode: Episode, group: str, index: int) -> pl.DataFrame:
    steps = len(episode.actions)
    seen = _lists(episode.observations)
    after = seen.slice(1, steps)
    if len(after) < steps:
        after = after.extend(pl.Series(after.name, [None], dtype=after.dtype))
    last = pl.Series([False] * (steps - 1) + [True])
    ended = any(episode.terminated)
    return pl.DataFrame(
        {
            "group_id": [group] * steps,
            "rollout_id": [episode.number] * steps,
            "step": pl.Series(range(steps), dtype=pl.Int64),
            "observation": seen.head(steps),
            "action": _lists(episode.actions),
            "success": pl.Series([episode.success] * steps, dtype=pl.Boolean),
            "reward": pl.Series(episode.rewards, dtype=pl.Float64, strict=False),
            "done": last & ended,
            "truncated": last & (not ended),
            "next_observation": after,
            "seed": pl.Series([episode.seed] * steps, dtype=pl.Int64),
            "source_record": pl.Series([index] * steps, dtype=pl.Int64),
        }
    )


def _lists(values: pl.Series) -> pl.Series:
    """Arrays of a fixed length as lists."""
    return values.arr.to_list() if isinstance(values.dtype, pl.Array) else values


def flat_episodes(
    observations: pl.Series,
    actions: pl.Series,
    rewards: Sequence[float],
    terminals: Sequence[bool],
    timeouts: Sequence[bool] | None,
) -> Iterator[Episode]:
    """Episodes of flat arrays: one ends where terminals or timeouts is true. The observation after
    a last action is not logged."""
    cut = timeouts or [False] * len(terminals)
    first = number = 0
    for row, (terminal, timeout) in enumerate(zip(terminals, cut, strict=True)):
        if terminal or timeout or row + 1 == len(terminals):
            part = slice(first, row + 1)
            length = row + 1 - first
            yield Episode(
                number=number,
                observations=observations.slice(first, length),
                actions=actions.slice(first, length),
                rewards=rewards[part],
                terminated=[bool(t) for t in terminals[part]],
                truncated=[bool(t) for t in cut[part]],
            )
            first, number = row + 1, number + 1
