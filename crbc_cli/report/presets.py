"""The page of a preset: what its anchors are made of, in words and patterns."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from crbc_cli.anchors.rulefile import RuleFile, load_rules, preset_names, preset_text
from crbc_cli.report.text import plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from crbc_cli.anchors.rulefile import Op, Slot, Update

__all__ = ["preset_page", "preset_rows", "preset_table"]

_KINDS = {
    "last": "the latest value",
    "map": "the latest value of each key",
    "set": "all values so far, in any order",
    "sequence": "all values so far, in order",
    "count": "a running total",
}


def preset_rows(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Presets, for JSON: the named ones, or all of them.

    Raises:
      OptionError: no such preset.
    """
    rules = [load_rules(preset_text(name), f"preset {name}") for name in names or preset_names()]
    return [msgspec.to_builtins(r) | {"digest": r.digest()} for r in rules]


def preset_table() -> Table:
    """Every preset with its title."""
    table = plain_table("Presets", "name", "environment", left=2)
    for row in preset_rows():
        table.add_row(Text(row["name"]), Text(row["title"]))
    return table


def preset_page(name: str) -> "Iterator[RenderableType]":
    """Everything about one preset, in order.

    Raises:
      OptionError: no such preset.
    """
    rules = load_rules(preset_text(name), f"preset {name}")
    yield Text(f"{rules.name}: {rules.title}", "bold")
    for paragraph in rules.about.strip().split("\n\n"):
        yield Text()
        yield _paragraph(paragraph)
    yield Text()
    yield from _fields("key", [_key_part(part, rules) for part in rules.key])
    yield from _fields("recognised by --preset auto if", [_sign(sign) for sign in rules.detect])
    yield from _fields("of messages", [rules.messages] if rules.messages else [])
    yield from _fields("text of the reply", [_operation(op) for op in rules.reply])
    yield from _fields("no-op replies (they inherit the anchor before)", rules.no_op)
    yield from _fields("no reply at all", rules.missing)
    yield from _fields("thoughts (no environment steps)", rules.thought)
    yield from _fields("action", _action(rules))
    for slot in rules.slot:
        yield from _slot(slot, carried=slot.name in rules.key)


def _paragraph(text: str) -> Text:
    """Running text is wrapped again, lists keep their lines."""
    if any(line.lstrip().startswith(("* ", "- ")) for line in text.splitlines()):
        return Text(text)
    return Text(" ".join(text.split()))


def _fields(title: str, lines: "list[str] | tuple[str, ...]") -> "Iterator[RenderableType]":
    if lines:
        yield Text(f"{title}:")
        for line in lines:
            yield Padding(Text(line, overflow="fold"), (0, 0, 0, 2))


def _key_part(part: str, rules: RuleFile) -> str:
    if part == "reply":
        return "reply: the text of the latest reply, after the operations below"
    if ":" not in part:
        kind = next(slot.kind for slot in rules.slot if slot.name == part)
        return f"{part}: carried, {_KINDS[kind]}"
    form, name = part.split(":", 1)
    order = ", in any order" if form.startswith("sorted") else ""
    absent = ", if the log has it" if form.endswith("?") else ""
    return f"{name}: that column of the log{order}{absent}"


def _sign(sign: Any) -> str:
    return f"at least {100 * sign.share:.0f} % of the {sign.column}s match {sign.pattern}"


def _operation(op: "Op") -> str:
    given = [v for v in (op.pattern, op.text) if v]
    given += [f"to {op.to!r}"] if op.op == "replace" else []
    given += [f"separated by {op.separator!r}"] if op.op == "sort_list" else []
    return f"{op.op}: {' '.join(given)}" if given else op.op


def _action(rules: RuleFile) -> list[str]:
    action = rules.action
    lines = [f"inside <{action.tag}>"] if action.tag else []
    lines += ["inside the last ``` fence"] if action.fence else []
    lines += ["the last tool call, arguments sorted"] if action.tool_call else []
    lines += [_operation(op) for op in action.op]
    return lines + [f"cannot be parsed: {pattern}" for pattern in action.invalid]


def _slot(slot: "Slot", *, carried: bool) -> "Iterator[RenderableType]":
    modulo = f" modulo {slot.modulo}" if slot.modulo else ""
    helper = "" if carried else ", for other slots"
    title = f"slot {slot.name} ({_KINDS[slot.kind]}{modulo}{helper})"
    yield from _fields(title, [_update(update) for update in slot.update])


def _update(update: "Update") -> str:
    parts = [f"{update.on} {update.pattern}"]
    parts += [f"unless {update.unless}"] if update.unless else []
    parts += [f"with the reply {update.reply}"] if update.reply else []
    parts += [f"while {update.when} is set"] if update.when else []
    parts += [f"if {update.before} was set before"] if update.before else []
    if update.clear:
        effect = f"clears {update.key}" if update.key else "clears"
    elif update.add:
        effect = f"adds {update.add}"
    else:
        effect = f"{update.key} = {update.value}" if update.key else update.value
        effect += f" (was {update.origin})" if update.origin else ""
    return f"{', '.join(parts)} -> {effect}"
