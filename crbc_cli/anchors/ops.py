"""Text operations of rule files and options, as polars expressions over a string column.

Whole strings are never rewritten for nothing: cutting comes first where rules say so, and patterns
are such that they match rarely.
"""

import re

import polars as pl

from crbc_cli.anchors.images import picture_named
from crbc_cli.anchors.rulefile import Op, check_pattern
from crbc_cli.options import AnchorOptions

__all__ = ["apply_ops", "formatted", "matches_any", "option_ops"]

_BLANKS = r"[ \t\r\n\x0b\x0c\x{a0}]{2,}|[\t\r\n\x0b\x0c\x{a0}]"
_IDS = (
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|\b[0-9a-f]{12,}\b"
)


def option_ops(options: AnchorOptions) -> tuple[Op, ...]:
    """`--mask` and `--normalize` as operations, in the fixed order mask, nfc, strip, whitespace,
    case.

    Raises:
      OptionError: a pattern that cannot be compiled.
    """
    for pattern in options.mask:
        check_pattern(pattern, flag="--mask")
    named = (Op(op="nfc"), Op(op="strip"), Op(op="whitespace"), Op(op="case"))
    return (
        *(Op(op="replace", pattern=pattern) for pattern in options.mask),
        *(op for op in named if op.op in options.normalize),
    )


def apply_ops(text: pl.Expr, ops: tuple[Op, ...]) -> pl.Expr:
    """`text` after the operations, in order."""
    for op in ops:
        text = _apply(text, op)
    return text


def _apply(text: pl.Expr, op: Op) -> pl.Expr:
    match op.op:
        case "replace":
            return text.str.replace_all(op.pattern, op.to)
        case "keep":
            group: int | str = "keep" if "<keep>" in op.pattern else 0
            kept = (
                text.str.extract_groups(op.pattern).struct.field("keep")
                if group == "keep"
                else text.str.extract(f"({op.pattern})", 1)
            )
            return pl.coalesce(kept, text)
        case "cut_after":
            return text.str.splitn(op.text, 2).struct.field("field_0")
        case "cut_before":
            parts = text.str.splitn(op.text, 2)
            return pl.coalesce(parts.struct.field("field_1"), text)
        case "sort_list":
            return text.str.split(op.separator).list.sort().list.join(op.separator)
        case "numbers":
            return text.str.replace_all(r"\d+", "#")
        case "ids":
            return text.str.replace_all(_IDS, "#")
        case "image_path":
            return text.map_batches(lambda texts: _pictures(texts, op.text), return_dtype=pl.String)
        case "nfc":
            return text.map_batches(_composed, return_dtype=pl.String)
        case "strip":
            return text.str.strip_chars()
        case "whitespace":
            return text.str.strip_chars().str.replace_all(_BLANKS, " ")
        case "case":
            return text.str.to_lowercase()


def _composed(texts: pl.Series) -> pl.Series:
    """Texts in normal form C, in which ASCII is already."""
    other = (texts.str.len_bytes() != texts.str.len_chars()).fill_null(False).arg_true()
    if not len(other):
        return texts
    return texts.clone().scatter(other, texts.gather(other).str.normalize("NFC"))


def _pictures(texts: pl.Series, folder: str) -> pl.Series:
    """What each text stands for as a picture, looked up once per distinct text."""
    distinct = texts.drop_nulls().unique()
    named = pl.Series([picture_named(text, folder) for text in distinct], dtype=pl.String)
    return texts.replace_strict(distinct, named, default=None, return_dtype=pl.String)


def matches_any(text: pl.Expr, patterns: tuple[str, ...]) -> pl.Expr:
    """Whether any pattern occurs; false where the text is null."""
    if not patterns:
        return pl.lit(False)
    together = "|".join(f"(?:{p})" for p in patterns)
    return text.str.contains(together).fill_null(False)


def formatted(groups: pl.Expr, template: str, known: frozenset[str]) -> pl.Expr:
    """A template with {group}s filled from extracted groups; null where the pattern failed.

    Names other than `known` ones stay as they are.
    """
    pieces = re.split(r"\{(\w+)\}", template)
    words = [
        groups.struct.field(piece) if piece in known else pl.lit(f"{{{piece}}}")
        for piece in pieces[1::2]
    ]
    texts = [pl.lit(piece) for piece in pieces[::2]]
    woven = [part for pair in zip(texts, words, strict=False) for part in pair]
    return pl.concat_str(*woven, texts[-1])
