"""Credit stages in this process: against plain implementations, and how they grow.

From keys to credit: dense ids and merging, values, step credit; reading and writing aside.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import baselines
import measure
import numpy as np
import polars as pl
import synthetic
from numpy.typing import NDArray

from crbc_cli.anchors.ids import dense_ids
from crbc_cli.engine.prepare import CHUNK_ROWS
from crbc_cli.methods.crbc import crbc
from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.gigpo import GigpoOptions, gigpo
from crbc_cli.options import CreditOptions
from crbc_cli.process.closure import exact_values
from crbc_cli.process.coverage import reachable_rollouts
from crbc_cli.process.empirical import EmpiricalProcess, Visits, build_process

_ACTIONS = 30
_GAMMA = 0.95


def visits_of(walk: dict[str, NDArray[np.int64]], seed: int = 0) -> Visits:
    """Keys of a synthetic walk; actions are drawn at random."""
    rng = np.random.default_rng(seed)
    last = walk["last"] == 1
    rollout = np.cumsum(last) - last
    success = walk["success"][last] == 1
    return Visits(
        group=walk["group"],
        rollout=rollout,
        anchor_key=pl.Series(walk["state"]).hash().to_numpy(),
        action_key=pl.Series(rng.integers(0, _ACTIONS, len(rollout))).hash().to_numpy(),
        success=success,
        boundary=success.astype(np.float64),
        dropped=np.zeros(len(success), bool),
        next_key=np.zeros(len(success), np.uint64),
        continues=np.zeros(len(success), bool),
        reward=None,
        invalid=np.zeros(len(rollout), bool),
    )


def chunks(visits: Visits) -> list[Visits]:
    """Consecutive groups, as many at a time as the program merges."""
    ends = np.flatnonzero(np.diff(visits.group, append=-1)) + 1
    found, start = [], 0
    for end in ends:
        if end - start >= CHUNK_ROWS or end == ends[-1]:
            part = visits.select(np.isin(np.arange(ends[-1]), np.arange(start, end)))
            found.append(replace(part, group=part.group - part.group[0]))
            start = end
    return found


def crbc_stage(parts: list[Visits]) -> NDArray[np.float64]:
    """Keys to CRBC's step credit."""
    merged = (build_process(part, dense_ids)[0] for part in parts)
    return np.concatenate([crbc(process, CreditOptions()).step_credit for process in merged])


def gigpo_stage(parts: list[Visits]) -> NDArray[np.float64]:
    """Keys to GiGPO's step credit."""
    credit, options = [], GigpoOptions(gamma=_GAMMA)
    for part in parts:
        process = build_process(part, dense_ids)[0]
        nothing = np.zeros(len(process.state))
        credit.append(gigpo(Evidence.from_outcomes(process), options, nothing).step_credit)
    return np.concatenate(credit)


def rows_of(visits: Visits) -> list[baselines.Row]:
    """The same as dictionaries."""
    last = np.diff(visits.rollout, append=-1) != 0
    columns = {
        "group": visits.group,
        "rollout": visits.rollout,
        "anchor": visits.anchor_key,
        "action": visits.action_key,
        "reward": np.where(last, visits.boundary[visits.rollout], 0.0),
        "success": visits.success[visits.rollout],
    }
    lists = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def against_plain_code(groups: int, repeat: int, plain_groups: int) -> dict[str, Any]:
    """Ours and the plain ones interleaved on one log, once their results were seen to agree.

    Args:
      groups: size of the log.
      repeat: runs behind each median.
      plain_groups: groups that the plain CRBC, which takes minutes, sees; its time is scaled up.
    """
    visits = visits_of(synthetic.simulate(groups, 8, 50, np.random.default_rng(0)))
    parts = chunks(visits)
    processes = [build_process(part, dense_ids)[0] for part in parts]
    rows = rows_of(visits)
    few = [row for row in rows if row["group"] < plain_groups]
    start = time.process_time()
    plain = baselines.crbc(few, CreditOptions().discount, CreditOptions().floor)
    plain_crbc = (time.process_time() - start) * len(rows) / len(few)
    np.testing.assert_allclose(crbc_stage(parts)[: len(few)], plain, atol=1e-5)
    np.testing.assert_allclose(gigpo_stage(parts), baselines.gigpo(rows, _GAMMA), atol=1e-8)
    discount = CreditOptions().discount
    for process in processes:
        dense = baselines.dense_per_group(process, discount)
        np.testing.assert_allclose(_closure(process), dense, atol=1e-10)
    found = measure.medians(
        {
            "closure": lambda: measure.seconds(lambda: [_closure(p) for p in processes]),
            "dense per group": lambda: measure.seconds(
                lambda: [baselines.dense_per_group(p, discount) for p in processes]
            ),
            "crbc": lambda: measure.seconds(lambda: crbc_stage(parts)),
            "gigpo": lambda: measure.seconds(lambda: gigpo_stage(parts)),
            "gigpo rows": lambda: measure.seconds(lambda: baselines.gigpo(rows, _GAMMA)),
        },
        repeat,
    )
    found["crbc rows"] = plain_crbc
    found["closure speed-up"] = found["dense per group"] / found["closure"]
    found["crbc speed-up"] = plain_crbc / found["crbc"]
    found["gigpo speed-up"] = found["gigpo rows"] / found["gigpo"]
    return {"groups": groups, "rows": len(rows), **found}


