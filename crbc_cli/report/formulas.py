"""The formulas behind one step's numbers, with the numbers filled in, as plain ASCII text.

Source of each rule: CRBC (arXiv 2609.35082), eqs. 4 and 6-10 (values), 13-15 (step credit and
combination).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from crbc_cli.engine.explanation import ActionFacts, AnchorFacts, StepExplanation, Successor
from crbc_cli.options import GroupAdvantageOptions
from crbc_cli.report.naming import action_names, anchor_names, shown_actions

__all__ = ["Formula", "combination_formulas", "step_formulas", "value_formulas"]

_MOST_TERMS = 6


@dataclass(frozen=True, slots=True)
class Formula:
    """One line of the computation.

    Attributes:
      symbol: what is computed, for example `Q(a)`.
      rule: the general formula.
      filled: the same with this step's numbers, without the result; empty if nothing is computed.
      value: the result; None where there is none.
      digits: decimals the result is shown with.
      why: the reason for a result that nothing was computed for.
    """

    symbol: str
    rule: str
    filled: str
    value: float | None
    digits: int = 6
    why: str = ""

    def right_side(self) -> str:
        """For example `= 0.98 * V(M) = 0.98 * 0.653333 = 0.640267`."""
        result = "none" if self.value is None else f"{_rounded(self.value, self.digits)}"
        if self.filled:
            return f"= {self.filled} = {result}"
        return f"= {result} ({self.why})" if self.why else f"= {result}"

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {n: value for n, value in asdict(self).items() if n not in ("digits", "why")}


def step_formulas(step: StepExplanation, most: int | None = None) -> list[Formula]:
    """The computation of a step's advantage, first things first.

    Args:
      step: the step.
      most: action values to show, the step's own among them; None for all.
    """
    return [*value_formulas(step, most), *combination_formulas(step)]


def value_formulas(step: StepExplanation, most: int | None = None) -> list[Formula]:
    """The part that all visits of the step's anchor and action share: Q, V, A and A_S."""
    anchor = step.anchor
    own = step.own_action
    if anchor is None or own is None or own.credit is None:
        return []
    return [*_values(step, anchor, own, most), *_step_credit(step, anchor, own)]


def _values(
    step: StepExplanation, anchor: AnchorFacts, own: ActionFacts, most: int | None
) -> list[Formula]:
    depth = step.group.settings.credit.depth
    q, v = ("Q", "V") if depth == math.inf else (f"Q^{depth:.0f}", f"V^{depth:.0f}")
    lines, names = [], action_names(anchor)
    for index in shown_actions(anchor, own, most):
        action = anchor.actions[index]
        rule, filled = _local(anchor, action) if depth == 0 else _backup(step, action)
        lines.append(Formula(f"{q}({names[index]})", rule, filled, action.action_value))
    mean = _weighted(anchor, [_number(a.action_value or 0.0) for a in anchor.actions])
    return [
        *lines,
        Formula(v, f"sum_a N(s,a)/N(s) * {q}(a)", mean, anchor.state_value),
        Formula(
            f"A({names[anchor.actions.index(own)]})",
            f"{q}(a) - {v}",
            f"{_number(own.action_value or 0.0)} - {_number(anchor.state_value or 0.0)}",
            own.credit,
        ),
    ]


def _local(anchor: AnchorFacts, action: ActionFacts) -> tuple[str, str]:
    """Depth 0: (rule, filled) of the mean suffix return."""
    index = anchor.actions.index(action)
    returns = [_number(x.suffix_return) for x in anchor.visits if x.action_index == index]
    return "mean of the suffix returns G of its visits", f"({_sum(returns)}) / {action.count}"


def _backup(step: StepExplanation, action: ActionFacts) -> tuple[str, str]:
    """Depth 1 and more: (rule, filled) of one Bellman backup."""
    options = step.group.settings.credit
    before = "V" if options.depth == math.inf else f"V^{options.depth - 1:.0f}"
    names = {a: f"{before}({name})" for a, name in anchor_names(step.group.anchors).items()}

    def total(terms: Sequence[str]) -> str:
        if len(terms) == 1:
            return terms[0]
        counted = zip(action.successors, terms, strict=True)
        return f"({_sum([f'{x.count}/{action.count} * {term}' for x, term in counted])})"

    symbols = total(
        [names[x.anchor] if x.anchor is not None else str(x.boundary) for x in action.successors]
    )
    numbers = total([_worth(x) for x in action.successors])
    reward, rule = "", f"discount * sum_x N(s,a,x)/N(s,a) * {before}(x)"
    if action.reward is not None:
        reward, rule = f"{_number(action.reward)} + ", f"mean reward + {rule}"
    discount = f"{options.discount:g}"
    return rule, f"{reward}{discount} * {symbols} = {reward}{discount} * {numbers}"


