"""Rule files: declared canonicalisation of anchors and actions, in TOML.

A rule file says what part of a reply is the situation, which replies say that nothing changed,
which rows are thoughts and not steps, what is carried along although the reply does not show it,
and which of all that makes up the anchor. `crbc anchors --explain-preset NAME` prints one.

    schema = 1
    name = "kitchen"
    title = "Kitchen game"
    key = ["reply", "hand"]                     # parts of the anchor; also "column:NAME",
                                                # "sorted:NAME" (a list in any order), and with ?:
                                                # a column that the log may lack
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

With `extends = "PRESET"` a file adds its slots to that preset's, or puts them in the place of those
of the same name; whatever else it says stands in place of what the preset says.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

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
    "check_pattern",
    "load_rules",
    "preset_names",
    "preset_text",
    "rules_schema",
]

_PRESETS = Path(__file__).parent / "presets"
_COLUMN = ("column:", "column?:", "sorted:", "sorted?:")
_NAME = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$")]


class Op(Struct, forbid_unknown_fields=True, frozen=True):
    """One text operation.

    Attributes:
      op: replace (matches of `pattern` by `to`, where `${name}` is a named group), keep (only what
        `pattern` matched, or its group `${keep}`; other text stays), cut_after / cut_before (drop
        the literal `text` and what follows / what precedes), sort_list (sort parts between
        `separator`), numbers (digit runs become #), ids (UUIDs and long hex words become #),
        image_path (the path of a PNG or JPEG file, or a data: URI, becomes a digest of its pixels;
        relative paths start in the folder `text`), nfc, strip, whitespace, case.
    """

    op: Literal[
        "replace",
        "keep",
        "cut_after",
        "cut_before",
        "sort_list",
        "numbers",
        "ids",
        "image_path",
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
      unless: what the same text must not match (patterns have no look-around).
      reply: with on = "action", what the reply must match as well.
      value: template of the new value, with {group}, or {slot} for what an earlier slot holds by
        then; for a map, of the key's new value.
      key: for a map, template of the key.
      origin: for a map, template of what the key's value was before its first update; a key whose
        value has come back to it is as if it was never touched.
      when: name of an earlier slot; the update counts only while that slot is set, or with
        NAME=NUMBER while that count stands at NUMBER.
      before: the same, but as it was when the action was taken (with on = "action").
      clear: the slot becomes unset; with `key`, only that key of the map does.
      add: for a count, how much.
    """

    on: Literal["reply", "action"]
    pattern: str
    unless: str = ""
    reply: str = ""
    value: str = ""
    key: str = ""
    origin: str = ""
    when: str = ""
    before: str = ""
    clear: bool = False
    add: int = 0

    @property
    def groups(self) -> frozenset[str]:
        """Names of the pattern's groups."""
        return frozenset(re.findall(r"\(\?P?<([A-Za-z_]\w*)>", self.pattern))

    def slots_in(self, template: str) -> list[str]:
        """Names in a template that are no groups: what earlier slots hold."""
        return [name for name in re.findall(r"\{(\w+)\}", template) if name not in self.groups]


class Slot(Struct, forbid_unknown_fields=True, frozen=True):
    """Something carried along a rollout.

    Updates of one row count in the order in which they stand here.

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
    """A whole rule file; see the module docstring.

    Attributes:
      head: patterns of `no_op`, `missing` and of updates see only the first `head` characters of a
        reply if positive. Long texts have few distinct beginnings, and each is looked at once.
    """

    schema: Literal[1]
    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]*$")]
    title: str
    key: Annotated[tuple[str, ...], Meta(min_length=1)] = ("reply",)
    about: str = ""
    head: int = 0
    messages: Literal["", "last-user-message", "last-tool-result", "last-message"] = ""
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
        """(log column, required) of key parts that are columns."""
        parts = [part.split(":", 1) for part in self.key if part.startswith(_COLUMN)]
        return tuple((name, not form.endswith("?")) for form, name in parts)

    @property
    def unordered(self) -> frozenset[str]:
        """Log columns of key parts `sorted:NAME`: the order of their lists does not matter."""
        return frozenset(p.split(":", 1)[1] for p in self.key if p.startswith("sorted"))


def rules_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a rule file, for editors that check TOML."""
    schema = msgspec.json.schema(RuleFile)
    schema["$defs"]["RuleFile"]["properties"]["extends"] = {
        "description": "preset whose rules hold where this file says nothing else",
        "enum": preset_names(),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "crbc-rules-v1",
        "title": "crbc rule file",
        **schema,
    }


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
        rules = msgspec.convert(_with_base(msgspec.toml.decode(text)), RuleFile)
    except msgspec.ValidationError as error:
        raise OptionError(f"does not follow the rule schema ({error})", where) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise OptionError(f"is not TOML ({error})", where) from error
    known = {"reply", *(slot.name for slot in rules.slot)}
    for part in rules.key:
        if part not in known and not part.startswith(_COLUMN):
            raise OptionError(
                f"key part {part!r} is neither reply, a slot nor column:NAME",
                where,
                f"known: {', '.join(sorted(known))}",
            )
    for pattern in _patterns(rules):
        check_pattern(pattern, where=where)
    earlier: set[str] = set()
    for slot in rules.slot:
        if slot.name in earlier:
            raise OptionError(f"slot {slot.name} is there twice", where)
        for update in slot.update:
            _check_update(slot, update, earlier, where)
        earlier.add(slot.name)
    return rules


def _with_base(given: dict[str, Any]) -> dict[str, Any]:
    """What a rule file says, on top of the preset that it extends."""
    if not isinstance(given.get("extends"), str):
        return given
    base = _with_base(msgspec.toml.decode(preset_text(given["extends"])))
    whole = {**base, **{name: value for name, value in given.items() if name != "extends"}}
    with suppress(TypeError, AttributeError):  # the schema says what is wrong with such slots
        slots = [*base.get("slot", []), *given.get("slot", [])]
        whole["slot"] = list({slot.get("name"): slot for slot in slots}.values())
    return whole


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
        *(u.unless for u in updates if u.unless),
    ]


