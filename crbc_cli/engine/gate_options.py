"""When a gate cuts a group, as checked options."""

import math
from dataclasses import dataclass

from crbc_cli.errors import OptionError
from crbc_cli.methods.selective_rollout import SIGNALS

__all__ = ["GateRule"]

_PAPER_THRESHOLD = 0.12


@dataclass(frozen=True)
class GateRule:
    """When a gate cuts, and how its threshold is chosen.

    Attributes:
      signal: name in `crbc_cli.methods.selective_rollout.SIGNALS`.
      thresholds: cut below this (for "terminated": at or above); empty for the paper's 0.12, or
        for nothing but the chosen ones under `select`.
      or_terminated: also cut where at least this share of rollouts ended before K.
      pad: prefixes are padded to K.
      select: choose the threshold by the paper's rule and cross-validate it.
      min_precision: that rule's least precision.
      folds, seed: of the cross-validation.
      per_group: list the groups.
    """

    signal: str = "distance"
    thresholds: tuple[float, ...] = ()
    or_terminated: float | None = None
    pad: bool = True
    select: bool = False
    min_precision: float = 0.80
    folds: int = 5
    seed: int = 0
    per_group: bool = False

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS:
            raise OptionError(
                f"--signal {self.signal!r} is not known", todo=f"use one of {', '.join(SIGNALS)}"
            )
        if not (self.thresholds or self.select or self.signal == "distance"):
            raise OptionError(
                f"--signal {self.signal} has no published threshold",
                todo="give --threshold, or choose one with --select",
            )
        if self.or_terminated is not None and self.signal == "terminated":
            raise OptionError("--or-terminated adds nothing to --signal terminated")
        for flag, share in (
            ("--or-terminated", self.or_terminated),
            ("--min-precision", self.min_precision),
        ):
            if share is not None and not 0 <= share <= 1:
                raise OptionError(f"{flag} {share:g} is outside [0, 1]")
        if not all(map(math.isfinite, self.thresholds)):
            raise OptionError("--threshold is not a finite number")
        if self.folds < 2:
            raise OptionError(f"--folds {self.folds} is below 2")
        if self.seed < 0:
            raise OptionError(f"--seed {self.seed} is negative")
        if self.per_group and len(self.thresholds) + self.select > 1:
            raise OptionError("--per-group takes one threshold", todo="give one, or only --select")

    @property
    def fixed(self) -> tuple[float, ...]:
        """Thresholds that are not chosen."""
        return self.thresholds or (() if self.select else (_PAPER_THRESHOLD,))

    @property
    def needs(self) -> list[str]:
        """Signals the rule looks at."""
        return [self.signal, *(["terminated"] if self.or_terminated is not None else [])]

    @property
    def text(self) -> str:
        """The rule in symbols; D is the threshold."""
        sign = ">=" if self.signal == "terminated" else "<"
        limit = self.or_terminated
        either = "" if limit is None else f" or terminated >= {limit:g}"
        return f"{self.signal} {sign} D{either}"
