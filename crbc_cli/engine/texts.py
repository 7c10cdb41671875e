"""Text of the rows that are shown: their anchor content and action, as logged."""

import re
from collections.abc import Callable, Sequence

import msgspec

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.anchors.values import VIEWS, content
from crbc_cli.engine.load import needed_fields
from crbc_cli.engine.prepare import Prepared
from crbc_cli.logs.fetch import fetch_text
from crbc_cli.logs.sources import Source
from crbc_cli.options import Settings

__all__ = ["Text", "TextReader", "remembered_texts", "row_texts", "source_texts"]

Text = tuple[str | None, str | None]
"""(observation, action) of a row."""

TextReader = Callable[[Prepared, list[int]], dict[int, Text]]
"""(log, rows of its frame) -> texts by row."""


def source_texts(
    source: Source, rows: Sequence[int], settings: Settings, rules: RuleFile
) -> dict[int, Text]:
    """Texts of some rows of one input, by source row; see `row_texts`."""
    anchor = settings.anchor
    parts = [f"anchor:{i}" for i in range(len(anchor.anchor))]
    columns = {
        field.name: field.column
        for field in needed_fields(settings, rules)
        if field.name in (*parts, "action")
    }
    cells = fetch_text(source, rows, columns, skip_bad_lines=settings.log.skip_bad_lines)
    texts: dict[int, Text] = {}
    for row, cell in cells.items():
        observation = [
            _viewed(name if name in VIEWS else rules.messages, cell[part])
            for name, part in zip(anchor.anchor, parts, strict=True)
        ]
        action = _inside(anchor.action_tag or rules.action.tag, cell["action"])
        texts[row] = _joined(anchor.anchor, observation), action
    return texts


def row_texts(log: Prepared, rows: list[int]) -> dict[int, Text]:
    """Texts of some rows, read from the inputs again.

    Anchors of several columns are shown as `column: content` parts, message lists as the message
    that counts, and an action inside a tag without its surroundings.

    Args:
      log: the log.
      rows: rows of `log.frame`.
    Raises:
      InputError: an input cannot be read any more.
    """
    source_of = log.frame["source"].gather(rows).to_list()
    source_row_of = log.frame["source_row"].gather(rows).to_list()
    texts: dict[int, Text] = {}
    for index in sorted(set(source_of)):
        mine = [i for i, source in enumerate(source_of) if source == index]
        found = source_texts(
            log.loaded.sources[index],
            [source_row_of[i] for i in mine],
            log.settings,
            log.loaded.rules,
        )
        texts |= {rows[i]: found[source_row_of[i]] for i in mine}
    return texts


def remembered_texts(log: Prepared, rows: list[int]) -> TextReader:
    """A `row_texts` that has read some rows of a log at once, for parts of it (`Prepared.only`)."""
    place = log.frame.select("source", "source_row")
    found = row_texts(log, rows)
    texts = {place.row(row): text for row, text in found.items()}

    def read(part: Prepared, wanted: list[int]) -> dict[int, Text]:
        where = part.frame.select("source", "source_row")
        return {row: texts[where.row(row)] for row in wanted}

    return read


def _viewed(name: str, text: str | None) -> str | None:
    """What a view of message lists finds in them; other text is shown as it is."""
    if text is None or name not in VIEWS or not text.lstrip().startswith("["):
        return text
    whole = content(text, parse=True)
    found = VIEWS[name](whole)
    if found is None or isinstance(found, str):
        return found
    if found is whole:
        return text
    return msgspec.json.encode(found, enc_hook=str).decode()


def _joined(names: Sequence[str], parts: Sequence[str | None]) -> str | None:
    if len(parts) == 1:
        return parts[0]
    known = [f"{n}: {p}" for n, p in zip(names, parts, strict=True) if p is not None]
    return "\n".join(known) if known else None


def _inside(tag: str, text: str | None) -> str | None:
    if not tag or text is None:
        return text
    found = re.search(rf"(?s)<{tag}>(.*?)</{tag}>", text)
    return found[1].strip() if found else text
