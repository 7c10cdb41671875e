"""Command-line options made from the option dataclasses, so that each is declared once.

`@log_command` gives a command the `LOGS` argument, every option that changes a number, and the
options all commands share; its body gets one `Run` and the command's own options.
"""

import inspect
import math
import os
import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, get_args

import typer

from crbc_cli.cli.config import warn_of_unknown_variables
from crbc_cli.errors import OptionError
from crbc_cli.options import (
    MOST,
    REPEATED,
    AnchorOptions,
    ConventionOptions,
    CreditOptions,
    GroupAdvantageOptions,
    LogOptions,
    OutcomeOptions,
    Settings,
    UncertaintyOptions,
    flag_of,
    parse_depth,
    refuse_beyond,
)

__all__ = [
    "LISTED",
    "Run",
    "complete_methods",
    "complete_presets",
    "completing",
    "log_command",
    "parse_depths",
    "refuse_long",
    "settings_of",
]

_PANELS: dict[str, tuple[str, type]] = {
    "conventions": ("Conventions", ConventionOptions),
    "log": ("Groups and rows", LogOptions),
    "anchor": ("Anchors and actions", AnchorOptions),
    "outcome": ("Outcomes and endings", OutcomeOptions),
    "group_advantage": ("Group advantage", GroupAdvantageOptions),
    "credit": ("Closure and step credit", CreditOptions),
    "uncertainty": ("Uncertainty", UncertaintyOptions),
}
_MAP_COMMA = re.compile(r",(?=\w+=)")
"""`--map a=x,b=y` names two columns; a comma before anything else belongs to a column's name."""

_UNCERTAINTY = tuple(f.name for f in fields(UncertaintyOptions))

LISTED = frozenset(
    f.name for _, kind in _PANELS.values() for f in fields(kind) if isinstance(f.default, tuple)
)
"""Options that take several values."""


@dataclass
class Run:
    """What every command on logs is given.

    Attributes:
      logs: the inputs as typed.
      settings: all options that change numbers.
      strict: warnings end in exit code 1.
      quiet: no summary and no remarks on stderr.
      profile: print the stage table on stderr at the end.
    """

    logs: list[str]
    settings: Settings
    strict: bool = False
    quiet: bool = False
    profile: bool = False


