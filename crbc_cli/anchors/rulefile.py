"""Rule files: declared canonicalisation of anchors and actions, in TOML.

A rule file says what part of a reply is the situation, which replies say that nothing changed,
which rows are thoughts and not steps, what is carried along although the reply does not show it,
and which of all that makes up the anchor. `crbc anchors --explain-preset NAME` prints one.

    schema = 1
    name = "kitchen"
    title = "Kitchen game"
    key = ["reply", "hand"]                     # parts of the anchor; also "column:NAME"
    no_op = ['^Nothing happens']                # such a reply inherits the previous anchor
    missing = ['^\\s*$']                         # no reply at all: never a state
    thought = ['^think:']                       # actions that are not environment steps

    [[reply]]                                   # text operations, in order
    op = "cut_after"
    text = "Your task is"

    [[slot]]                                    # carried context
    name = "hand"
    kind = "last"
      [[slot.update]]
      on = "reply"
      pattern = '^You take the (?<thing>.+)\\.$'
      value = "{thing}"
"""

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import polars as pl
from msgspec import Meta, Struct

from crbc_cli.anchors.canonical import digest
from crbc_cli.errors import OptionError

__all__ = [
    "Detect",
    "Op",
    "RuleFile",
    "Slot",
    "Update",
    "load_rules",
    "preset_names",
    "preset_text",
]

_PRESETS = Path(__file__).parent / "presets"
_NAME = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$")]


class Op(Struct, forbid_unknown_fields=True, frozen=True):
    """One text operation.

    Attributes:
      op: replace (matches of `pattern` by `to`, where `${name}` is a named group), keep (only what
        `pattern` matched, or its group `${keep}`; other text stays), cut_after / cut_before (drop
        the literal `text` and what follows / what precedes), sort_list (sort parts between
        `separator`), numbers (digit runs become #), ids (UUIDs and long hex words become #), nfc,
        strip, whitespace, case.
    """

    op: Literal[
        "replace",
        "keep",
        "cut_after",
        "cut_before",
        "sort_list",
        "numbers",
        "ids",
        "nfc",
        "strip",
        "whitespace",
        "case",
    ]
    pattern: str = ""
    to: str = ""
    text: str = ""
    separator: str = ", "


class Update(Struct, forbid_unknown_fields=True, frozen=True):
    """When and how a slot changes.

    Attributes:
      on: "reply" looks at the observation of the row; "action" at the action before it, and
        counts only if the reply is neither a no-op nor missing.
      pattern: regular expression with named groups.
      reply: with on = "action", what the reply must match as well.
      value: template of the new value, with {group}; for a map, of the key's new value.
      key: for a map, template of the key.
      clear: the slot (or the key) becomes unset.
      add: for a count, how much.
    """

    on: Literal["reply", "action"]
    pattern: str
    reply: str = ""
    value: str = ""
    key: str = ""
    clear: bool = False
    add: int = 0


class Slot(Struct, forbid_unknown_fields=True, frozen=True):
    """Something carried along a rollout.

    Attributes:
      name: used in `key`.
      kind: last (latest value), map (latest value per key), set (values so far, order-free),
        sequence (values so far, in order), count (running total, modulo `modulo` if positive).
    """

    name: _NAME
    kind: Literal["last", "map", "set", "sequence", "count"]
    update: tuple[Update, ...]
    modulo: int = 0


class Detect(Struct, forbid_unknown_fields=True, frozen=True):
    """How `--preset auto` recognises a log: share of sampled rows in which a pattern occurs.

    Attributes:
      column: observation or action.
      pattern: regular expression.
      share: least share of rows, in (0, 1].
    """

    column: Literal["observation", "action"]
    pattern: str
    share: float


class Action(Struct, forbid_unknown_fields=True, frozen=True):
    """Semantic action.

    Attributes:
      tag: take what stands inside <tag>…</tag>.
      fence: take what stands inside the last ``` fence.
      tool_call: take the last tool call as name and sorted arguments.
      invalid: patterns of actions that the environment cannot parse.
      op: text operations.
    """

    tag: str = ""
    fence: bool = False
    tool_call: bool = False
    invalid: tuple[str, ...] = ()
    op: tuple[Op, ...] = ()


