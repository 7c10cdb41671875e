"""Rows of a log with their text, on which rules can be tried."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.anchors.carry import carry
from crbc_cli.anchors.ids import dense_ids
from crbc_cli.anchors.keys import Keys, keyed
from crbc_cli.anchors.rulefile import Op, RuleFile
from crbc_cli.engine.prepare import Prepared
from crbc_cli.engine.suggestions.trial import Keyed, Trial, dense, visit_conflicts
from crbc_cli.engine.texts import row_texts
from crbc_cli.logs.columns import ValueKind
from crbc_cli.options import AnchorOptions
from crbc_cli.process.agreement import agreement, codes, distinct_per
from crbc_cli.process.empirical import SUCCESS

__all__ = ["SAMPLE_ROWS", "Sample"]

SAMPLE_ROWS = 20_000
_KINDS: dict[str, ValueKind] = {"anchor:0": "text", "action": "text"}

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Sample:
    """Whole groups of a log in canonical order.

    Attributes:
      group, rollout: int64 (n,), dense, non-decreasing.
      observation, action: String (n,), as logged, after message views and action tags.
      success: bool (n,), the rollout succeeds with this row.
      columns: other key columns, `column NAME`.
      options: anchor options other than rules.
      prefix: regular expression for what masks cut off the beginning of replies; "" if nothing.
    """

    group: Ints
    rollout: Ints
    observation: pl.Series
    action: pl.Series
    success: Bools
    columns: pl.DataFrame
    options: AnchorOptions
    prefix: str = ""
    _bases: dict[tuple[Op, ...], Ints] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, log: Prepared, most: int = SAMPLE_ROWS) -> "Sample":
        """Groups spread evenly over the log, as many as have about `most` rows together.

        Raises:
          InputError: an input cannot be read any more.
        """
        r = log.rollouts
        group = r.row_group()
        size = np.bincount(group, minlength=r.groups)
        order = np.argsort(np.arange(r.groups) * 0.6180339887498949 % 1, kind="stable")
        within = np.cumsum(size[order]) <= max(most, int(size[order[:1]].sum()))
        taken = np.zeros(r.groups, bool)
        taken[order[within]] = True
        position = np.flatnonzero(taken[group])
        row = r.row[position]
        texts = row_texts(log, row.tolist())
        found = [texts[i] for i in row.tolist()]
        frame = log.loaded.frame
        columns = [name for name in frame.columns if name.startswith("column ")]
        return cls(
            codes(group[position]),
            codes(r.rollout[position]),
            pl.Series("anchor:0", [text for text, _ in found], dtype=pl.String),
            pl.Series("action", [text for _, text in found], dtype=pl.String),
            log.outcomes.success[r.rollout[position]]
            & np.isin(position, r.offsets[1:] - 1, assume_unique=True),
            pl.DataFrame([frame[name].gather(row) for name in columns]),
            _options(log.settings.anchor),
        )

    @classmethod
    def joined(cls, parts: "Sequence[Sample]") -> "Sample":
        """Samples of several logs as one; `parts` is not empty."""
        groups = np.cumsum([0, *(int(part.group.max(initial=-1)) + 1 for part in parts)])
        rollouts = np.cumsum([0, *(int(part.rollout.max(initial=-1)) + 1 for part in parts)])
        numbered = list(zip(parts, groups, rollouts, strict=False))
        return replace(
            parts[0],
            group=np.concatenate([part.group + group for part, group, _ in numbered]),
            rollout=np.concatenate([part.rollout + rollout for part, _, rollout in numbered]),
            observation=pl.concat([part.observation for part in parts]),
            action=pl.concat([part.action for part in parts]),
            success=np.concatenate([part.success for part in parts]),
            columns=pl.concat([part.columns for part in parts], how="diagonal_relaxed"),
            _bases={},
        )

    @property
    def first(self) -> Bools:
        """First row of each rollout, bool (n,)."""
        first: Bools = np.diff(self.rollout, prepend=-1) != 0
        return first

    @property
    def last(self) -> Bools:
        """Last row of each rollout, bool (n,)."""
        last: Bools = np.diff(self.rollout, append=-1) != 0
        return last

    @property
    def start(self) -> str:
        """Regular expression for the beginning of a reply, behind the prefix."""
        return rf"^\s*(?:{self.prefix})?\s*" if self.prefix else r"^\s*"

    @property
    def plain(self) -> pl.Series:
        """Replies without the prefix, String (n,)."""
        return self.observation.str.replace(self.start, "") if self.prefix else self.observation

    def trial(self, rules: RuleFile) -> Trial:
        """Tries rules."""
        return self.judge(self.rows_under(rules), self.base(rules))

    def judge(self, rows: Keyed, base: Ints) -> Trial:
        """How well anchors foretell what follows.

        Args:
          rows: anchors.
          base: int64 (n,), what is to be foretold: the code of each row's own reply. It is the
            same whatever rules carry, so that all of them are judged by the same outcomes.
        """
        at = np.flatnonzero(rows.visit & (~self.last | self.success))
        visits = np.flatnonzero(rows.visit)
        anchor = rows.anchor[visits]
        size = np.bincount(codes(anchor))
        several = distinct_per(codes(anchor), self.rollout[visits]) > 1
        return Trial(
            rows,
            agreement(
                codes(rows.anchor[at], rows.action[at]), self.rollout[at], self.outcome(base)[at]
            ),
            at,
            len(visits),
            len(size),
            float(size[several].sum() / max(len(visits), 1)),
            visit_conflicts(rows, self.rollout, visits),
        )

    def outcome(self, base: Ints) -> Ints:
        """What followed each row: code of the next reply, SUCCESS at the end, int64 (n,)."""
        return np.where(self.last, SUCCESS, np.roll(base, -1))

    def base(self, rules: RuleFile) -> Ints:
        """Code of each row's reply after text operations, int64 (n,); nothing is carried."""
        if rules.reply not in self._bases:
            bare = msgspec.structs.replace(
                rules, key=("reply",), no_op=(), missing=(), thought=(), slot=()
            )
            rows = self.rows_under(bare)
            self._bases[rules.reply] = dense(rows.key)
        return self._bases[rules.reply]

    def rows_under(self, rules: RuleFile) -> Keyed:
        """Anchors under rules."""
        keys = Keys.build(self.options, rules, following=False)
        table = pl.DataFrame([self.observation, self.action]).hstack(self.columns)
        frame = keyed(table.lazy(), _KINDS, keys).collect()
        columns = {
            name: (
                frame[name].cast(pl.UInt64).fill_null(0).to_numpy(),
                frame[name].is_not_null().to_numpy(),
            )
            for name in frame.columns
        }
        done = carry(rules, self.rollout, columns)
        anchor = np.where(done.known, dense_ids(self.group, done.key), -1)
        thought = np.zeros(len(anchor), bool)
        if "thought" in columns:
            thought = columns["thought"][0].astype(bool)
        action = dense(columns["action_key"][0])
        said = columns["reply_key"][1]
        return Keyed(anchor, done.known & ~thought, said, thought, action, done.key, done.parts)


def _options(anchor: AnchorOptions) -> AnchorOptions:
    """Options for texts that views and tags have been applied to."""
    return replace(
        anchor,
        anchor=("observation",),
        action_tag="",
        drop=(),
        rules="",
        preset="",
        merge_similar=0.0,
    )
