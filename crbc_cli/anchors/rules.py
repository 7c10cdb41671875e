"""Declared canonicalisation of anchors: what is removed from content before it is compared.

The rules run inside the scan on text columns (rarely matching patterns first, whole strings are
never rewritten for nothing), and on every string inside JSON values.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from crbc_cli.errors import OptionError
from crbc_cli.options import AnchorOptions

__all__ = ["TextRules"]

_BLANKS = r"[ \t\r\n\x0b\x0c\x{a0}]{2,}|[\t\r\n\x0b\x0c\x{a0}]"
_PYTHON_BLANKS = re.compile(_BLANKS.replace(r"\x{a0}", r"\xa0"))


@dataclass(frozen=True)
class TextRules:
    """Rules of one run, applied in the fixed order mask, nfc, strip, whitespace, case.

    Attributes:
      masks: regular expressions (Rust syntax: linear time, no look-around) whose matches are cut.
      normalize: subset of {"nfc", "strip", "whitespace", "case"}.
      drops: paths left out of JSON values.
    """

    masks: tuple[str, ...]
    normalize: frozenset[str]
    drops: tuple[tuple[str, ...], ...]

    @classmethod
    def from_options(cls, options: AnchorOptions) -> "TextRules":
        """Raises OptionError for a pattern that cannot be compiled."""
        for pattern in options.mask:
            try:
                pl.Series([""]).str.replace_all(pattern, "")
            except pl.exceptions.PolarsError as error:
                reason = str(error).strip().splitlines()[-1]
                raise OptionError(
                    f"--mask {pattern!r} is not a regular expression ({reason})",
                    todo="Rust syntax, without look-around",
                ) from error
        return cls(
            options.mask,
            frozenset(options.normalize),
            tuple(tuple(path.split(".")) for path in options.drop),
        )

    @property
    def exact(self) -> bool:
        """Content is compared as logged."""
        return not (self.masks or self.normalize or self.drops)

    def on_text(self, text: pl.Expr) -> pl.Expr:
        """The rules as an expression over a string column."""
        for pattern in self.masks:
            text = text.str.replace_all(pattern, "")
        if "nfc" in self.normalize:
            text = text.str.normalize("NFC")
        if "strip" in self.normalize or "whitespace" in self.normalize:
            text = text.str.strip_chars()
        if "whitespace" in self.normalize:
            text = text.str.replace_all(_BLANKS, " ")
        return text.str.to_lowercase() if "case" in self.normalize else text

    def on_value(self, value: Any) -> Any:
        """The rules on a decoded JSON value: paths dropped, strings inside rewritten."""
        for path in self.drops:
            value = _without(value, path)
        return value if not (self.masks or self.normalize) else _map_strings(value, self._string)

    def _string(self, text: str) -> str:
        for pattern in self.masks:
            text = str(pl.Series([text]).str.replace_all(pattern, "")[0])
        if "nfc" in self.normalize:
            text = unicodedata.normalize("NFC", text)
        if "strip" in self.normalize or "whitespace" in self.normalize:
            text = text.strip()
        if "whitespace" in self.normalize:
            text = _PYTHON_BLANKS.sub(" ", text)
        return text.lower() if "case" in self.normalize else text


def _without(value: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_without(item, path) for item in value]
    if not isinstance(value, dict):
        return value
    if len(path) == 1:
        return {k: v for k, v in value.items() if k != path[0]}
    return {k: _without(v, path[1:]) if k == path[0] else v for k, v in value.items()}


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {k: _map_strings(v, change) for k, v in value.items()}
    return value
