"""RLDS steps and D4RL-like flat tables, as JSON lines or Parquet.

RLDS (google-research/rlds): steps {observation, action, reward, discount, is_first, is_last,
is_terminal}, one per row or in `steps` of an episode. Action and reward of the last step are no
valid ones: it stands for the observation after the last action. is_last without is_terminal means
cut. D4RL: one row per step with `terminals` and `timeouts`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.episodes import Episode, episode_table, flat_episodes
from crbc_cli.logs.formats.format import Format, Remarks

__all__ = ["D4RL", "RLDS"]

_STEP = {"observation", "action", "is_first", "is_last"}
_IDS = ("episode_id", "episode_index")


def _is_rlds(dump: Dump) -> bool:
    if dump.keys >= _STEP:
        return True
    steps = dump.first.get("steps") if "steps" in dump.keys else None
    return (
        isinstance(steps, list)
        and bool(steps)
        and isinstance(steps[0], Mapping)
        and set(steps[0]) >= _STEP
    )


def _read_rlds(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    episodes = (_episode(n, steps) for n, steps in enumerate(_runs(dump)))
    return episode_table(dump, episodes, Path(dump.name).stem, remarks)


def _runs(dump: Dump) -> Iterator[list[Mapping[str, Any]]]:
    """Steps of each episode: nested, or from one is_first (or id) to the next."""
    run: list[Mapping[str, Any]] = []
    for _, record in dump.records():
        if "steps" in record:
            yield record["steps"]
            continue
        if run and (record.get("is_first") or _name(record) != _name(run[-1])):
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def _name(step: Mapping[str, Any]) -> Any:
    return next((step[key] for key in _IDS if key in step), None)


def _episode(number: int, steps: Sequence[Mapping[str, Any]]) -> Episode:
    whole = bool(steps) and bool(steps[-1].get("is_last"))
    acted = steps[:-1] if whole else steps
    terminal = whole and bool(steps[-1].get("is_terminal"))
    ends = [False] * max(len(acted) - 1, 0)
    name = _name(steps[0]) if steps else None
    return Episode(
        number=number if name is None else name,
        observations=pl.Series("value", [s["observation"] for s in steps], strict=False),
        actions=pl.Series("value", [s["action"] for s in acted], strict=False),
        rewards=[s.get("reward") for s in acted],  # type: ignore[misc]
        terminated=[*ends, terminal][: len(acted)],
        truncated=[*ends, whole and not terminal][: len(acted)],
    )


RLDS = Format(
    name="rlds",
    title="RLDS steps",
    writer="google-research/rlds, step fields",
    recognises=_is_rlds,
    read=_read_rlds,
    group="the file",
    rollout="from one `is_first` to the next",
    step="row",
    state="`observation`",
)


def _read_d4rl(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows = [record for _, record in dump.records()]
    columns = {name: [row.get(name) for row in rows] for name in dump.keys}
    timeouts = columns.get("timeouts")
    episodes = flat_episodes(
        pl.Series("value", columns["observations"], strict=False),
        pl.Series("value", columns["actions"], strict=False),
        columns["rewards"],
        columns["terminals"],
        timeouts,
    )
    return episode_table(dump, episodes, Path(dump.name).stem, remarks)


D4RL = Format(
    name="d4rl",
    title="flat table with terminals",
    writer="D4RL, arrays as columns",
    recognises=lambda dump: {"observations", "actions", "rewards", "terminals"} <= dump.keys,
    read=_read_d4rl,
    group="the file",
    rollout="ends at `terminals` or `timeouts`",
    step="row",
    state="`observations`",
)
