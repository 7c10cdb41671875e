"""Rule files as TOML text, the way one would write them by hand."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crbc_cli.anchors.rulefile import RuleFile

__all__ = ["change_toml", "rules_toml"]


def rules_toml(rules: RuleFile) -> str:
    """A rule file that says the same as `rules`."""
    return "\n".join(_lines(_given(rules))) + "\n"


def change_toml(change: Mapping[str, object]) -> str:
    """Some entries of a rule file."""
    return "\n".join(_lines({name: _plain(value) for name, value in change.items()})).strip("\n")


def _plain(value: Any) -> Any:
    """Structs become tables without what is left at its default."""
    if isinstance(value, msgspec.Struct):
        return _given(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _given(struct: msgspec.Struct) -> dict[str, Any]:
    given = {}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if field.required or value != field.default:
            given[field.name] = _plain(value)
    return given


def _lines(table: Mapping[str, Any], path: str = "", indent: str = "") -> Iterator[str]:
    """Values first, then tables and lists of tables, as TOML wants it."""
    for name, value in table.items():
        if not _is_table(value):
            yield f"{indent}{name} = {_value(value, indent)}"
    deeper = indent if not path else indent + "  "
    for name, value in table.items():
        where = f"{path}{name}"
        if isinstance(value, Mapping):
            yield from ("", f"{deeper}[{where}]", *_lines(value, f"{where}.", deeper))
        elif _is_table(value):
            for item in value:
                gap = () if path else ("",)
                yield from (*gap, f"{deeper}[[{where}]]", *_lines(item, f"{where}.", deeper))


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, Sequence) and bool(value) and isinstance(value[0], Mapping)


def _value(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        items = [_value(item, indent) for item in value]
        line = f"[{', '.join(items)}]"
        if len(line) <= 80:
            return line
        return "\n".join(["[", *(f"{indent}  {item}," for item in items), f"{indent}]"])
    return json.dumps(value)


def _text(text: str) -> str:
    """A literal string where TOML allows one: patterns stay readable."""
    plain = text.isprintable() and "'" not in text
    if plain and ("\\" in text or '"' in text):
        return f"'{text}'"
    if (
        "\n" in text
        and "'''" not in text
        and text.replace("\n", "").isprintable()
        and "\r" not in text
    ):
        return f"'''\n{text}'''"
    return json.dumps(text, ensure_ascii=not text.isprintable())