def _worth(successor: Successor) -> str:
    value = successor.value or 0.0
    return _number(value) if successor.boundary is None else f"{value:g}"


def _step_credit(step: StepExplanation, anchor: AnchorFacts, own: ActionFacts) -> list[Formula]:
    options, penalties = step.group.settings.credit, step.group.settings.group_advantage
    name = action_names(anchor)[anchor.actions.index(own)]
    credit, symbol, lines = own.credit or 0.0, f"A({name})", []
    if penalties.invalid_penalty in ("step", "both"):
        size = penalties.penalty / penalties.success_reward
        filled = f"{_number(credit)} - {size:g} * ({own.invalid:.4f} - {anchor.invalid:.4f})"
        credit -= size * (own.invalid - anchor.invalid)
        symbol = f"A'({name})"
        rule = "A(a) - penalty * (invalid share of a - invalid share of the anchor)"
        lines.append(Formula(symbol, rule, filled, credit))
    squares = _weighted(anchor, [f"{_number(a.sigma_credit)}^2" for a in anchor.actions])
    closure = " of the closure" if options.sigma == "closure" else ""
    lines.append(
        Formula(
            "sigma", f"sqrt(sum_a N(s,a)/N(s) * A(a)^2){closure}", f"sqrt({squares})", anchor.sigma
        )
    )
    zeroed = step.group.group_status == "singleton" and penalties.singleton == "zero"
    if step.step.carried_from is not None and step.group.settings.anchor.thoughts == "zero":
        zeroed = True
    filled = f"{_number(credit)} / max({_number(anchor.sigma)}, {options.floor:g})"
    lines.append(
        Formula(
            "A_S",
            f"gate * {symbol.split('(')[0]}(a) / max(sigma, floor)",
            filled if anchor.gate and not zeroed else "",
            step.step.step_credit,
            4,
            "gate closed" if not anchor.gate else "set to 0" if zeroed else "",
        )
    )
    return lines


def combination_formulas(step: StepExplanation) -> list[Formula]:
    """The part of its own: A_G and the advantage."""
    options, numbers, terms = step.group.settings, step.step, step.trajectory
    rule = {
        "grpo": "(score - mean) / (std + eps)",
        "dr-grpo": "score - mean",
        "rloo": "(score - mean) * n / (n - 1)",
    }[options.group_advantage.estimator]
    filled = ""
    if terms is not None and terms.divisor is not None:
        filled = f"({_number(terms.score)} - {_number(terms.mean)})"
        filled += _divided(terms.divisor, options.group_advantage)
    lines = [Formula("A_G", rule, filled, numbers.group_advantage, 4, _no_term(step))]
    credit, filled = options.credit, ""
    if numbers.group_advantage is not None:
        filled = f"{credit.w_g:g} * {_number(numbers.group_advantage, 4)}"
        if numbers.step_credit is not None:
            filled += f" + {credit.w_s:g} * {_number(numbers.step_credit, 4)}"
    lines.append(Formula("advantage", "w_g * A_G + w_s * A_S", filled, numbers.advantage, 4))
    return lines


def _divided(divisor: float, options: GroupAdvantageOptions) -> str:
    """What score - mean is divided by, eps apart from the std."""
    if options.estimator == "dr-grpo":
        return ""
    if options.estimator == "grpo" and options.eps:
        return f" / ({divisor - options.eps:.6f} + {options.eps:g})"
    return f" / {divisor:.6f}"


def _no_term(step: StepExplanation) -> str:
    """Why a group advantage was not computed."""
    if not step.rollout.counts:
        return "the rollout does not count"
    if step.trajectory is None:
        return "one rollout counts in the group"
    return "all scores of the group are equal" if step.trajectory.divisor is None else ""


def _weighted(anchor: AnchorFacts, terms: Sequence[str]) -> str:
    """Terms of the anchor's actions, weighted by how often each was taken."""
    visits = len(anchor.visits)
    pairs = zip(anchor.actions, terms, strict=True)
    return _sum([f"{a.count}/{visits} * {term}" for a, term in pairs])


def _sum(terms: Sequence[str]) -> str:
    """Terms with plus signs; of many only the first few."""
    left = len(terms) - _MOST_TERMS
    shown = list(terms) if left <= 1 else [*terms[:_MOST_TERMS], f"… ({left} more)"]
    return " + ".join(shown)


def _number(value: float, digits: int = 6) -> str:
    text = _rounded(value, digits)
    return f"({text})" if text.startswith("-") else text


def _rounded(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:.{digits}f}"
