"""Options that take several values with commas may be given several times as well."""

from collections.abc import Sequence
from typing import Any

__all__ = ["join_repeated"]

_SEVERAL = "[,"
"""What the metavar of such an option shows."""


def join_repeated(command: Any) -> None:
    """From now on `--drop a --drop b` is `--drop a,b`, and not `b` alone.

    Args:
      command: a command of typer.
    """
    declared = command.parse_args

    def parse(context: Any, words: Sequence[str]) -> Any:
        return declared(context, _joined(command.get_params(context), list(words)))

    command.parse_args = parse


def _joined(parameters: Sequence[Any], words: list[str]) -> list[str]:
    options = {name: p for p in parameters for name in p.opts if p.param_type_name == "option"}
    joined: list[str] = []
    places: dict[str, int] = {}
    while words and words[0] != "--":
        word = words.pop(0)
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = options.get(flag)
        if option is None or option.is_flag or not (equals or words):
            joined.append(word)
            continue
        value = value if equals else words.pop(0)
        if _SEVERAL in (option.metavar or "") and option.name in places:
            joined[places[option.name]] += f",{value}"
        else:
            joined += [flag, value]
            places[option.name] = len(joined) - 1
    return joined + words
