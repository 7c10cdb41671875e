"""`crbc check`: every finding on a small log that shows it, counted and located.

Logs are written into a folder of their own and named relative to it, so that places read
`log.jsonl:LINE`. Rows are written as paths: see `helpers.rollout`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import GOLDEN, ROOT, Ended, crbc, program
from helpers import Rows, one, rollout, write_log

from crbc_cli.engine.checks.codes import CODES

SIBLING = one("other", "s", "b", False)
"""A second rollout of group g, so that it is no singleton; it shares the anchor s."""


def checked(logs: Mapping[str, Rows], folder: Path, *options: object) -> Ended:
    """Writes logs and runs `crbc check NAMES OPTIONS --json` beside them."""
    for name, rows in logs.items():
        write_log(rows, folder / name)
    return crbc("check", *logs, *options, "--json", cwd=folder)


def findings(ended: Ended) -> dict[str, Any]:
    """Findings by code."""
    found = ended.json["findings"]
    by_code = {finding["code"]: finding for finding in found}
    assert len(by_code) == len(found)
    return by_code


def of_group(group: str, *rollouts: Rows) -> Rows:
    """The rollouts moved to another group."""
    return [row | {"group_id": group} for rows in rollouts for row in rows]


def pair(group: str = "g") -> Rows:
    """A clean group: one anchor, two actions, one success."""
    return of_group(group, [one("a", "s", "x", True), one("b", "s", "y", False)])


def with_cells(rows: Rows, **cells: Sequence[Any]) -> Rows:
    """A cell per row and name; `...` leaves the cell out."""
    changed = []
    for number, row in enumerate(rows):
        added = {name: values[number] for name, values in cells.items()}
        kept = {name: value for name, value in (row | added).items() if value is not ...}
        changed.append(kept)
    return changed


@dataclass(frozen=True)
class Case:
    """A log and the finding it must give.

    Attributes:
      code: finding.
      logs: name -> rows.
      count, of, unit: as in the report.
      where: its first places.
      says: parts of its message.
      options: of the command.
      also: other findings the log gives.
      advice: where it is not the code's.
    """

    code: str
    logs: Mapping[str, Rows]
    count: int
    of: int
    unit: str
    where: Sequence[str]
    says: Sequence[str] = ()
    options: Sequence[str] = ()
    also: frozenset[str] = field(default_factory=frozenset)
    advice: str = ""


def case(code: str, rows: Rows | Mapping[str, Rows], seen: str, *where: str, **more: Any) -> Case:
    """A case whose `seen` reads "COUNT of OF UNIT"; rows alone are log.jsonl."""
    logs = rows if isinstance(rows, Mapping) else {"log.jsonl": rows}
    count, _, total, unit = seen.split()
    more["also"] = frozenset(more.get("also", "").split())
    return Case(code, logs, int(count), int(total), unit, where, **more)


TOO_FINE = [
    one("0", "home", action, action == "A", group_id=group)
    for group, action in (("traj-7f", "A"), ("traj-9c", "B"), ("traj-a1", "A"), ("traj-be", "B"))
]
UNEVEN = [
    *of_group(
        "g0", [one("0", "s", "a", True), one("1", "s", "b", False), one("2", "s", "a", True)]
    ),
    *of_group("g1", [one("0", "s", "a", True), one("1", "s", "b", False)]),
    *of_group(
        "g2", [one("0", "s", "a", False), one("1", "s", "b", True), one("2", "s", "b", True)]
    ),
]
OUT_OF_ORDER = [
    one("r0", "B", "h", True, step=1),
    one("r1", "A", "f2", False, done=False),
    one("r0", "A", "f", True, done=False),
    one("r1", "B", "k", False, step=1),
]
REPEATED = [
    *rollout("0", "A-x B-y", True),
    *rollout("0", "A-z C-w", False),
    *rollout("1", "A-x B-z", False),
]
TRUNCATED = [
    *rollout("r0", "S-a T-c", True),
    *rollout("r1", "S-a T-d", False, truncated=True, next_observation="S"),
    *rollout("r2", "S-b", False),
]
REWARDED = with_cells(
    [*rollout("r0", "s-push t-push u-finish", True), *rollout("r1", "s-wait s-pull", False)],
    reward=[0.1, 1.0, 10.0, -0.1, -0.1],
    episode_reward=[11.1, 11.1, 11.1, 0.0, 0.0],
)
WHOLE_RESPONSES = [one(i, "s", f"I think of {i}. look", i == 0) for i in range(20)]
"""Twenty rollouts that all meet in s, where no two responses are equal."""
ROOMS = with_cells(
    [*rollout("r0", "a-x b-x", True), *rollout("r1", "a-x c-x", False), one("r2", "a", "y", False)],
    observation=[f"-= {room} =-" for room in ("Hall", "Cave", "Hall", "Well", "Hall")],
    action=["go east", "take lamp", "go east", "look", "look"],
)
"""Hall and `go east` lead to two rooms; two of five visits. Rooms are written as TextWorld does."""
BATCHES = [
    {"step": 10, "prompt": "Q1", "completion": "a", "acc": 1.0},
    {"step": 10, "prompt": "Q1", "completion": "b", "acc": 0.0},
    {"step": 20, "prompt": "Q2", "completion": "c", "acc": 1.0},
]
BY_PROMPT = (
    "--group-by", "prompt", "--anchor", "prompt", "--action", "completion",
    "--success-when", "acc >= 1", "--allow-uneven",
)  # fmt: skip
HISTORY = [
    *rollout("r0", "Q-a Qax-b Qaxby-c", True),
    *rollout("r1", "Q-b Qbz-c Qbzcw-d", False),
]
NOTHING_HAPPENS = [
    *rollout("r0", " ".join(f"room{i}-a{i} Nothing-go{i}" for i in range(5)), True),
    *rollout("r1", "room0-else room1-other", False),
]
"""`Nothing` follows the actions a0 to a4 in 5 of 12 visits; 12 different actions in all."""

CASES = [
    case(
        "group_key_too_fine",
        TOO_FINE,
        "4 of 4 groups",
        "group traj-7f (log.jsonl:1; 1 rollout)",
        "group traj-9c (log.jsonl:2; 1 rollout)",
        "group traj-a1 (log.jsonl:3; 1 rollout)",
        "group traj-be (log.jsonl:4; 1 rollout)",
        says=["column group_id", "like a rollout id rather than a task id", "start from 1 "],
    ),
    case(
        "singleton_groups",
        [one("r0", "s", "a", True)],
        "1 of 1 groups",
        "group g (log.jsonl:1; 1 rollout)",
    ),
    case(
        "missing_siblings",
        UNEVEN,
        "1 of 3 groups",
        "group g1 (log.jsonl:4; 2 rollouts)",
        says=["3 each, 1 missing in all"],
    ),
    case(
        "missing_siblings",
        [*pair("g0"), *pair("g1"), one("c", "s", "x", True)],
        "3 of 3 groups",
        "group g0 (log.jsonl:1; 2 rollouts)",
        "group g1 (log.jsonl:3; 2 rollouts)",
        "group g (log.jsonl:5; 1 rollout)",
        says=["3 each, 4 missing in all"],
        options=["--expected-group-size", "3"],
        also="singleton_groups",
    ),
    case(
        "oversized_groups",
        UNEVEN,
        "2 of 3 groups",
        "group g0 (log.jsonl:1; 3 rollouts)",
        "group g2 (log.jsonl:6; 3 rollouts)",
        options=["--expected-group-size", "2"],
    ),
    case("uneven_groups", UNEVEN[:5], "2 of 2 groups", says=["from 2 to 3 rollouts"]),
    case(
        "conflicting_rows",
        REPEATED,
        "2 of 6 rows",
        "log.jsonl:1 and log.jsonl:3",
        "log.jsonl:2 and log.jsonl:4",
        says=["other commands refuse this log"],
    ),
    case("duplicate_rows", [*pair(), pair()[0]], "1 of 3 rows", "log.jsonl:3"),
    case(
        "negative_steps",
        [*rollout("r0", "s-a", True, step=-1), SIBLING],
        "1 of 2 rows",
        "log.jsonl:1",
    ),
    case(
        "missing_first_steps",
        [one("r0", "s", "a", True, step=3), SIBLING],
        "1 of 2 rollouts",
        "rollout r0 of g (log.jsonl:1; starts at step 3)",
    ),
    case(
        "steps_offset",
        [row | {"step": row["step"] + 1} for row in pair()],
        "2 of 2 rollouts",
        says=["step 1"],
    ),
    case(
        "step_gaps",
        [*rollout("r0", "s-a t-a", True, step=2), SIBLING],
        "1 of 2 rollouts",
        "rollout r0 of g (log.jsonl:2)",
    ),
    case(
        "rows_out_of_order",
        OUT_OF_ORDER,
        "1 of 2 rollouts",
        "rollout r0 of g (log.jsonl:1)",
    ),
    case(
        "done_before_last",
        OUT_OF_ORDER,
        "1 of 2 rollouts",
        "rollout r0 of g (log.jsonl:1)",
        options=["--order-by", "file"],
        also="unterminated",
    ),
    case(
        "shrinking_anchors",
        [*rollout("r0", "s-a sss-b sssss-c ss-d ssssss-e", True), SIBLING],
        "1 of 2 rollouts",
        "rollout r0 of g (log.jsonl:4)",
        says=["3 rows longer than the one before, 1 shorter"],
        options=["--order-by", "file"],
    ),
    case(
        "unterminated",
        [*rollout("r0", "A-x B-y", False, done=False), *rollout("r1", "A-x B-z", True)],
        "1 of 2 rollouts",
        "rollout r0 of g (log.jsonl:2)",
        says=["0 count as successes, 1 count as failures (--truncated fail)"],
    ),
    case(
        "truncated",
        TRUNCATED,
        "1 of 3 rollouts",
        "rollout r1 of g (log.jsonl:4)",
        says=["count as failures (--truncated fail)"],
    ),
    case(
        "truncated",
        TRUNCATED,
        "1 of 3 rollouts",
        says=["lose their last step (--truncated censor)"],
        options=["--truncated", "censor"],
    ),
    case(
        "step_limit",
        [
            *rollout("r0", "s-a t-b u-c", False),
            *rollout("r1", "s-b t-c u-d", False),
            *rollout("r2", "s-b", False),
            *rollout("r3", "s-c", True),
        ],
        "2 of 4 rollouts",
        "rollout r0 of g (log.jsonl:3)",
        "rollout r1 of g (log.jsonl:6)",
        says=["2 of 3 failures have 3 rows"],
    ),
    case(
        "no_ending_columns",
        with_cells(pair(), done=[..., ...]),
        "1 of 1 files",
        "log.jsonl",
    ),
    case(
        "unscored",
        [*pair(), one("c", "s", "y", None), one("d", "s", "x", None)],
        "2 of 4 rollouts",
        "rollout c of g (log.jsonl:3)",
        "rollout d of g (log.jsonl:4)",
    ),
    case(
        "success_lost",
        with_cells([*rollout("r0", "s-a t-b", False), SIBLING], success=[True, False, True]),
        "1 of 2 rollouts",
        "rollout r0 of g (log.jsonl:1)",
    ),
    case(
        "success_without_reward",
        with_cells(pair(), reward=[0.0, 0.0]),
        "1 of 2 rollouts",
        "rollout a of g (log.jsonl:1)",
    ),
    case(
        "constant_groups",
        [
            *of_group("allwin", [one("r0", "s", "a", True), one("r1", "s", "b", True)]),
            *of_group("allfail", [one("r0", "s", "a", False), one("r1", "s", "b", False)]),
        ],
        "2 of 2 groups",
        "group allwin (log.jsonl:1; all_success)",
        "group allfail (log.jsonl:3; all_fail)",
        says=["1 all_success, 1 all_fail"],
    ),
    case(
        "reward_mismatch",
        REWARDED,
        "1 of 2 rollouts",
        "rollout r1 of g (log.jsonl:5; -0.2 against 0.0)",
        says=["1 of 2 agree"],
    ),
    case(
        "repeated_reward",
        with_cells(
            [*rollout("r0", "s-a t-b", True), *rollout("r1", "s-b t-b", False)],
            reward=[1.0, 1.0, 0.0, 0.0],
            episode_rewards=[1.0, 1.0, 0.0, 0.0],
        ),
        "2 of 2 rollouts",
        "rollout r0 of g (log.jsonl:1)",
        "rollout r1 of g (log.jsonl:3)",
        also="aliased_anchors",
    ),
    case(
        "missing_rewards",
        with_cells(pair(), reward=[1.0, None]),
        "1 of 2 rows",
        "log.jsonl:2",
    ),
    case(
        "missing_observations",
        with_cells([*rollout("r0", "s-a t-b", True), SIBLING], observation=["s", None, "s"]),
        "1 of 3 rows",
        "log.jsonl:2",
    ),
    case(
        "empty_observations",
        with_cells([*rollout("r0", "s-a t-b", True), SIBLING], observation=["s", "", "s"]),
        "1 of 3 rows",
        "log.jsonl:2",
    ),
    case(
        "null_actions",
        with_cells(pair(), action=[None, "y"]),
        "1 of 2 rows",
        "log.jsonl:1",
    ),
    case(
        "growing_anchors",
        HISTORY,
        "2 of 2 rollouts",
        "rollout r0 of g (log.jsonl:3)",
        "rollout r1 of g (log.jsonl:6)",
        says=["from 1 to 5 bytes"],
    ),
    case(
        "singleton_anchors",
        [
            one("r0", "[12:01:07] kitchen", "open fridge", True),
            one("r1", "[12:01:09] kitchen", "open drawer", False),
        ],
        "2 of 2 anchors",
        "group g (log.jsonl:1; ok)",
    ),
    case(
        "few_shared_anchors",
        # Of 21 visits only s is shared, by its 2; the loop t-t shares within a rollout alone.
        [*rollout("r0", "s-a " + "t-a " * 19, True), SIBLING],
        "19 of 21 visits",
        says=["2 visits are shared"],
        also="aliased_anchors",
    ),
    case(
        "one_action_anchors",
        [*rollout("r0", "s-a", True), *rollout("r1", "s-a", False)],
        "2 of 2 visits",
        also="aliased_anchors",
    ),
    case(
        "aliased_anchors",
        with_cells([*rollout("r0", "h-k h-o", True), one("r1", "h", "o", False)],
                   observation=["hall"] * 3, action=["take key", "open door", "open door"]),
        "1 of 1 anchors",
        'log.jsonl:2: "hall" -> "open door"',
        says=["66.7 % of the visits", "1 with mixed outcomes"],
    ),
    case(
        "aliased_anchors",
        with_cells([*rollout("r0", "h-k h-o", True), one("r1", "h", "o", False)],
                   inventory=["", "key", ""]),
        "1 of 1 anchors",
        advice="add what the text hides, for example --anchor observation,inventory",
    ),
    case(
        "unique_actions",
        WHOLE_RESPONSES,
        "20 of 20 actions",
        'log.jsonl:1: "I think of 0. look"',
    ),
    case(
        "preset_available",
        ROOMS,
        "2 of 5 visits",
        says=["textworld: 100% of observations match"],
        also="aliased_anchors",
        advice="try --preset textworld; crbc anchors --explain-preset textworld shows its rules",
    ),
    case(
        "hub_anchors",
        NOTHING_HAPPENS,
        "1 of 6 anchors",
        'log.jsonl:2: "Nothing"',
        says=["41.7 % of the visits"],
    ),
    case(
        "missing_columns",
        {"1.jsonl": with_cells(pair(), reward=[1.0, 0.0]), "2.jsonl": pair()},
        "1 of 2 files",
        "2.jsonl lacks reward",
    ),
    case(
        "smaller_batch",
        {"a.jsonl": [*pair("g0"), *pair("g1")], "b.jsonl": pair("g2")},
        "1 of 2 batches",
        "b.jsonl: 2 rollouts after 4, 1 groups after 2",
    ),
    case(
        "smaller_batch",
        BATCHES,
        "1 of 2 batches",
        "log.jsonl training step 20: 1 rollouts after 2, 1 groups after 1",
        options=BY_PROMPT,
        also="singleton_groups uneven_groups no_ending_columns",
    ),
    case(
        "file_number",
        {
            f"{number}.jsonl": [row | {"global_step": inside} for row in pair()]
            for number, inside in ((11, 12), (9, 9), (10, 10))
        },
        "1 of 3 files",
        "11.jsonl: training step 12",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_finding(case: Case, tmp_path: Path) -> None:
    ended = checked(case.logs, tmp_path, *case.options)
    found = findings(ended)
    assert set(found) == {case.code} | case.also
    finding = found[case.code]
    assert (finding["count"], finding["of"], finding["unit"]) == (case.count, case.of, case.unit)
    assert not case.where or finding["where"] == list(case.where)
    for part in case.says:
        assert part in finding["message"]
    assert finding["severity"] == CODES[case.code].severity
    assert finding["advice"] == (case.advice or CODES[case.code].advice)
    severities = [f["severity"] for f in ended.json["findings"]]
    assert severities == sorted(severities, reverse=True), "problems come first"
    assert ended.code == ("problem" in severities)


# --- findings of the readers ----------------------------------------------------------------------


def written(path: Path, *lines: bytes) -> None:
    path.write_bytes(b"".join(lines))


def lines_of(rows: Rows) -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in rows]


def test_torn_last_line_leaves_a_singleton(tmp_path: Path) -> None:
    first, second = lines_of(pair())
    written(tmp_path / "log.jsonl", first, second[:60])
    ended = crbc("check", "log.jsonl", "--json", cwd=tmp_path)
    found = findings(ended)
    assert set(found) == {"torn_line", "singleton_groups"}
    assert (found["torn_line"]["count"], found["torn_line"]["unit"]) == (1, "files")
    assert found["torn_line"]["where"][0].startswith("log.jsonl:2:")
    assert ended.code == 1
    assert ended.stderr == "", "what became a finding is not told twice"


def test_bad_inner_line_is_refused_or_counted(tmp_path: Path) -> None:
    written(tmp_path / "log.jsonl", b"{\n", *lines_of(pair()))
    assert "log.jsonl:1" in crbc("check", "log.jsonl", cwd=tmp_path).refused()
    ended = crbc("check", "log.jsonl", "--skip-bad-lines", "--json", cwd=tmp_path)
    assert set(findings(ended)) == {"skipped_lines"}


def test_lone_surrogates_are_a_note(tmp_path: Path) -> None:
    rows = [row | {"observation": "\ud800"} for row in pair()]
    written(tmp_path / "log.jsonl", *lines_of(rows))
    assert set(findings(crbc("check", "log.jsonl", "--json", cwd=tmp_path))) == {"surrogates"}


def test_one_empty_file_among_others(tmp_path: Path) -> None:
    ended = checked({"1.jsonl": pair(), "2.jsonl": []}, tmp_path)
    found = findings(ended)
    assert set(found) == {"empty_file"}
    assert found["empty_file"]["where"] == ["2.jsonl holds no rows"]


def test_every_code_has_a_case() -> None:
    from_readers = {"torn_line", "skipped_lines", "surrogates", "empty_file"}
    assert {case.code for case in CASES} | from_readers == set(CODES)


# --- logs that must not be accused ----------------------------------------------------------------


NOT_ACCUSED = {
    "a clock that is masked": (
        "singleton_anchors",
        [
            one("r0", "[12:01:07] kitchen", "open fridge", True),
            one("r1", "[12:01:09] kitchen", "open drawer", False),
        ],
        ("--mask", r"\[\d\d:\d\d:\d\d\]"),
    ),
    # w at u ends by success once, and once because a limit cut it.
    "a cut end is no successor": (
        "aliased_anchors",
        [*rollout("r0", "s-a u-w", True), *rollout("r1", "s-a u-w", False, truncated=True)],
        (),
    ),
    "a constant step cost is no episode reward": (
        "repeated_reward",
        with_cells(
            [*rollout("r0", "s-a t-b", True), *rollout("r1", "s-b u-b", False)],
            reward=[-0.1, -0.1, -0.1, -0.1],
        ),
        (),
    ),
    # Four of five rollouts grow; the rule says more than 80 %.
    "growth in 80 % of the rollouts": (
        "growing_anchors",
        [
            row
            for r in range(5)
            for row in rollout(r, f"s-{r} ss-b {'sss' if r else 's'}-c{r}", r == 0)
        ],
        (),
    ),
    # The middle of a grid is entered by four actions, which is all there are.
    "few actions make no hub": (
        "hub_anchors",
        [
            *rollout("r0", "north-down mid-up west-right mid-left", True),
            *rollout("r1", "south-up mid-down east-left mid-right", False),
        ],
        (),
    ),
    # 20 of 23 pairs at s have one visit, less than 90 %.
    "actions of which some come back": (
        "unique_actions",
        [*WHOLE_RESPONSES, *(one(20 + i, "s", f"go {i % 3}", False) for i in range(6))],
        (),
    ),
    "nineteen unique actions": ("unique_actions", WHOLE_RESPONSES[:19], ()),
    "a preset that is used": ("preset_available", ROOMS, ("--preset", "textworld")),
    "rewards that add up but for rounding": (
        "reward_mismatch",
        with_cells(
            [*rollout("r0", "s-a t-b", True), SIBLING],
            reward=[0.1, 0.2, 0.0],
            episode_reward=[0.3, 0.3, 0.0],
        ),
        (),
    ),
    "a success that earlier rows do not know yet": (
        "success_lost",
        with_cells([*rollout("r0", "s-a t-b", True), SIBLING], success=[False, True, False]),
        (),
    ),
}
"""What -> (code, rows, options): the log shows it, and the code must not be among the findings."""


@pytest.mark.parametrize("what", NOT_ACCUSED)
def test_not_accused(what: str, tmp_path: Path) -> None:
    code, rows, options = NOT_ACCUSED[what]
    assert code in CODES
    assert code not in findings(checked({"log.jsonl": rows}, tmp_path, *options))


def test_quotes_show_the_action_without_its_surroundings(tmp_path: Path) -> None:
    """Where --action-tag takes it out of a response; and one thing is not counted as several."""
    rows = with_cells(
        [*rollout("r0", "h-k h-o", True), one("r1", "h", "o", False)],
        action=[f"So be it. <action>{name}</action>" for name in ("key", "open", "open")],
    )
    ended = checked({"log.jsonl": rows}, tmp_path, "--action-tag", "action")
    assert findings(ended)["aliased_anchors"]["where"] == ['log.jsonl:2: "h" -> "open"']
    text = crbc("check", "log.jsonl", "--action-tag", "action", cwd=tmp_path).text
    assert "aliased_anchors  1 of 1 anchor\n" in text


def test_nothing_to_find(tmp_path: Path) -> None:
    """Keys that only come late in JSONL are no missing columns."""
    late = with_cells(pair(), info=[..., {"late": 1}])
    ended = checked({"1.jsonl": late, "2.jsonl": pair()}, tmp_path, "--strict")
    assert ended.json["findings"] == []
    assert ended.code == 0


def test_equal_anchors_of_two_tasks_are_counted_not_pooled(tmp_path: Path) -> None:
    ended = checked({"log.jsonl": [*pair("A"), *pair("B")]}, tmp_path)
    assert ended.json["findings"] == []
    summary = ended.json["summary"]
    assert summary["anchors"] == 2
    assert summary["anchors_in_several_groups"] == 1


def test_last_observation_of_a_message_list_does_not_grow(tmp_path: Path) -> None:
    def says(*parts: str) -> list[dict[str, str]]:
        roles = ["user", *("assistant", "tool") * 2]
        return [{"role": r, "content": c} for r, c in zip(roles, parts, strict=False)]

    rows = [
        one("r0", None, "use lamp", True, step=1) | {"messages": says("Q", "look", "desk, lamp")},
        one("r1", None, "leave", False, step=2)
        | {"messages": says("Q", "go hall", "hall", "go back", "desk, lamp")},
    ]
    whole = findings(checked({"log.jsonl": rows}, tmp_path, "--anchor", "messages"))
    assert {"growing_anchors", "singleton_anchors"} <= set(whole)
    last = checked({"log.jsonl": rows}, tmp_path, "--anchor", "last-tool-result")
    assert set(findings(last)) == {"missing_first_steps"}
    assert last.json["summary"]["anchor_bytes"] == dict.fromkeys(
        ("min", "median", "p90", "max"), 10
    )


# --- numbers of the summary -----------------------------------------------------------------------


def test_both_means_of_the_outcome(tmp_path: Path) -> None:
    rows = [one("short", "s", "win", True), *rollout("long", "s-try t-try u-try", False)]
    summary = checked({"log.jsonl": rows}, tmp_path).json["summary"]
    assert summary["outcome_mean_rollouts"] == 0.5
    assert summary["outcome_mean_rows"] == 0.25
    assert summary["endings"] == {
        "success": 1, "failure": 1, "truncated": 0, "unterminated": 0, "unscored": 0,
    }  # fmt: skip
    assert "0.5 over rollouts, 0.25 over rows" in crbc("check", "log.jsonl", cwd=tmp_path).text


def test_golden_group_is_clean_and_counted() -> None:
    ended = crbc("check", GOLDEN, "--json")
    assert ended.code == 0
    report = ended.json
    assert (report["schema_version"], report["report"], report["findings"]) == (1, "check", [])
    summary = report["summary"]
    # S 4 visits, M 3, N 2; every anchor is shared and has two actions.
    assert (summary["rows"], summary["rollouts"], summary["groups"]) == (9, 4, 1)
    assert summary["group_sizes"] == [{"size": 4, "groups": 1}]
    assert summary["anchors"] == 3
    assert (summary["shared_share"], summary["choice_share"]) == (1, 1)
    assert summary["top_anchor_share"] == pytest.approx(4 / 9)
    assert report["options"]["truncated"] == "fail"


def test_sample_logs_have_no_problem() -> None:
    for name in ("sokoban.parquet", "alfworld.parquet"):
        report = crbc("check", ROOT / "sample_logs" / name, "--json").json
        assert report["problems"] == 0, name


def test_findings_do_not_depend_on_row_order_or_container(tmp_path: Path) -> None:
    frame = pl.read_ndjson(ROOT / "sample_logs" / "sokoban.jsonl")
    frame.write_parquet(tmp_path / "log.parquet")
    lines = (ROOT / "sample_logs" / "sokoban.jsonl").read_bytes().splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    written(tmp_path / "shuffled.jsonl", *lines)

    def counted(name: str) -> tuple[dict[str, int], dict[str, Any]]:
        ended = crbc("check", name, "--json", cwd=tmp_path)
        counts = {code: f["count"] for code, f in findings(ended).items()}
        counts.pop("rows_out_of_order", None)
        return counts, ended.json["summary"]

    assert counted("log.parquet") == counted("shuffled.jsonl")


# --- several files --------------------------------------------------------------------------------


def test_files_sort_by_number_and_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in (9, 10, 11):
        write_log([r | {"global_step": number} for r in pair()], folder / f"{number}.jsonl")
    ended = crbc("check", "logs", "--json", cwd=tmp_path)
    assert ended.json["findings"] == []
    assert [(b["source_file"], b["training_step"], b["rows"]) for b in ended.json["batches"]] == [
        ("logs/9.jsonl", "9", 2),
        ("logs/10.jsonl", "10", 2),
        ("logs/11.jsonl", "11", 2),
    ]
    text = crbc("check", "logs", cwd=tmp_path).text
    assert text.index("9.jsonl") < text.index("10.jsonl") < text.index("11.jsonl")


def test_a_task_spread_over_files(tmp_path: Path) -> None:
    first, second = pair()
    logs = {"a.jsonl": [first], "b.jsonl": [second]}
    found = findings(checked(logs, tmp_path))
    assert "--spanning-groups" in found["group_key_too_fine"]["message"]
    pooled = checked(logs, tmp_path, "--spanning-groups")
    assert pooled.json["findings"] == []
    assert pooled.json["summary"]["group_sizes"] == [{"size": 2, "groups": 1}]


def test_a_key_that_is_too_fine_is_named(tmp_path: Path) -> None:
    rows = [row | {"attempt": number} for number, row in enumerate([*pair(), *pair("h")])]
    found = findings(checked({"log.jsonl": rows}, tmp_path, "--key", "attempt"))
    assert "column attempt has a value of its own" in found["group_key_too_fine"]["message"]


def test_places_name_the_right_file(tmp_path: Path) -> None:
    bad = [*rollout("r0", "s-a t-b", True, step=5), SIBLING]
    logs = {"a.jsonl": pair("g0"), "b.jsonl": bad}
    assert findings(checked(logs, tmp_path))["step_gaps"]["where"] == [
        "rollout r0 of g (b.jsonl:2)"
    ]


# --- the command ----------------------------------------------------------------------------------


def test_exit_codes(tmp_path: Path) -> None:
    write_log(TRUNCATED, tmp_path / "note.jsonl")
    write_log(TOO_FINE, tmp_path / "problem.jsonl")

    def code(*arguments: str) -> int:
        return crbc("check", *arguments, cwd=tmp_path).code

    assert code("note.jsonl") == 0
    assert code("note.jsonl", "--strict") == 1
    assert code("note.jsonl", "--strict", "--exit-zero") == 0
    assert code("problem.jsonl") == 1
    assert code("problem.jsonl", "--exit-zero") == 0


def test_what_cannot_run(tmp_path: Path) -> None:
    write_log([], tmp_path / "empty.jsonl")
    write_log(BATCHES, tmp_path / "batches.jsonl")
    assert "no rows" in crbc("check", "empty.jsonl", cwd=tmp_path).refused()
    assert "no such file" in crbc("check", "absent.jsonl", cwd=tmp_path).refused()
    assert "group_id" in crbc("check", "batches.jsonl", *BY_PROMPT[2:-1], cwd=tmp_path).refused()
    uneven = crbc("check", "batches.jsonl", *BY_PROMPT[:-1], cwd=tmp_path)
    assert uneven.code == 2
    assert "1 of size 1, 1 of size 2; sizes differ" in uneven.stderr


def test_text_fits_80_columns_and_a_plain_pipe(tmp_path: Path) -> None:
    long = "a task whose id is a whole sentence about what is to be done, and where, and why"
    write_log([*of_group(long, UNEVEN[:2]), *UNEVEN, *TRUNCATED], tmp_path / "log.jsonl")
    ended = program("check", "log.jsonl", "--expected-group-size", "3", cwd=tmp_path)
    assert ended.code == 1
    assert "\x1b" not in ended.text
    lines = ended.text.splitlines()
    assert max(map(len, lines)) <= 80
    heads = ("log ", "problem missing_siblings  2 of 5 groups", "note ", "1 problem, ")
    order = [next(i for i, line in enumerate(lines) if line.startswith(h)) for h in heads]
    assert order == sorted(order)
    assert any("group g1 (log.jsonl:6; 2 rollouts)" in line for line in lines)


def test_stdin_and_other_remarks(tmp_path: Path) -> None:
    write_log(BATCHES[:2], tmp_path / "log.jsonl")
    text = (tmp_path / "log.jsonl").read_bytes()
    ended = program("check", "-", *BY_PROMPT[:-1], "--json", stdin=text)
    assert findings(ended)["no_ending_columns"]["where"] == ["-"]
    assert ended.stderr.splitlines() == [
        "note: no rollout_id: each row is one rollout of one step",
        "note: --group-by prompt gives 1 group: 1 of size 2",
    ]


def test_list_names_every_code() -> None:
    text = crbc("check", "--list").text
    listed = crbc("check", "--list", "--json").json["findings"]
    assert [row["code"] for row in listed] == list(CODES)
    assert all(code in text for code in CODES)


def test_library_call(tmp_path: Path) -> None:
    import crbc_cli

    path = write_log(UNEVEN, tmp_path / "log.jsonl")
    report = crbc_cli.check([str(path)], expected_group_size=2)
    assert [finding.code for finding in report.findings] == ["oversized_groups"]
    assert report.problems == 1
