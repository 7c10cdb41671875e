"""What checks look at: a log reduced to one row per rollout and one per group.

Rows are named by a place code, `source << 40 | source_row` in one integer, so that no text is made
for the rows that no finding shows.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.engine.checks.codes import PLACES
from crbc_cli.engine.texts import source_texts
from crbc_cli.logs.columns import Field
from crbc_cli.logs.sources import Source
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

__all__ = ["ENDINGS", "NO_PLACE", "Facts", "InputFile", "extra_fields", "joined", "place_codes"]

ENDINGS = ("success", "failure", "truncated", "unterminated", "unscored")
"""How a rollout ended, the first that holds of: unscored, success, truncated, unterminated,
failure."""

NO_PLACE = -1
_ROW_BITS = 40
_ROW_MASK = (1 << _ROW_BITS) - 1
_LABEL = 60
_QUOTE = 40


def extra_fields(settings: Settings) -> list[Field]:
    """Columns that checks read where a log has them, beyond what the settings need.

    Where each row is a rollout of its own, a `step` column counts training steps.
    """
    names = {"episode_reward": "number", "episode_rewards": "number", "global_step": "scalar"}
    fields = [Field(f"extra:{name}", name, role) for name, role in names.items()]  # type: ignore[arg-type]
    if settings.log.infers_groups:
        step = settings.log.column_map.get("step", "step")
        fields.append(Field("extra:step", step, "scalar"))
    return fields


def place_codes(frame: pl.DataFrame, first_source: int) -> NDArray[np.int64]:
    """Place code of each row of a step table, int64 (rows,)."""
    source = frame["source"].cast(pl.Int64) + first_source
    codes: NDArray[np.int64] = (source * (1 << _ROW_BITS) + frame["source_row"]).to_numpy()
    return codes


@dataclass(frozen=True)
class InputFile:
    """One input.

    Attributes:
      source: where it is.
      always: columns that every row has (of the first few thousand in JSONL).
      ever: columns that some row has.
      says_end: `done` or `truncated` was read.
    """

    source: Source
    always: Sequence[str]
    ever: Collection[str]
    says_end: bool


@dataclass(frozen=True)
class Facts:
    """Everything the checks need, over all inputs.

    Attributes:
      settings: all options.
      notes: what reading and grouping remarked.
      files: the inputs, in order.
      rules: what makes up an anchor.
      rollouts: one row per rollout, groups in order; see `crbc_cli.engine.checks.rollouts`.
      groups: one row per group; see `crbc_cli.engine.checks.groups`.
      conflicts: place codes `kept` and `lost` of rows that say different things under one
        (group, rollout, step).
      anchor_keys: uint64 (anchors,), content key of each anchor.
      anchor_bytes: uint32 (visits,), length of each visit's anchor.
    """

    settings: Settings
    notes: Notes
    files: Sequence[InputFile]
    rules: RuleFile
    rollouts: pl.DataFrame
    groups: pl.DataFrame
    conflicts: pl.DataFrame
    anchor_keys: NDArray[np.uint64]
    anchor_bytes: NDArray[np.uint32]

    @property
    def rows(self) -> int:
        """Rows that count, copies left out."""
        return int(self.rollouts["rows"].sum())

    def place(self, code: int) -> str:
        """`file:line` or `file row n`."""
        return self.files[code >> _ROW_BITS].source.where(code & _ROW_MASK)

    def places(self, codes: Iterable[int]) -> list[str]:
        """The first few places of rows."""
        return [self.place(code) for code in list(codes)[:PLACES]]

    def rollout_places(
        self, chosen: pl.DataFrame, at: str = "last", told: str | None = None
    ) -> list[str]:
        """The first few of `chosen` (rows of `rollouts`) as `rollout r of g (place; told)`.

        Args:
          chosen: filtered `rollouts`.
          at: column with the place code shown.
          told: column whose value is shown too.
        """
        labels = self.groups["label"]
        return [
            f"rollout {excerpt(row['rollout_id'])} of {excerpt(labels[row['group']])} "
            f"({self.place(row[at])}{f'; {row[told]}' if told else ''})"
            for row in chosen.head(PLACES).iter_rows(named=True)
        ]

    def group_places(self, chosen: pl.DataFrame, told: str) -> list[str]:
        """The first few of `chosen` (rows of `groups`) as `group g (place; told)`."""
        return [
            f"group {excerpt(row['label'])} ({self.place(row['first'])}; {row[told]})"
            for row in chosen.head(PLACES).iter_rows(named=True)
        ]

    def quoted(
        self, codes: Iterable[int], *, observation: bool = True, action: bool = True
    ) -> list[str]:
        """The first few places of rows with what stands there, read from the inputs again.

        Args:
          codes: place codes.
          observation, action: what to show.
        """
        quotes = []
        for code in list(codes)[:PLACES]:
            source, row = self.files[code >> _ROW_BITS].source, code & _ROW_MASK
            texts = source_texts(source, [row], self.settings, self.rules)[row]
            shown = [t for t, wanted in zip(texts, (observation, action), strict=True) if wanted]
            said = " -> ".join(f'"{excerpt(text or "", _QUOTE)}"' for text in shown)
            quotes.append(f"{self.place(code)}: {said}")
        return quotes


def excerpt(text: str, width: int = _LABEL) -> str:
    """Text on one line, cut to `width` characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def joined(parts: Sequence[Facts]) -> Facts:
    """Facts of several logs as one; `parts` is not empty."""
    first = parts[0]
    rollouts, groups = [], []
    groups_before = 0
    for part in parts:
        rollouts.append(part.rollouts.with_columns(pl.col("group") + groups_before))
        groups.append(part.groups)
        groups_before += part.groups.height
    return Facts(
        first.settings,
        first.notes,
        [file for part in parts for file in part.files],
        first.rules,
        pl.concat(rollouts, how="diagonal_relaxed"),
        pl.concat(groups, how="diagonal_relaxed"),
        pl.concat([part.conflicts for part in parts]),
        np.concatenate([part.anchor_keys for part in parts]),
        np.concatenate([part.anchor_bytes for part in parts]),
    )
