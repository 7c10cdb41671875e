"""`--merge-similar`: nearly equal replies of a group become one before anchors are made of them."""

import polars as pl

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.errors import OptionError
from crbc_cli.methods.similarity import MOST_TEXTS, merged_texts
from crbc_cli.notes import Notes
from crbc_cli.rollouts.identity import Place, Rollouts

__all__ = ["merge_similar"]

_KEY = ["group", "reply_key"]


def merge_similar(
    frame: pl.DataFrame,
    rollouts: Rollouts,
    rules: RuleFile,
    threshold: float,
    place: Place,
    notes: Notes,
) -> pl.DataFrame:
    """The step table with keys (and digests) of alike replies replaced by those of one of them.

    Which of them it is depends on their texts alone. An observation after a rollout's last row
    joins what its text joins elsewhere in the group.

    Args:
      frame: step table; without `reply_text` it is given back as it is.
      rollouts: who is who.
      rules: what makes up the anchor.
      threshold: least similarity that merges.
      place: names a row in messages.
      notes: told what was merged.
    Raises:
      OptionError: a group has too many different replies to compare.
    """
    if "reply_text" not in frame.columns:
        return frame
    if "reply" not in rules.key:
        notes.say(
            "merge_similar",
            f"--merge-similar changes nothing: anchors of {rules.name} hold no text",
            warning=True,
        )
        return frame
    group = pl.Series("group", rollouts.group_of_row)
    wanted = [c for c in ("reply_key", "reply_digest", "reply_text") if c in frame.columns]
    replies = (
        frame.select(wanted)
        .with_columns(group, pl.int_range(pl.len()).alias("row"))
        .filter(pl.col("reply_key").is_not_null() & pl.col("reply_text").is_not_null())
        .unique(_KEY, keep="first", maintain_order=True)
    )
    joined, chains, least = [], 0, 1.0
    for texts in replies.partition_by("group", maintain_order=True):
        if texts.height > MOST_TEXTS:
            raise OptionError(
                f"--merge-similar: a group has {texts.height:,} different replies, more than "
                f"{MOST_TEXTS:,} cannot be compared",
                place(texts["row"][0]),
                "cut what differs every time with --mask or a rule file first",
            )
        merged = merged_texts(texts["reply_text"].to_list(), threshold)
        chains, least = chains + merged.chains, min(least, merged.least)
        kept = texts[merged.member]
        table = texts.select(_KEY).with_columns(
            kept["reply_key"].alias("into"),
            *([kept["reply_digest"].alias("digest")] if "reply_digest" in kept.columns else []),
        )
        joined.append(table.filter(pl.col("reply_key") != pl.col("into")))
    moved = pl.concat(joined) if joined else replies.select(_KEY).clear()
    _say(notes, threshold, replies.height, moved, chains, least)
    return _moved(frame, group, moved) if moved.height else frame


def _moved(frame: pl.DataFrame, group: pl.Series, moved: pl.DataFrame) -> pl.DataFrame:
    for prefix in ("", "next "):
        name = f"{prefix}reply_key"
        if name not in frame.columns:
            continue
        rows = pl.DataFrame([group, frame[name].alias("reply_key")])
        found = rows.join(moved, on=_KEY, how="left", maintain_order="left")
        frame = frame.with_columns(found["into"].fill_null(frame[name]).alias(name))
        digest = f"{prefix}reply_digest"
        if digest in frame.columns:
            frame = frame.with_columns(found["digest"].fill_null(frame[digest]).alias(digest))
    return frame


def _say(
    notes: Notes, threshold: float, replies: int, moved: pl.DataFrame, chains: int, least: float
) -> None:
    groups = moved["group"].n_unique()
    notes.say(
        "merge_similar",
        f"--merge-similar {threshold:g} joined {moved.height:,} of {replies:,} different replies "
        f"to others, in {groups:,} groups"
        + (f"; the least similar pair in one anchor has {least:.3f}" if moved.height else ""),
    )
    if chains:
        notes.say(
            "similar_chains",
            f"{chains:,} anchors merged by --merge-similar are chains: they hold texts less alike "
            f"than {threshold:g} (down to {least:.3f}), joined through texts between them; a "
            "higher threshold or a rule that cuts what differs is safer",
            warning=True,
        )