class RuleFile(Struct, forbid_unknown_fields=True, frozen=True):
    """A whole rule file; see the module docstring."""

    schema: Literal[1]
    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]*$")]
    title: str
    key: Annotated[tuple[str, ...], Meta(min_length=1)] = ("reply",)
    about: str = ""
    detect: tuple[Detect, ...] = ()
    reply: tuple[Op, ...] = ()
    no_op: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    thought: tuple[str, ...] = ()
    action: Action = Action()
    slot: tuple[Slot, ...] = ()

    def digest(self) -> str:
        """32 hex digits that identify the rules, for metadata."""
        return digest(msgspec.to_builtins(self))

    @property
    def columns(self) -> tuple[tuple[str, bool], ...]:
        """(log column, required) of key parts `column:NAME` and `column?:NAME`."""
        return tuple(
            (part.split(":", 1)[1], not part.startswith("column?:"))
            for part in self.key
            if part.startswith(("column:", "column?:"))
        )


def preset_names() -> list[str]:
    """Names of the built-in presets."""
    return sorted(path.stem for path in _PRESETS.glob("*.toml"))


def preset_text(name: str) -> str:
    """The TOML of a preset.

    Raises:
      OptionError: no such preset.
    """
    path = _PRESETS / f"{name}.toml"
    if not path.is_file():
        raise OptionError(
            f"preset {name!r} is not known", todo=f"use auto or one of {', '.join(preset_names())}"
        )
    return path.read_text("utf-8")


def load_rules(text: str, where: str) -> RuleFile:
    """Parses and checks a rule file.

    Args:
      text: TOML.
      where: its name, for messages.
    Raises:
      OptionError: not TOML, not the schema, a pattern that does not compile, a template that names
        no group, or a key part that does not exist.
    """
    try:
        rules = msgspec.toml.decode(text, type=RuleFile)
    except msgspec.ValidationError as error:
        raise OptionError(f"does not follow the rule schema ({error})", where) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise OptionError(f"is not TOML ({error})", where) from error
    known = {"reply", *(slot.name for slot in rules.slot)}
    for part in rules.key:
        if part not in known and not part.startswith(("column:", "column?:")):
            raise OptionError(
                f"key part {part!r} is neither reply, a slot nor column:NAME",
                where,
                f"known: {', '.join(sorted(known))}",
            )
    for pattern in _patterns(rules):
        _check_pattern(pattern, where)
    for slot in rules.slot:
        for update in slot.update:
            _check_update(slot, update, where)
    return rules


def _patterns(rules: RuleFile) -> list[str]:
    ops = [*rules.reply, *rules.action.op]
    updates = [u for slot in rules.slot for u in slot.update]
    return [
        *rules.no_op,
        *rules.missing,
        *rules.thought,
        *rules.action.invalid,
        *(d.pattern for d in rules.detect),
        *(op.pattern for op in ops if op.pattern),
        *(u.pattern for u in updates),
        *(u.reply for u in updates if u.reply),
    ]


def _check_pattern(pattern: str, where: str) -> None:
    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.PolarsError as error:
        reason = str(error).strip().splitlines()[-1]
        raise OptionError(
            f"{pattern!r} is not a regular expression ({reason})",
            where,
            "Rust syntax, without look-around",
        ) from error


def _check_update(slot: Slot, update: Update, where: str) -> None:
    groups = set(re.findall(r"\(\?P?<([A-Za-z_]\w*)>", update.pattern))
    used = set(re.findall(r"\{(\w+)\}", update.value + update.key))
    if used - groups:
        raise OptionError(
            f"slot {slot.name}: template names group {sorted(used - groups)[0]!r}, which "
            f"{update.pattern!r} does not have",
            where,
        )
    if slot.kind == "map" and not update.key:
        raise OptionError(f"slot {slot.name}: an update of a map needs a key", where)
    if slot.kind == "count" and not (update.add or update.clear):
        raise OptionError(f"slot {slot.name}: an update of a count needs add or clear", where)
