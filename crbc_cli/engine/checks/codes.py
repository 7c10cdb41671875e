"""Every finding `crbc check` can make, as data, and what a finding holds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["CODES", "PLACES", "Code", "Finding", "Severity", "found"]

Severity = Literal["problem", "note"]
"""problem: rows are lost, mixed up or without credit. note: worth knowing, numbers are sound."""

PLACES = 5
"""Places kept per finding."""


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding.

    Attributes:
      code: stable short name, for scripts.
      severity: problems end in exit code 1, notes do so under --strict.
      meaning: what was seen, one clause.
      advice: what to do about it.
    """

    code: str
    severity: Severity
    meaning: str
    advice: str


_CODES = (
    # files
    Code(
        "empty_file",
        "problem",
        "a file holds no rows",
        "see whether its writer died; leave the file out if it is meant to be empty",
    ),
    Code(
        "torn_line",
        "problem",
        "the last line of a file is torn and left out",
        "the writer died in the middle of it: that rollout lacks its end",
    ),
    Code(
        "skipped_lines",
        "problem",
        "lines that cannot be read were left out (--skip-bad-lines)",
        "mend the lines: their steps are missing",
    ),
    Code(
        "surrogates",
        "note",
        "lone surrogates were replaced by U+FFFD",
        "write text as valid UTF-8",
    ),
    Code(
        "missing_columns",
        "problem",
        "a file lacks columns that the file before it has",
        "see what changed in the writer between the two",
    ),
    Code(
        "smaller_batch",
        "problem",
        "a file or training step has at most half the rollouts or groups of the one before",
        "see whether the logger saw the whole batch, or only one rank's or the last part",
    ),
    Code(
        "file_number",
        "note",
        "the number in a file's name differs from the training step inside",
        "trust the column: the name is off by a counter that moves before or after the dump",
    ),
    # identities
    Code(
        "group_key_too_fine",
        "problem",
        "half the groups or more hold a single rollout",
        "group by what is equal for all rollouts of a task: --map group_id=COLUMN or "
        "--group-by COLUMN",
    ),
    Code(
        "singleton_groups",
        "problem",
        "one rollout counts in a group, so nothing can be compared",
        "find the missing siblings; --singleton says what such rollouts get",
    ),
    Code(
        "missing_siblings",
        "problem",
        "a group has fewer rollouts than expected, or than two thirds of the groups have",
        "see whether rollouts were aborted or not logged; --expected-group-size states the size",
    ),
    Code(
        "oversized_groups",
        "problem",
        "a group has more rollouts than expected, or than two thirds of the groups have",
        "the id is probably used for several draws of the task: add --key COLUMN, for instance "
        "the training step",
    ),
    Code(
        "uneven_groups",
        "note",
        "groups have different sizes and none is the usual one",
        "give --expected-group-size if they should be equal",
    ),
    Code(
        "conflicting_rows",
        "problem",
        "a step occurs twice in a rollout with different content; checked with the first",
        "rollout ids are used twice (name the column that tells rollouts apart with --map "
        "rollout_id=COLUMN, or draws of a task with --key) or steps restart (--order-by file); or "
        "choose with --on-duplicate first|last",
    ),
    Code(
        "duplicate_rows",
        "note",
        "a row repeats an earlier one and counts once",
        "nothing, unless the log was meant to have no copies",
    ),
    # order of steps
    Code(
        "negative_steps",
        "problem",
        "a step is negative",
        "count steps from 0; a padding or reset row does not belong in the log",
    ),
    Code(
        "missing_first_steps",
        "problem",
        "a rollout starts at a later step than others do",
        "its first rows are missing: mend the writer, or the rollout starts in mid-air",
    ),
    Code(
        "steps_offset",
        "note",
        "every rollout starts at the same step, which is not 0",
        "nothing: only the order of steps counts",
    ),
    Code(
        "step_gaps",
        "problem",
        "steps are missing inside a rollout, so that transitions jump over them",
        "mend the writer; nothing if steps are numbered with gaps on purpose",
    ),
    Code(
        "rows_out_of_order",
        "note",
        "rows of a rollout are not in the order of their steps; they were sorted",
        "nothing, as long as the step column is right",
    ),
    Code(
        "done_before_last",
        "problem",
        "a rollout says done or truncated before its last row",
        "two rollouts share an id, rows are out of order, or the flag is wrong",
    ),
    Code(
        "shrinking_anchors",
        "problem",
        "under --order-by file: anchors grow along most rows but shrink in between",
        "rows are probably out of order, or rollouts share an id: log a step column",
    ),
    # endings and outcomes
    Code(
        "unterminated",
        "problem",
        "a rollout's last row is neither done nor truncated",
        "its last rows are missing, or a limit ended it without saying so: map the flag with "
        "--map truncated=COLUMN; --truncated says what such rollouts count as",
    ),
    Code(
        "truncated",
        "note",
        "a limit ended a rollout that had not succeeded",
        "--truncated fail|censor|exclude|bootstrap says what they count as",
    ),
    Code(
        "step_limit",
        "note",
        "no rollout says truncated, yet failures end at exactly the longest length",
        "done probably covers a step limit: log truncated, or map it with --map truncated=COLUMN",
    ),
    Code(
        "no_ending_columns",
        "note",
        "neither done nor truncated is logged, so a cut rollout looks like a failure",
        "log them, or map them with --map done=COLUMN",
    ),
    Code(
        "unscored",
        "problem",
        "a rollout has no outcome on its last row and gets no credit",
        "mend the scorer; --unscored exclude|error|fail says what becomes of such rollouts",
    ),
    Code(
        "success_lost",
        "problem",
        "success is true on an earlier row but not on the last",
        "the last row counts: see whether rows were appended after success, or ids are shared",
    ),
    Code(
        "success_without_reward",
        "note",
        "a success has no positive reward on any row",
        "see whether success and reward speak of the same thing",
    ),
    Code(
        "constant_groups",
        "note",
        "all rollouts of a group have the same outcome, so its group advantage is 0",
        "nothing: rows are never dropped; crbc filter can do so",
    ),
    # rewards
    Code(
        "reward_mismatch",
        "problem",
        "a rollout's step rewards do not add up to its logged episode reward",
        "see which reward is missing or scaled before using --reward sum",
    ),
    Code(
        "repeated_reward",
        "note",
        "the reward column repeats each rollout's reward on all of its rows",
        "it is an episode reward: use --reward last, not sum",
    ),
    Code(
        "missing_rewards",
        "note",
        "a row of a scored rollout has no reward",
        "--reward sum passes over it",
    ),
    # anchors and actions
    Code(
        "missing_observations",
        "problem",
        "a row has no observation, so it has no anchor and gets no credit",
        "log the observation, or drop padding rows",
    ),
    Code(
        "empty_observations",
        "problem",
        "an observation is empty text: all such rows of a group are one anchor",
        "anchor on more than this text: add a column with --anchor, use --preset NAME|auto, or "
        "let crbc anchors look for rules",
    ),
    Code(
        "null_actions",
        "problem",
        "a row has no action; all such rows count as one action",
        "map the action with --action COLUMN, or mend the parser that lost it",
    ),
    Code(
        "growing_anchors",
        "problem",
        "the anchor grows with the step in more than 80 % of the rollouts: it holds the history",
        "anchor on the last observation alone: --anchor COLUMN or a dotted path",
    ),
    Code(
        "singleton_anchors",
        "problem",
        "no anchor is visited twice, so no step gets credit",
        "cut what differs every time, such as clocks and counters, with --mask or --drop",
    ),
    Code(
        "few_shared_anchors",
        "note",
        "less than 10 % of the visits stand at an anchor that another rollout visits",
        "cut what differs every time with --mask, --drop or --normalize",
    ),
    Code(
        "one_action_anchors",
        "problem",
        "no anchor has two different actions, so no step gets credit",
        "see whether the action is read right: --action COLUMN, --action-tag TAG",
    ),
    Code(
        "unique_actions",
        "problem",
        "nearly every action taken where rollouts meet occurs there once, so that each step is "
        "compared with nothing like it",
        "the action column probably holds the whole response: take the action out of it with "
        "--action-tag TAG or a --preset, or name another column with --action",
    ),
    Code(
        "aliased_anchors",
        "note",
        "one action at one anchor led to different successors or to success and failure",
        "the environment is random, or the text hides something: add a column with --anchor, use "
        "--preset NAME|auto, or let crbc anchors look for rules",
    ),
    Code(
        "preset_available",
        "note",
        "anchors join situations that differ, and the log looks like one a preset is made for",
        "use --preset auto, or see crbc anchors --explain-preset NAME",
    ),
    Code(
        "hub_anchors",
        "note",
        "a short text follows many different actions, like a reply that is no state",
        "such replies join situations that differ: anchor on more than the reply",
    ),
)

