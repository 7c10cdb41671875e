"""`--merge-similar`: nearly equal replies of a group become one before anchors are made of them."""

from dataclasses import dataclass

import polars as pl

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.errors import OptionError
from crbc_cli.methods.similarity import MOST_TEXTS, merged_texts
from crbc_cli.notes import Notes
from crbc_cli.rollouts.identity import Place, Rollouts

__all__ = ["Similar", "merge_similar"]

_KEY = ["group", "reply_key"]


@dataclass
class Similar:
    """What --merge-similar did, added up over pieces of a log.

    Attributes:
      textless: name of the rules whose anchors hold no text, so that nothing was compared.
      compared: whether anything was.
      replies: different replies of the groups.
      joined: how many of them joined others.
      groups: groups in which some did.
      chains: anchors that hold texts less alike than the threshold.
      least: similarity of the least similar pair in one anchor.
    """

    textless: str = ""
    compared: bool = False
    replies: int = 0
    joined: int = 0
    groups: int = 0
    chains: int = 0
    least: float = 1.0

    def add(self, later: "Similar") -> None:
        """Adds a later piece of the same log."""
        self.textless = self.textless or later.textless
        self.compared |= later.compared
        self.replies += later.replies
        self.joined += later.joined
        self.groups += later.groups
        self.chains += later.chains
        self.least = min(self.least, later.least)

    def tell(self, threshold: float, notes: Notes) -> None:
        """Says what was merged."""
        if self.textless:
            notes.say(
                "merge_similar",
                f"--merge-similar changes nothing: anchors of {self.textless} hold no text",
                warning=True,
            )
        if not self.compared:
            return
        least = f"; the least similar pair in one anchor has {self.least:.3f}"
        notes.say(
            "merge_similar",
            f"--merge-similar {threshold:g} joined {self.joined:,} of {self.replies:,} different "
            f"replies to others, in {self.groups:,} groups" + (least if self.joined else ""),
        )
        if self.chains:
            notes.say(
                "similar_chains",
                f"{self.chains:,} anchors merged by --merge-similar are chains: they hold texts "
                f"less alike than {threshold:g} (down to {self.least:.3f}), joined through texts "
                "between them; a higher threshold or a rule that cuts what differs is safer",
                warning=True,
            )


def merge_similar(
    frame: pl.DataFrame,
    rollouts: Rollouts,
    rules: RuleFile,
    threshold: float,
    place: Place,
    similar: Similar,
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
      similar: counts what was merged.
    Raises:
      OptionError: a group has too many different replies to compare.
    """
    if "reply_text" not in frame.columns:
        return frame
    if "reply" not in rules.key:
        similar.textless = rules.name
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
    groups = moved["group"].n_unique()
    similar.add(Similar("", True, replies.height, moved.height, groups, chains, least))
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
