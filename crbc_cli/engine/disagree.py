"""Steps on which two estimators differ most, with what each of them compares there."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.prepare import Prepared
from crbc_cli.engine.sweep import Entry
from crbc_cli.engine.texts import Text
from crbc_cli.methods.agreement import disagreement

__all__ = ["Disagreement", "Numbers", "described", "farthest"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_EXCERPT = 200


@dataclass(frozen=True)
class Numbers:
    """One entry's numbers of all rows, (n,) each, in canonical order; NaN and -1 are null.

    Attributes:
      score: float64, what the entry is compared by.
      credit, state_value, action_value: float64.
      anchor, visits, actions: int32.
    """

    score: Floats
    credit: Floats
    state_value: Floats
    action_value: Floats
    anchor: NDArray[np.int32]
    visits: NDArray[np.int32]
    actions: NDArray[np.int32]


@dataclass(frozen=True)
class Disagreement:
    """One step.

    Attributes:
      place: `file:line` or `file row n`.
      group_id, rollout_id, step: as in the input.
      observation, action: the beginning of their text; None where the row has none.
      a, b: the two numbers.
      apart: how far apart they are once each method is scaled to mean square 1.
      why_a, why_b: what each method compares there.
    """

    place: str
    group_id: str | int
    rollout_id: str | int
    step: int
    observation: str | None
    action: str | None
    a: float
    b: float
    apart: float
    why_a: str
    why_b: str

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def farthest(a: Floats, b: Floats, pair: Ints, most: int) -> Ints:
    """Positions of the steps farthest apart, the farthest first, one per (anchor, action).

    Args:
      a, b: float64 (n,), numbers of two entries, NaN where a step has none.
      pair: int64 (n,), distinct (anchor, action) of each step, negative where there is none.
      most: how many steps.
    Returns:
      int64 (at most `most`,).
    """
    apart = disagreement(a, b)
    candidates = np.flatnonzero((np.nan_to_num(apart) > 0) & (pair >= 0))
    order = candidates[np.argsort(-apart[candidates], kind="stable")]
    first = np.sort(np.unique(pair[order], return_index=True)[1])
    return order[first[:most]]


def described(
    log: Prepared,
    entries: tuple[Entry, Entry],
    numbers: tuple[Numbers, Numbers],
    positions: Ints,
    texts: Mapping[int, Text],
) -> list[Disagreement]:
    """Steps with what stands there and what each of two entries compares.

    Args:
      log: the log, possibly regrouped.
      entries, numbers: the two.
      positions: canonical positions of the steps.
      texts: by row of the frame.
    """
    apart = disagreement(numbers[0].score, numbers[1].score)
    frame = log.frame
    found = []
    for position in positions.tolist():
        row = int(log.rollouts.row[position])
        observation, action = texts[row]
        success = bool(log.outcomes.success[log.rollouts.rollout[position]])
        whys = [_why(e, n, position, success) for e, n in zip(entries, numbers, strict=True)]
        found.append(
            Disagreement(
                log.loaded.place(row),
                frame["group_id"][row],
                frame["rollout_id"][row],
                int(log.rollouts.step[position]),
                _beginning(observation),
                _beginning(action),
                float(numbers[0].score[position]),
                float(numbers[1].score[position]),
                float(apart[position]),
                whys[0],
                whys[1],
            )
        )
    return found


def _why(entry: Entry, numbers: Numbers, position: int, success: bool) -> str:
    """What the method compares at a step, with its numbers filled in."""
    method, ended = entry.chosen.method, "succeeded" if success else "failed"
    if method.kind == "trajectory" or np.isnan(numbers.state_value[position]):
        return f"{method.summary}; its rollout {ended}"
    visits, actions = int(numbers.visits[position]), int(numbers.actions[position])
    seen = f"{visits} visit{'s' * (visits != 1)}, {actions} action{'s' * (actions != 1)}"
    values = f"{numbers.action_value[position]:.4g} against {numbers.state_value[position]:.4g}"
    return f"{method.summary}: {values} ({seen}; its rollout {ended})"


def _beginning(text: str | None) -> str | None:
    return text if text is None or len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…"