def log_command(
    app: typer.Typer,
    name: str,
    *,
    leave_out: Sequence[str] = (),
    uncertainty: bool = False,
    epilog: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a command on logs.

    Args:
      app: where.
      name: the verb.
      leave_out: option names the command does not take (they keep their defaults).
      uncertainty: it shows how sure its numbers are, so it takes those options.
      epilog: a worked example, shown under the help.
    """
    unused = {*leave_out, *(() if uncertainty else _UNCERTAINTY)}

    def register(body: Callable[..., None]) -> Callable[..., None]:
        shared = [p for p in _setting_parameters() if p.name not in unused]
        own = [
            _with_variable(p.replace(kind=p.KEYWORD_ONLY))
            for p in list(inspect.signature(body, eval_str=True).parameters.values())[1:]
        ]
        common = _common_parameters()

        def command(context: typer.Context, **values: Any) -> None:
            if values.pop("debug"):
                os.environ["CRBC_DEBUG"] = "1"
            settings = replace(
                _settings({p.name: values.pop(p.name) for p in shared}),
                explicit=frozenset(p.name for p in shared if _was_given(context, p.name)),
            )
            logs, strict, quiet, profile = (values.pop(p.name) for p in common[:-1])
            if not quiet:
                warn_of_unknown_variables(context)
            body(Run(list(logs or []), settings, strict, quiet, profile), **values)

        command.__doc__ = body.__doc__
        command.__name__ = body.__name__
        here = _parameter("context", typer.Context, inspect.Parameter.empty)
        parameters = [here, common[0], *own, *shared, *common[1:]]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(name, epilog=epilog)(command)
        return body

    return register


def settings_of(context: typer.Context) -> Settings:
    """Settings among the parsed options of a command; those it does not take have their defaults.

    Raises:
      OptionError: a value that its option does not allow.
    """
    panels = {title for title, _ in _PANELS.values()}
    shared = [p.name for p in context.command.params if getattr(p, "rich_help_panel", "") in panels]
    return _settings({name: context.params[name] for name in shared if name is not None})


def _was_given(context: typer.Context, name: str) -> bool:
    """On the command line, in the environment or in a config file."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _with_variable(parameter: inspect.Parameter) -> inspect.Parameter:
    """A command's own option gets its environment variable, named after its flag."""
    kind, option = get_args(parameter.annotation)
    if option.envvar is not None:
        return parameter
    # Inside Annotated the first flag stands where typer has an option's default.
    flags = [f for f in (option.default, *(option.param_decls or ())) if isinstance(f, str)]
    flag = max(flags or [parameter.name], key=len)
    option = copy(option)
    option.envvar = f"CRBC_{flag.strip('-').replace('-', '_').upper()}"
    option.show_envvar = False
    return parameter.replace(annotation=Annotated[kind, option])


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _common_parameters() -> list[inspect.Parameter]:
    def flag(name: str, text: str, *short: str) -> inspect.Parameter:
        option = typer.Option(
            f"--{name}", *short, help=text, envvar=f"CRBC_{name.upper()}", show_envvar=False
        )
        return _parameter(name, Annotated[bool, option], False)

    logs = typer.Argument(
        help="Files, folders, quoted globs, @list.txt or - (stdin).", show_default=False
    )
    return [
        _parameter("logs", Annotated[list[str] | None, logs], None),
        flag("strict", "Exit 1 when there is a warning."),
        flag("quiet", "Print nothing on stderr but errors.", "-q"),
        flag("profile", "Print time per stage and peak memory on stderr."),
        flag("debug", "Show the traceback of an error."),
    ]


def _setting_parameters() -> list[inspect.Parameter]:
    parameters = []
    for panel, kind in _PANELS.values():
        for f in fields(kind):
            option = flag_of(f.name)
            declared: dict[str, Any] = {
                "help": f.metadata["help"],
                "rich_help_panel": panel,
                "envvar": f"CRBC_{f.name.rstrip('_').upper()}",
                "show_envvar": False,
                "show_default": _default_text(f.default),
            }
            if f.metadata["choices"]:
                declared["autocompletion"] = completing(f.metadata["choices"])
            elif f.name == "preset":
                declared["autocompletion"] = complete_presets
            elif f.name == "from_":
                declared["autocompletion"] = complete_formats
            if f.metadata["metavar"]:
                declared["metavar"] = f.metadata["metavar"]
            elif f.metadata["choices"] and not isinstance(f.default, tuple):
                declared["metavar"] = "|".join(f.metadata["choices"])
            annotation, default = _typer_type(f.name, f.default)
            parameters.append(
                _parameter(f.name, Annotated[annotation, typer.Option(option, **declared)], default)
            )
    return parameters


def completing(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """Shell completion of one value, or of the last of several with commas."""

    def complete(incomplete: str) -> list[str]:
        head, comma, last = incomplete.rpartition(",")
        return [head + comma + choice for choice in choices if choice.startswith(last) and choice]

    return complete


def complete_methods(incomplete: str) -> list[str]:
    """Shell completion of `--method`."""
    from crbc_cli.methods.registry import METHODS

    return completing(tuple(METHODS))(incomplete)


def complete_formats(incomplete: str) -> list[str]:
    """Shell completion of `--from`."""
    from crbc_cli.logs.formats.registry import FORMATS

    return completing(tuple(FORMATS))(incomplete)


def complete_presets(incomplete: str) -> list[str]:
    """Shell completion of `--preset`."""
    from crbc_cli.anchors.rulefile import preset_names

    return completing(("auto", *preset_names()))(incomplete)


def _typer_type(name: str, default: Any) -> tuple[Any, Any]:
    if name in REPEATED:
        return list[str] | None, None
    if isinstance(default, tuple):
        return str, ",".join(default)
    if name == "depth":
        return str, "inf"
    return type(default), default


def _default_text(default: Any) -> Any:
    if default in ((), "", 0) and not isinstance(default, bool) and default != 0.0:
        return False
    if isinstance(default, tuple):
        return ",".join(default)
    return "inf" if default == math.inf else True


def _settings(values: dict[str, Any]) -> Settings:
    groups: dict[str, Any] = {}
    for group, (_, kind) in _PANELS.items():
        groups[group] = kind(
            **{
                f.name: _parsed(f.name, f.default, values[f.name])
                for f in fields(kind)
                if f.name in values
            }
        )
    return Settings(**groups)


def _parsed(name: str, default: Any, value: Any) -> Any:
    if name == "map":
        return tuple(part for entry in value or () for part in _MAP_COMMA.split(entry))
    if name in REPEATED:
        return tuple(value or ())
    if isinstance(default, tuple):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return parse_depth(value) if name == "depth" else value


def parse_depths(text: str) -> tuple[float, float]:
    """A depth or a range of depths: `3`, `0..5`, `0..inf`.

    Raises:
      OptionError: not a depth, or a range that runs backwards.
    """
    first, dots, last = text.partition("..")
    low = parse_depth(first)
    high = parse_depth(last) if dots else low
    if low > high or (low == math.inf and dots):
        raise OptionError(f"depth range {text!r} is empty", todo="for example --depth 0..inf")
    if high != math.inf:
        refuse_long("--depth", int(low), int(high))
    return low, high


def refuse_long(flag: str, low: int, high: int) -> None:
    """Raises OptionError for a range that is not worth a line for each of its numbers."""
    refuse_beyond(flag, high, MOST)
    if high - low > _LONGEST_RANGE:
        raise OptionError(f"{flag} {low}..{high} names more than {_LONGEST_RANGE:,} numbers")


_LONGEST_RANGE = 10_000