def _closure(process: EmpiricalProcess) -> NDArray[np.float64]:
    return exact_values(process, CreditOptions().discount)


def growth(quick: bool, repeat: int) -> dict[str, dict[str, Any]]:
    """Seconds of each stage as one dimension grows and the others stay."""
    scale = 1 if quick else 4
    walks: dict[str, dict[int, Callable[[], dict[str, NDArray[np.int64]]]]] = {
        "groups": {n: lambda n=n: _walk(n, 8, 50) for n in (50 * scale, 100 * scale, 200 * scale)},
        "rollouts per group": {
            n: lambda n=n: _walk(4, n, 50) for n in (32 * scale, 64 * scale, 128 * scale)
        },
        "steps per rollout": {
            n: lambda n=n: _walk(4, 8, n) for n in (400 * scale, 800 * scale, 1600 * scale)
        },
        "anchors per group": {n: lambda n=n: _ring(40 * scale, n) for n in (40, 160, 640)},
    }
    return {name: _grown(cases, repeat) for name, cases in walks.items()}


def _grown(
    cases: dict[int, Callable[[], dict[str, NDArray[np.int64]]]], repeat: int
) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {}
    rows = []
    for make in cases.values():
        visits = visits_of(make())
        rows.append(len(visits.rollout))
        process = build_process(visits, dense_ids)[0]
        stages = {
            "build": lambda v=visits: build_process(v, dense_ids),
            "closure": lambda p=process: _closure(p),
            "coverage": lambda p=process: reachable_rollouts(p),
        }
        timed = {name: lambda f=f: measure.seconds(f) for name, f in stages.items()}
        for name, value in measure.medians(timed, repeat).items():
            seconds.setdefault(name, []).append(value)
    sizes = list(cases)
    slopes = {name: measure.slope(sizes, values) for name, values in seconds.items()}
    return {"sizes": sizes, "rows": rows, "seconds": seconds, "slopes": slopes}


def _walk(groups: int, rollouts: int, steps: int) -> dict[str, NDArray[np.int64]]:
    """Rollouts that seldom end early, so that they are about as long as asked."""
    rng = np.random.default_rng(1)
    return synthetic.simulate(groups, rollouts, steps, rng, ends=(0.1 / steps, 0.5 / steps))


def _ring(groups: int, anchors: int) -> dict[str, NDArray[np.int64]]:
    """8 rollouts of 2,000 steps in each group, forward or back at random on a ring of anchors."""
    rng = np.random.default_rng(2)
    shape = (groups, 8, 2000)
    group, rollout, step = (axis.ravel() for axis in np.indices(shape))
    moves = np.cumsum(rng.choice([1, 1, 1, -1], shape), axis=2)
    last = (step == shape[2] - 1).astype(np.int64)
    return {
        "group": group,
        "rollout": rollout,
        "step": step,
        "state": (moves % anchors).ravel(),
        "last": last,
        "success": last * (rng.random(len(last)) < 0.5),
    }
