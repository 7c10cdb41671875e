"""Every estimator by name, and method specifications as typed.

    [LABEL=]NAME[:KEY=VALUE]…        base=crbc:depth=0        gigpo:gamma=0.95:norm=mean

Dashes and underscores are the same in names, keys and values.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_cli.errors import OptionError
from crbc_cli.methods.crbc import CRBC
from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.g2po import G2PO
from crbc_cli.methods.gated_bepo import GATED_BEPO
from crbc_cli.methods.gigpo import GIGPO
from crbc_cli.methods.graphgpo import GRAPHGPO
from crbc_cli.methods.hgpo import HGPO
from crbc_cli.methods.method import Method, StepCredit
from crbc_cli.methods.rewardflow import REWARDFLOW
from crbc_cli.methods.rtmc import RTMC
from crbc_cli.options import CreditOptions, GroupAdvantageOptions, parse_depth

__all__ = ["METHODS", "Chosen", "describe", "parse_method", "parse_methods"]

_RUN_REWARD = frozenset(["estimator", "reward", "success_reward", "singleton"])


def _trajectory_level(name: str, summary: str, source: str) -> Method:
    """A_G alone, by one estimator of `crbc_cli.methods.trajectory`."""
    return Method(
        name=name,
        kind="trajectory",
        summary=summary,
        source=source,
        notes="Statistics, ddof, eps and penalties are the run's unless given here.",
        options=GroupAdvantageOptions,
        compute=lambda evidence, options, group_advantage: StepCredit.none(len(group_advantage)),
        trajectory=lambda options, run: replace(options, estimator=name),
        per_run=_RUN_REWARD,
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        CRBC,
        _trajectory_level(
            "grpo",
            "reward against the group's mean, over its std",
            "GRPO (arXiv 2402.03300), verl verl/trainer/ppo/core_algos.py",
        ),
        _trajectory_level(
            "dr-grpo",
            "reward less the group's mean",
            "Dr.GRPO (arXiv 2503.20783), verl with norm_adv_by_std_in_grpo=False",
        ),
        _trajectory_level(
            "rloo",
            "reward less the mean of the group's others",
            "RLOO (arXiv 2402.14740), verl verl/trainer/ppo/core_algos.py",
        ),
        GIGPO,
        GRAPHGPO,
        G2PO,
        GATED_BEPO,
        HGPO,
        RTMC,
        REWARDFLOW,
    )
}
"""All methods, by name."""


@dataclass(frozen=True)
class Chosen:
    """One method with its options, as asked for.

    Attributes:
      label: prefix of its columns when there are several.
      method: which.
      options: an instance of `method.options`.
    """

    label: str
    method: Method
    options: Any

    def compute(self, evidence: Evidence, group_advantage: NDArray[np.float64]) -> StepCredit:
        """See `Method.compute`."""
        return self.method.compute(evidence, self.options, group_advantage)

    def trajectory(self, run: GroupAdvantageOptions) -> GroupAdvantageOptions | None:
        """How its A_G is computed, or None if it has none."""
        return self.method.trajectory(self.options, run)

    @property
    def needs(self) -> frozenset[str]:
        """See `Method.needs`."""
        return self.method.needs(self.options)

    def echo(self) -> dict[str, Any]:
        """Name and resolved options, for an output's metadata; infinity is written as "inf"."""
        values = {public: getattr(self.options, f.name) for public, f in _own(self.method).items()}
        return {
            "method": self.method.name,
            **{k: "inf" if v == float("inf") else v for k, v in values.items()},
        }


def parse_methods(
    text: str | Sequence[str],
    credit: CreditOptions | None = None,
    group_advantage: GroupAdvantageOptions | None = None,
) -> tuple[Chosen, ...]:
    """Specifications, each as in `parse_method`: a sequence, or one string with commas.

    Raises:
      OptionError: nothing is named, or two have the same label or a column of the same name.
    """
    listed = text.split(",") if isinstance(text, str) else text
    parts = [part.strip() for part in listed if part.strip()]
    chosen = tuple(parse_method(part, credit, group_advantage) for part in parts)
    if not chosen:
        raise OptionError("no method is named", todo=f"use some of {', '.join(METHODS)}")
    labels = [one.label for one in chosen]
    for label in labels:
        if labels.count(label) > 1:
            raise OptionError(
                f"two methods are called {label!r}",
                todo=f"give one a label, for example {label}2={label}",
            )
        # A column a_group_advantage would be the group advantage of a and the advantage of a_group.
        for word in ("group", "step"):
            if f"{label}_{word}" in labels:
                raise OptionError(
                    f"the labels {label} and {label}_{word} give columns of the same name",
                    todo="choose another label",
                )
    return chosen


