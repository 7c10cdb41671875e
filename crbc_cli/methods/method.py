"""What every estimator gives back, and how it is described.

A method is one module with a pure function

    compute(evidence, options, group_advantage) -> StepCredit

over many groups at once: no loop over rows, visits or groups, and no number of a group depends on
the groups beside it. What A_G a method is combined with is its `trajectory` rule; the combination
itself is `StepCredit.advantage`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crbc_cli.errors import OptionError
from crbc_cli.methods.evidence import Evidence
from crbc_cli.options import LARGEST, MOST, GroupAdvantageOptions, refuse_beyond

__all__ = [
    "Method",
    "MethodOptions",
    "StepCredit",
    "same_mode",
    "setting",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StepCredit:
    """Numbers of one method, one entry per visit of the process; NaN where it has no such number.

    Attributes:
      state_value: float64 (n,), V of the visit's anchor.
      action_value: float64 (n,), Q of its (anchor, action), or the visit's own raw signal.
      credit: float64 (n,), the signal less its baseline, before any scaling.
      step_credit: float64 (n,), A_S.
      trajectory_weight: what A_G is multiplied by, one number or float64 (n,).
      step_weight: what A_S is multiplied by.
    """

    state_value: Floats
    action_value: Floats
    credit: Floats
    step_credit: Floats
    trajectory_weight: Floats | float = 1.0
    step_weight: float = 1.0

    @classmethod
    def none(cls, visits: int) -> "StepCredit":
        """No step signal: A_G alone."""
        nothing = np.full(visits, np.nan)
        return cls(nothing, nothing, nothing, nothing, step_weight=0.0)

    def advantage(self, group_advantage: Floats) -> Floats:
        """w_G·A_G + w_S·A_S, float64 (n,); a missing A_S counts as 0, a missing A_G does not."""
        step = np.where(np.isnan(self.step_credit), 0.0, self.step_credit)
        advantage: Floats = self.trajectory_weight * group_advantage + self.step_weight * step
        return advantage


def setting(
    default: Any,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """One option of a method: its default, what it does, and which values it may have."""
    metadata = {"help": text, "choices": choices, "metavar": "", "low": low, "high": high}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class MethodOptions:
    """Base of the options of a method; checks each value against its `setting`.

    Raises:
      OptionError: a value that is not among the choices or outside the range.
    """

    def __post_init__(self) -> None:
        for f in fields(self):
            value, choices = getattr(self, f.name), f.metadata["choices"]
            if choices and value not in choices:
                raise OptionError(
                    f"{f.name} {value!r} is not known", todo=f"use one of {', '.join(choices)}"
                )
            if isinstance(value, int | float):
                refuse_beyond(f.name, value, MOST if isinstance(f.default, int) else LARGEST)
            low, high = f.metadata["low"], f.metadata["high"]
            if value is None or (low is None and high is None):
                continue
            if not (-np.inf if low is None else low) <= value <= (np.inf if high is None else high):
                allowed = f"at least {low}" if high is None else f"in [{low}, {high}]"
                raise OptionError(f"{f.name} {value} is not {allowed}")


Compute = Callable[[Evidence, Any, Floats], StepCredit]
Trajectory = Callable[[Any, GroupAdvantageOptions], GroupAdvantageOptions | None]


@dataclass(frozen=True)
class Method:
    """One estimator.

    Attributes:
      name: as typed on the command line.
      kind: "trajectory" if all steps of a rollout get one number, else "step".
      summary: what its signal is, one line.
      source: paper and code it follows.
      notes: where paper and code differ, and what is not reproduced.
      options: dataclass of its options.
      compute: (evidence, options, group_advantage) -> StepCredit. `group_advantage` is float64
        (n,), the method's own A_G at the visits; zeros where `trajectory` gives None.
      trajectory: (options, those of the run) -> how its A_G is computed; None: it has none.
      per_run: names of options that are set once per run, never for one method.
      needs: (options) -> what else must be given: "texts" (`Evidence.anchor_texts`), "terminal"
        (`Evidence.terminal_state`), "log" (all groups of the log in one process).
    """

    name: str
    kind: Literal["trajectory", "step"]
    summary: str
    source: str
    notes: str
    options: type
    compute: Compute
    trajectory: Trajectory
    per_run: frozenset[str] = frozenset()
    needs: Callable[[Any], frozenset[str]] = lambda options: frozenset()


def same_mode(norm: str, run: GroupAdvantageOptions) -> GroupAdvantageOptions:
    """A_G scaled by its std if the step term is, mean only if not, as the verl-agent family does.

    Everything else about A_G (statistics, ddof, eps, penalties, singletons) is the run's.
    """
    return replace(run, estimator="grpo" if norm == "mean_std" else "dr-grpo")