def check_pattern(pattern: str, *, where: str = "", flag: str = "") -> None:
    """Refuses what is no regular expression of polars' engine.

    Args:
      pattern: the expression.
      where: the file it stands in, for messages.
      flag: the option it was given by, for messages.
    Raises:
      OptionError: with the engine's reason.
    """
    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.PolarsError as error:
        # The engine draws the pattern over several lines; its reason is the line that says so.
        reasons = re.findall(r"(?m)^error: (.+)$", str(error))
        reason = reasons[-1] if reasons else str(error).strip().splitlines()[0]
        raise OptionError(
            f"{flag} {pattern!r} is not a regular expression "
            f"({reason.removeprefix('regex error: ').rstrip('.')})".lstrip(),
            where,
            "Rust syntax, without look-around",
        ) from error


def _check_update(slot: Slot, update: Update, earlier: set[str], where: str) -> None:
    unknown = set(update.slots_in(update.value + update.key + update.origin)) - earlier
    if unknown:
        raise OptionError(
            f"slot {slot.name}: template names {sorted(unknown)[0]!r}, which is neither a group of "
            f"{update.pattern!r} nor an earlier slot",
            where,
        )
    if slot.kind == "map" and not (update.key or update.clear):
        raise OptionError(f"slot {slot.name}: an update of a map needs a key", where)
    for condition in (update.when, update.before):
        name, equals, number = condition.partition("=")
        if condition and (name not in earlier or (equals and not number.isdecimal())):
            raise OptionError(f"slot {slot.name}: {condition!r} names no earlier slot", where)
    if update.before and update.on == "reply":
        raise OptionError(f"slot {slot.name}: before is for updates on an action", where)
    if slot.kind == "count" and not (update.add or update.clear):
        raise OptionError(f"slot {slot.name}: an update of a count needs add or clear", where)