def parse_method(
    text: str,
    credit: CreditOptions | None = None,
    group_advantage: GroupAdvantageOptions | None = None,
) -> Chosen:
    """One specification `[LABEL=]NAME[:KEY=VALUE]…`.

    Args:
      text: as typed.
      credit, group_advantage: the run's options, which `crbc` and the trajectory-level methods
        start from.
    Returns:
      The method; its label is the name with dashes turned to underscores unless one is given.
    Raises:
      OptionError: an unknown name, key or value, or a key that is set once per run.
    """
    head, *pairs = text.strip().split(":")
    label, _, name = head.rpartition("=")
    name = _dashed(name)
    if name not in METHODS:
        known = f"use one of {', '.join(METHODS)}"
        if label in {own for method in METHODS.values() for own in _own(method)}:
            known = f"a method's settings stand behind colons, as in crbc:{label}={name}"
        raise OptionError(f"method {name!r} is not known", todo=known)
    label = (label.strip() or name).replace("-", "_")
    if not re.fullmatch(r"\w+", label):
        raise OptionError(
            f"label {label!r} is not a column prefix", todo="use letters, digits and underscores"
        )
    method = METHODS[name]
    start: Any = {CreditOptions: credit, GroupAdvantageOptions: group_advantage}.get(method.options)
    try:
        values = dict(_assignment(method, pair) for pair in pairs)
        options = replace(start or method.options(), **values)
    except OptionError as error:
        raise OptionError(f"{name}: {error.what.removeprefix('--')}", todo=error.todo) from error
    return Chosen(label, method, options)


def describe() -> list[dict[str, Any]]:
    """All methods with options, defaults and sources, ready for JSON."""
    return [
        {
            "name": method.name,
            "label": method.name.replace("-", "_"),
            "kind": method.kind,
            "summary": method.summary,
            "source": method.source,
            "notes": method.notes,
            "options": [
                {
                    "name": name,
                    "default": "inf" if f.default == float("inf") else f.default,
                    "choices": list(f.metadata["choices"]),
                    "help": f.metadata["help"],
                }
                for name, f in _own(method).items()
            ],
        }
        for method in METHODS.values()
    ]


def _own(method: Method) -> dict[str, Field[Any]]:
    """Options that can be given for one method, by the name they are typed with."""
    return {f.name.rstrip("_"): f for f in fields(method.options) if f.name not in method.per_run}


def _assignment(method: Method, pair: str) -> tuple[str, Any]:
    key, equals, text = (part.strip() for part in pair.partition("="))
    key = key.replace("-", "_")
    own = _own(method)
    if key in method.per_run:
        raise OptionError(
            f"{key} is set once per run, not for one method",
            todo=f"use --{key.replace('_', '-')}",
        )
    if not equals or key not in own:
        raise OptionError(
            f"option {pair!r} is not known", todo=f"use KEY=VALUE with one of {', '.join(own)}"
        )
    return own[key].name, _value(own[key], key, text)


def _value(f: Field[Any], key: str, text: str) -> Any:
    if f.metadata["choices"]:
        return next((c for c in f.metadata["choices"] if _dashed(c) == _dashed(text)), text)
    read: Callable[[str], Any] = _READERS.get(type(f.default), float)
    if key == "depth":
        read = parse_depth
    try:
        value = read(text)
        if key == "depth" or math.isfinite(value):
            return value
        raise ValueError
    except (ValueError, KeyError):
        kind = {bool: "true or false", int: "a whole number"}.get(type(f.default), "a number")
        raise OptionError(f"{key} {text!r} is not {kind}") from None


_READERS: dict[type, Callable[[str], Any]] = {
    int: int,
    bool: lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
}


def _dashed(text: str) -> str:
    return text.strip().lower().replace("_", "-")