CODES: dict[str, Code] = {code.code: code for code in _CODES}
"""By name, in the order findings are listed inside their severity."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something suspicious, counted and located.

    Attributes:
      code, severity, advice: see `Code`.
      count: how many `unit` it was seen in.
      of: how many there are.
      unit: files, groups, rollouts, rows, anchors or visits.
      where: the first few places.
      message: what was seen, with numbers.
    """

    code: str
    severity: Severity
    count: int
    of: int
    unit: str
    where: tuple[str, ...]
    message: str
    advice: str

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self) | {"where": list(self.where)}


def found(
    code: str,
    count: int,
    of: int,
    unit: str,
    where: Sequence[str] = (),
    detail: str = "",
    advice: str = "",
) -> Finding | None:
    """A finding of a known code, or None where nothing was counted.

    Args:
      code: key of CODES.
      count, of, unit: see `Finding`.
      where: places, the first PLACES of which are kept.
      detail: numbers of this log, put after the code's meaning.
      advice: what to do about it in this log, in place of the code's advice.
    """
    if not count:
        return None
    known = CODES[code]
    message = f"{known.meaning}: {detail}" if detail else known.meaning
    return Finding(
        code,
        known.severity,
        count,
        of,
        unit,
        tuple(where[:PLACES]),
        message,
        advice or known.advice,
    )
