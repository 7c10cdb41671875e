"""Values of parameters that need no conversion.

typer converts every value with pydantic, defaults too, and importing pydantic takes a fifth of a
short run. Most runs have nothing to convert: texts are texts.
"""

from functools import partial
from typing import Any

__all__ = ["take_as_given"]


def take_as_given(command: Any) -> None:
    """From now on, values that have their parameter's type already are left as they are.

    Args:
      command: a command or group of typer.
    """
    declared = command.get_params

    def parameters(context: Any) -> list[Any]:
        found: list[Any] = declared(context)  # with --help, which is made when it is asked for
        for parameter in found:
            if not isinstance(parameter.process_value, partial):
                parameter.process_value = partial(_processed, parameter, parameter.process_value)
        return found

    command.get_params = parameters


def _processed(parameter: Any, convert: Any, context: Any, value: Any) -> Any:
    if not _is_given(parameter, value):
        return convert(context, value)
    if isinstance(value, tuple) and value:
        value = [*value]
    elif value is None and _takes_many(parameter):
        value = ()
    return value if parameter.callback is None else parameter.callback(context, parameter, value)


def _is_given(parameter: Any, value: Any) -> bool:
    """Whether a value is what typer would make of it."""
    # Versions of typer that know no such attribute convert without pydantic.
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if value is None:
        return not parameter.required
    if _takes_many(parameter):
        listed = isinstance(value, list | tuple) and all(type(one) is str for one in value)
        return bool(kind == list[str] and value and listed)
    if kind not in (bool, float, int, str) or type(value) is not kind:
        return False
    low, high = (getattr(parameter, limit, None) for limit in ("min", "max"))
    return (low is None or value >= low) and (high is None or value <= high)


def _takes_many(parameter: Any) -> bool:
    return bool(parameter.multiple or parameter.nargs != 1)
