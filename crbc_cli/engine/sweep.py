"""Which methods are compared under which settings: the rows of a comparison.

    --sweep depth=0,1,inf                a run option
    --sweep graphgpo.omega=0.1,0.8       an option of one method, by its label
    --sweep anchor=observation,observation+inventory

Every combination is a setting. A method that a swept option does not touch is one row, not one
per setting: a row shows only what it depends on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from itertools import product
from typing import Any

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.reader import Reader
from crbc_cli.errors import OptionError
from crbc_cli.logs.sources import Source
from crbc_cli.methods.registry import Chosen, parse_methods
from crbc_cli.notes import Notes
from crbc_cli.options import CreditOptions, Settings, option_groups, parse_depth

__all__ = ["SCORES", "Entry", "plan_entries", "score_of"]

SCORES = ("credit", "step_credit", "advantage")
"""Numbers that methods can be compared by."""


@dataclass(frozen=True)
class Entry:
    """One method under one setting.

    Attributes:
      label: of the method.
      setting: swept options it depends on, as typed.
      chosen: the method with its options.
      reading: which of the readers it is computed on.
      score: the number it is compared by, one of SCORES.
    """

    label: str
    setting: Mapping[str, str]
    chosen: Chosen
    reading: int
    score: str

    @property
    def name(self) -> str:
        """Label and setting."""
        own = {k.removeprefix(f"{self.label}."): v for k, v in self.setting.items()}
        return " ".join([self.label, *(f"{k}={v}" for k, v in own.items())])


def score_of(chosen: Chosen, score: str | None) -> str:
    """The number a method is compared by: `score`, or what its kind says.

    Raises:
      OptionError: no such number, or one that a trajectory method does not have.
    """
    kind = chosen.method.kind
    if score is None:
        return "step_credit" if kind == "step" else "advantage"
    if score not in SCORES:
        raise OptionError(f"--score {score!r} is not known", todo=f"use one of {', '.join(SCORES)}")
    if kind == "trajectory" and score != "advantage":
        raise OptionError(
            f"{chosen.label} gives no {score}, only advantage",
            todo="leave --score out, or leave the method out",
        )
    return score


def plan_entries(
    sources: Sequence[Source],
    settings: Settings,
    methods: str,
    sweeps: Sequence[str],
    score: str | None,
    clock: Clock,
    notes: Notes,
) -> tuple[list[Reader], list[Entry]]:
    """Readings of the log and the rows to compute on them.

    Args:
      sources: the log.
      settings: of the run.
      methods: as `crbc_cli.methods.registry.parse_methods` takes them.
      sweeps: `KEY=VALUE,VALUE`, several in one text separated by spaces.
      score: one of SCORES, or None for what each method's kind says.
      clock, notes: filled while reading.
    Returns:
      (readers, entries): entries by method, then in the order of the sweep.
    Raises:
      OptionError: a method, key or value that is not known.
    """
    readers: dict[Settings, Reader] = {}
    reached: dict[tuple[str, int, Any], list[dict[str, str]]] = {}
    found: dict[tuple[str, int, Any], Chosen] = {}
    for assigned in _assignments(sweeps):
        varied, specs = _applied(settings, methods, assigned)
        key = _read_by(varied)
        if key not in readers:
            readers[key] = Reader.open(sources, key, clock, notes)
        reading = list(readers).index(key)
        group_advantage = readers[key].settings.group_advantage
        for chosen in parse_methods(specs, varied.credit, group_advantage):
            identity = chosen.label, reading, chosen.options
            found[identity] = chosen
            reached.setdefault(identity, []).append(assigned)
    labels = list(dict.fromkeys(label for label, _, _ in found))
    entries = [
        Entry(
            chosen.label,
            _common(reached[identity]),
            chosen,
            identity[1],
            score_of(chosen, score),
        )
        for identity, chosen in sorted(found.items(), key=lambda item: labels.index(item[0][0]))
    ]
    return list(readers.values()), entries


def _read_by(settings: Settings) -> Settings:
    """The settings without options that belong to the method `crbc` alone."""
    intermediate = settings.credit.intermediate_rewards
    return replace(settings, credit=CreditOptions(intermediate_rewards=intermediate))


def _common(assigned: Sequence[dict[str, str]]) -> dict[str, str]:
    """What all of them say."""
    return {k: v for k, v in assigned[0].items() if all(other[k] == v for other in assigned)}


def _assignments(sweeps: Sequence[str]) -> list[dict[str, str]]:
    """Every combination of the swept values."""
    values: dict[str, list[str]] = {}
    for word in " ".join(sweeps).split():
        key, equals, texts = word.partition("=")
        listed = [text for text in texts.split(",") if text]
        if not (equals and key and listed):
            raise OptionError(
                f"--sweep {word!r} is not KEY=VALUE,VALUE", todo="for example --sweep depth=0,1,inf"
            )
        values.setdefault(key.replace("-", "_"), []).extend(listed)
    lists = [list(dict.fromkeys(listed)) for listed in values.values()]
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*lists)]


def _applied(settings: Settings, methods: str, assigned: dict[str, str]) -> tuple[Settings, str]:
    """Settings and method specifications with the swept values in them."""
    for key, text in assigned.items():
        label, dot, option = key.rpartition(".")
        if dot:
            methods = _with_method_option(methods, label, option, text)
        else:
            settings = _with_run_option(settings, key, text)
    return settings, methods


def _with_method_option(methods: str, label: str, option: str, text: str) -> str:
    specs = [spec.strip() for spec in methods.split(",") if spec.strip()]
    labels = [parse_methods(spec)[0].label for spec in specs]
    if label not in labels:
        raise OptionError(
            f"--sweep {label}.{option}: no method is called {label!r}",
            todo=f"use one of {', '.join(labels)}",
        )
    at = labels.index(label)
    return ",".join([*specs[:at], f"{specs[at]}:{option}={text}", *specs[at + 1 :]])


def _with_run_option(settings: Settings, key: str, text: str) -> Settings:
    for group in option_groups():
        own = getattr(settings, group)
        option = next((f for f in fields(own) if f.name == key), None)
        if option is None:
            continue
        if group == "log":
            raise OptionError(f"--sweep {key}: what belongs together is set once per run")
        return replace(settings, **{group: replace(own, **{key: _value(option, text)})})
    raise OptionError(
        f"--sweep {key}: no such option", todo="name a run option, or METHOD.OPTION of one method"
    )


def _value(option: Field[Any], text: str) -> Any:
    """A swept value as its option's type has it; members of a list are joined by `+`."""
    if isinstance(option.default, tuple):
        return tuple(text.split("+"))
    read: Callable[[str], Any] = _READERS.get(type(option.default), str)
    try:
        return parse_depth(text) if option.name == "depth" else read(text)
    except (ValueError, KeyError):
        raise OptionError(f"--sweep {option.name}: {text!r} is no value of it") from None


_READERS: dict[type, Callable[[str], Any]] = {
    bool: lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
    int: int,
    float: float,
}
