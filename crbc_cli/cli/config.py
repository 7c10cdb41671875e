"""Defaults from a config file: flag > environment > file > built-in."""

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from crbc_cli.cli.console import tell
from crbc_cli.errors import OptionError

__all__ = [
    "as_toml",
    "defaults_by_command",
    "effective_options",
    "find_config",
    "read_config",
    "warn_of_unknown_variables",
]

_VARIABLES = {
    *("CRBC_CONFIG", "CRBC_DEBUG"),
    *("CRBC_CREDIT", "CRBC_GENERATIONS", "CRBC_LOG", "CRBC_SCORE"),  # of hooks and loaders
}
_NEAR = 0.85


def find_config(start: Path) -> Path | None:
    """The nearest `crbc.toml`, or `pyproject.toml` with a `[tool.crbc]` table, upwards."""
    for folder in (start, *start.parents):
        with suppress(OSError):  # what this user may not read is not theirs
            if (folder / "crbc.toml").is_file():
                return folder / "crbc.toml"
            project = folder / "pyproject.toml"
            if project.is_file() and "[tool.crbc" in project.read_text("utf-8", errors="replace"):
                return project
    return None


def _nearest_config() -> Path | None:
    with suppress(FileNotFoundError):  # the working directory was removed
        return find_config(Path.cwd())
    return None


def read_config(path: Path) -> dict[str, Any]:
    """Options of a config file, dashes as underscores; tables named after commands are nested.

    Raises:
      OptionError: the file is missing or is not TOML.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"config file cannot be read ({error})", str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"is not TOML ({error})", str(path)) from error
    if path.name == "pyproject.toml":
        document = document.get("tool", {}).get("crbc", {})
    return {name.replace("-", "_"): value for name, value in document.items()}


def defaults_by_command(
    config: str | None, commands: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Defaults of each command's parameters.

    Args:
      config: file named by --config, or None for the nearest one.
      commands: name -> command object with `params`.
    Raises:
      OptionError: a key that no command has.
    """
    path = Path(config) if config else _nearest_config()
    if path is None:
        return {}
    values = read_config(path)
    known = {
        name: {_key(p): p for p in command.params if p.param_type_name == "option"}
        for name, command in commands.items()
    }
    defaults: dict[str, dict[str, Any]] = {name: {} for name in commands}
    # A command's own table comes after the keys for all commands, and wins.
    for key, value in sorted(values.items(), key=lambda item: isinstance(item[1], dict)):
        if not isinstance(value, dict):
            _take(defaults, known, key, value, path)
            continue
        if key not in known:
            raise OptionError(f"table [{key}] names no command", str(path))
        for inner, one in value.items():
            _take(defaults, {key: known[key]}, inner.replace("-", "_"), one, path)
    return defaults


def warn_of_unknown_variables(context: Any) -> None:
    """Warns of CRBC_* variables in the environment that are nearly those of an option.

    Args:
      context: parsed context of the command.
    """
    given = {name for name in os.environ if name.startswith("CRBC_")} - _VARIABLES
    if not given - _variables(context.command):
        return
    known = set().union(*map(_variables, context.find_root().command.commands.values()))
    for name in sorted(given - known):
        for option in difflib.get_close_matches(name, known, 1, _NEAR):
            tell(f"warning: environment variable {name} is no option; did you mean {option}?")


def _variables(command: Any) -> set[str]:
    return {str(p.envvar) for p in command.params if getattr(p, "envvar", None)}


def _take(
    defaults: dict[str, dict[str, Any]],
    known: Mapping[str, Mapping[str, Any]],
    key: str,
    value: Any,
    path: Path,
) -> None:
    takers = {name: options[key] for name, options in known.items() if key in options}
    if not takers:
        raise OptionError(f"{key} is no option", str(path), "see crbc annotate --help")
    for name, option in takers.items():
        listed = isinstance(value, list) and not option.multiple
        defaults[name][option.name] = ",".join(map(str, value)) if listed else value


def _key(parameter: Any) -> str:
    """Its name in a config file: `from`, where Python needs `from_`."""
    name: str = parameter.name
    return name.rstrip("_")


def effective_options(context: Any) -> Iterator[tuple[str, Any, str]]:
    """(key, value, origin) of each option of a command without flags on the command line.

    Args:
      context: parsed context of the command.
    """
    for parameter in context.command.params:
        if parameter.param_type_name != "option" or parameter.name == "help":
            continue
        source = context.get_parameter_source(parameter.name)
        origin = {"ENVIRONMENT": f"environment {parameter.envvar}", "DEFAULT_MAP": "config file"}
        value = context.params[parameter.name]
        yield _key(parameter), value, origin.get(source.name if source else "", "default")


def as_toml(context: Any, *, show_origin: bool) -> Iterator[str]:
    """The table of a command for crbc.toml, line by line.

    What is set somewhere is a key; what has its default is a comment, so that the table says no
    more than the surroundings do: an explicit option beats the conventions of --like.

    Args:
      context: parsed context of the command.
      show_origin: say behind each value where it comes from.
    """
    yield f"[{context.info_name}]"
    for key, value, origin in effective_options(context):
        line = f"{key} = {_toml(_listed(key, value))}"
        line = f"# {line}" if origin == "default" else line
        yield f"{line}  # {origin}" if show_origin else line


def _listed(key: str, value: Any) -> Any:
    """A value as a config file holds it: lists as lists, nothing as empty."""
    from crbc_cli.cli.options import LISTED

    if isinstance(value, str) and key in LISTED:
        return [part.strip() for part in value.split(",") if part.strip()]
    if value is None:
        return [] if key in LISTED else ""
    return list(value) if isinstance(value, tuple) else value


def _toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but TOML also wants DEL escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)
