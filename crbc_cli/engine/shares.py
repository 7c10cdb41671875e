"""What one step's value, action value and credit are made of, by rollout and by transition."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbc_cli.options import CreditOptions
from crbc_cli.process.empirical import FAILURE, SUCCESS, EmpiricalProcess
from crbc_cli.process.shares import action_uses, sized_shares, state_uses

__all__ = [
    "EvidencePart",
    "EvidenceShares",
    "RolloutEvidence",
    "TransitionEvidence",
    "evidence_shares",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_ROUNDING = 1e-13


@dataclass(frozen=True, slots=True)
class EvidencePart:
    """What something adds to one number.

    Attributes:
      uses: discounted number of times the number uses it; for credit, Q's uses less V's.
      use_share: its share of all uses, by V and Q together for credit; these sum to 1.
      contribution: what it adds. Contributions sum to the number.
      share: size of the contribution over the sum of all sizes; `use_share` where nothing
        contributes. Shares sum to 1.
    """

    uses: float
    use_share: float
    contribution: float
    share: float


@dataclass(frozen=True, slots=True)
class RolloutEvidence:
    """What the visits of one rollout add; `rollout` is an index into the group's."""

    rollout: int
    state_value: EvidencePart
    action_value: EvidencePart
    credit: EvidencePart


@dataclass(frozen=True, slots=True)
class TransitionEvidence:
    """What one observed transition adds, or at finite depth the returns of an action's visits.

    Attributes:
      kind: "transition", or "returns": the visits of (anchor, action) with the realised outcome of
        their own continuations, where the backups end.
      anchor, action_index: what was done where.
      action: its text.
      successor: anchor it led to, None for a boundary and for returns.
      boundary: "success" or "failure", None for an anchor and for returns.
      count: N(s,a,x), or N(s,a) for returns.
    """

    kind: str
    anchor: int
    action_index: int
    action: str | None
    successor: int | None
    boundary: str | None
    count: int
    state_value: EvidencePart
    action_value: EvidencePart
    credit: EvidencePart


@dataclass(frozen=True, slots=True)
class EvidenceShares:
    """Rollouts in the group's order; transitions that are used at all, by anchor and action."""

    rollouts: tuple[RolloutEvidence, ...]
    transitions: tuple[TransitionEvidence, ...]


def evidence_shares(
    process: EmpiricalProcess,
    pair: int,
    options: CreditOptions,
    rollout: Ints,
    action: Callable[[int], tuple[int, str | None]],
) -> EvidenceShares:
    """Evidence behind the numbers of one pair and of its anchor.

    Args:
      process: one merged group.
      pair: the pair.
      options: depth and discount.
      rollout: int64 (n,), the group's index of each visit's rollout.
      action: pair -> (index among its anchor's actions, text); asked for pairs that are used.
    """
    entries = _Entries.of(process, pair, options)
    width, pairs = process.states + 2, process.pairs
    transition = process.pair * width + process.successor - FAILURE
    code, count, parts, used = entries.by(transition, pairs * width + process.pair)
    transitions = []
    for at in np.flatnonzero(used).tolist():
        returns = code[at] >= pairs * width
        of = int(code[at] - pairs * width if returns else code[at] // width)
        to = FAILURE if returns else int(code[at] % width) + FAILURE
        transitions.append(
            TransitionEvidence(
                "returns" if returns else "transition",
                int(process.pair_state[of]),
                *action(of),
                to if to >= 0 else None,
                None if returns or to >= 0 else "success" if to == SUCCESS else "failure",
                int(count[at]),
                *parts[at],
            )
        )
    code, _, parts, _ = entries.by(rollout, rollout)
    rollouts = (RolloutEvidence(i, *mine) for i, mine in zip(code.tolist(), parts, strict=True))
    return EvidenceShares(tuple(rollouts), tuple(transitions))


@dataclass(frozen=True)
class _Entries:
    """Uses and contributions of n visits, as transitions and then with their returns, (2, 2n) each:
    of V and of Q; `lone` if the two are the same because there is one action."""

    uses: Floats
    earned: Floats
    lone: bool

    @classmethod
    def of(cls, process: EmpiricalProcess, pair: int, options: CreditOptions) -> "_Entries":
        state = int(process.pair_state[pair])
        both = (
            state_uses(process, state, options.discount, options.depth),
            action_uses(process, pair, options.discount, options.depth),
        )
        return cls(
            np.stack([np.concatenate([x.backed, x.returned]) for x in both]),
            np.stack([np.concatenate(x.earned(process, options.discount)) for x in both]),
            process.state_actions[state] == 1,
        )

    def by(
        self, backed: Ints, returned: Ints
    ) -> tuple[Ints, Ints, list[tuple[EvidencePart, ...]], Bools]:
        """Sums over entries with equal codes: (codes, entries of each, (V, Q, credit), used)."""
        code, at, count = np.unique(
            np.concatenate([backed, returned]), return_inverse=True, return_counts=True
        )

        def sums(entries: Floats) -> Floats:
            return np.bincount(at, entries, len(code)).astype(np.float64)

        v, q = map(sums, self.uses)
        of_v, of_q = map(sums, self.earned)
        difference = of_q - of_v
        rounding = np.abs(difference) <= _ROUNDING * np.maximum(np.abs(of_q), np.abs(of_v))
        credit = np.where(rounding | self.lone, 0.0, difference)
        columns = [
            _parts(v, of_v, v),
            _parts(q, of_q, q),
            _parts(np.zeros(len(v)) if self.lone else q - v, credit, v + q),
        ]
        return code, count, list(zip(*columns, strict=True)), v + q > 0


def _parts(uses: Floats, contribution: Floats, weight: Floats) -> list[EvidencePart]:
    shares = sized_shares(contribution, weight)
    columns = (uses, weight / weight.sum(), contribution, shares)
    return [EvidencePart(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
