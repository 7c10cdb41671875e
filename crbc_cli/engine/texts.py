"""Text of the rows that are shown: their anchor content and action, as logged."""

import re
from collections.abc import Sequence

import msgspec

from crbc_cli.anchors.values import VIEWS, content
from crbc_cli.engine.load import needed_fields
from crbc_cli.engine.prepare import Prepared
from crbc_cli.logs.fetch import fetch_text

__all__ = ["Text", "row_texts"]

Text = tuple[str | None, str | None]
"""(observation, action) of a row."""


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
    anchor = log.settings.anchor
    parts = [f"anchor:{i}" for i in range(len(anchor.anchor))]
    columns = {
        field.name: field.column
        for field in needed_fields(log.settings, log.loaded.rules)
        if field.name in (*parts, "action")
    }
    source_of = log.frame["source"].gather(rows).to_list()
    source_row_of = log.frame["source_row"].gather(rows).to_list()
    texts: dict[int, Text] = {}
    for index in sorted(set(source_of)):
        mine = [i for i, source in enumerate(source_of) if source == index]
        found = fetch_text(
            log.loaded.sources[index],
            [source_row_of[i] for i in mine],
            columns,
            skip_bad_lines=log.settings.log.skip_bad_lines,
        )
        for i in mine:
            cells = found[source_row_of[i]]
            observation = [
                _viewed(name, cells[part]) for name, part in zip(anchor.anchor, parts, strict=True)
            ]
            action = _inside(anchor.action_tag or log.loaded.rules.action.tag, cells["action"])
            texts[rows[i]] = _joined(anchor.anchor, observation), action
    return texts


def _viewed(name: str, text: str | None) -> str | None:
    """What an `--anchor` name that looks into messages finds in them."""
    if text is None or name not in VIEWS:
        return text
    found = VIEWS[name](content(text, parse=True))
    if found is None or isinstance(found, str):
        return found
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
