"""The WebShop preset, on rollouts written by hand in the four texts in which WebShop is logged.

WebShop does not run offline, so nothing here was printed by it. The pages below are rendered the
way its wrappers do: `react` is the text of the ReAct notebooks, where an option is confirmed by
"You have clicked …" and a command that does not fit by "Invalid action!"; `simple` and `rich` are
WebShop's own observation modes "text" and "text_rich", which show the page again in both cases;
`quoted` is `simple` as verl-agent prints it, without the instruction and in quotes.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from crbc_cli.anchors.choose import detect_preset
from crbc_cli.anchors.rulefile import load_rules, preset_text
from crbc_cli.notes import Notes
from tests.helpers import package_credit

STYLES = ("react", "simple", "rich", "quoted")
INSTRUCTION = "i want a large blue mug, and price lower than 20.00 dollars"
MUG, CUP = "B0MUG00001", "B0CUP00002"

# page -> what the shop shows on it: text, or a [button]
PAGES: dict[str, list[str]] = {
    "start": ["[Search]"],
    "results": [
        "[Back to Search]",
        "Page 1 (Total results: 2)",
        "[Next >]",
        f"[{MUG}]",
        "Enamel mug",
        "$12.0",
        f"[{CUP}]",
        "Tea cup",
        "$9.5",
    ],
    "more": ["[Back to Search]", "Page 2 (Total results: 2)", "[< Prev]", f"[{CUP}]", "Tea cup"],
    "item": [
        "[Back to Search]",
        "[< Prev]",
        "color",
        "[blue]",
        "[red]",
        "size",
        "[large]",
        "Enamel mug",
        "Price: $12.0",
        "[Description]",
        "[Features]",
        "[Reviews]",
        "[Buy Now]",
    ],
    "sub-page": ["[Back to Search]", "[< Prev]", "Buy now and enjoy: a mug for the search of tea."],
}

# (page that is shown, how the ReAct text words the reply instead, action, situation). "" as page:
# nothing came back. A situation is what decides how the shop answers from here on.
Step = tuple[str, str, str, str | None]
ONE: list[Step] = [
    ("start", "", "search[blue mug]", "start"),
    ("results", "", f"click[{MUG}]", "results 1 blue mug"),
    ("item", "", "click[blue]", "mug"),
    ("item", "You have clicked blue.", "click[large]", "mug blue"),
    ("item", "You have clicked large.", "click[Description]", "mug blue large"),
    ("sub-page", "", "click[< Prev]", "mug blue large, description"),
    ("item", "", "click[Buy Now]", "mug blue large"),
]
TWO: list[Step] = [
    ("start", "", "search[mug]", "start"),
    ("results", "", "click[Next >]", "results 1 mug"),
    ("more", "", "click[Back to Search]", "results 2 mug"),
    ("start", "", "search[blue mug]", "start"),
    ("results", "", f"click[{MUG}]", "results 1 blue mug"),
    ("item", "", "click[large]", "mug"),
    ("item", "You have clicked large.", "click[blue]", "mug large"),
    ("item", "You have clicked blue.", "click[Buy Now]", "mug blue large"),
]
THREE: list[Step] = [
    ("start", "", "search[blue mug]", "start"),
    ("results", "", f"click[{CUP}]", "results 1 blue mug"),
    ("item", "", "click[blue]", "cup"),
    ("item", "You have clicked blue.", "click[< Prev]", "cup blue"),
    ("results", "", "click[Reviews]", "results 1 blue mug"),
    ("results", "Invalid action!", f"click[{MUG}]", "results 1 blue mug"),
    ("item", "", "click[Features]", "mug"),
    ("sub-page", "", f"click[{CUP}]", "mug, features"),
    ("sub-page", "", "click[Back to Search]", "mug, features"),
    ("", "", "click[Back to Search]", None),
]


def shown(page: str, style: str) -> str:
    """The page as text."""
    if not page:
        return ""
    parts = PAGES[page]
    if style == "react":
        head = f"\nWebShop \nInstruction:  \n{INSTRUCTION} \n" if page == "start" else "\n"
        return head + " \n".join(parts) + " "
    if style == "rich":
        marked = [f"[button] {p[1:-1]} [button_]" if p[0] == "[" else p for p in parts]
        return f"Instruction:\n{INSTRUCTION}\n" + "\n".join(marked)
    bare = [p.strip("[]") for p in parts]
    if style == "quoted":
        return " [SEP] ".join(f"'{p}'" for p in bare)
    return " [SEP] ".join(["WebShop", "Instruction:", INSTRUCTION, *bare])


def log(style: str) -> list[dict[str, Any]]:
    """Three rollouts as a step table, with the situation of each row in `situation`."""
    rows = []
    for name, steps in (("one", ONE), ("two", TWO), ("three", THREE)):
        for step, (page, reply, action, situation) in enumerate(steps):
            observation = reply if reply and style == "react" else shown(page, style)
            last = step == len(steps) - 1
            bought = action == "click[Buy Now]"
            rows.append(
                {
                    "group_id": "mug",
                    "rollout_id": name,
                    "step": step,
                    "observation": observation,
                    "action": action.lower() if style == "quoted" else action,
                    "success": last and bought,
                    "done": last,
                    "truncated": last and not bought,
                    "situation": situation,
                }
            )
    return rows


def same_partition(left: list[Any], right: list[Any]) -> bool:
    pairs = set(zip(left, right, strict=True))
    return len(pairs) == len(set(left)) == len(set(right))


@pytest.mark.parametrize("style", STYLES)
def test_anchor_is_page_item_and_options_in_every_text(style: str) -> None:
    rows = log(style)
    anchors = package_credit(rows, preset="webshop")["anchor"]
    situations = [row["situation"] for row in rows]
    assert [a is None for a in anchors] == [s is None for s in situations]
    assert same_partition(anchors, situations), list(zip(anchors, situations, strict=True))


def test_raw_text_confuses_what_the_preset_tells_apart() -> None:
    rows = log("react")
    raw = package_credit(rows)["anchor"]
    situation = {(r["rollout_id"], r["step"]): r["situation"] for r in rows}
    at = {(r["rollout_id"], r["step"]): a for r, a in zip(rows, raw, strict=True)}
    # "You have clicked blue." with and without the size, and on another item.
    assert at["one", 3] == at["two", 7] == at["three", 3]
    assert len({situation[key] for key in [("one", 3), ("two", 7), ("three", 3)]}) == 3


def test_thoughts_are_no_steps_and_their_replies_no_states() -> None:
    plain = log("react")
    thoughtful: list[dict[str, Any]] = []
    for row in plain:
        shift = sum(r["rollout_id"] == row["rollout_id"] for r in thoughtful)
        if row["step"] == 2:
            thought = {**row, "step": shift, "action": "think[it looks fine]", "done": False}
            thoughtful += [thought, {**row, "step": shift + 1, "observation": "OK."}]
        else:
            thoughtful.append({**row, "step": shift})
    anchors = package_credit(thoughtful, preset="webshop")
    steps = [i for i, row in enumerate(thoughtful) if not row["action"].startswith("think[")]
    expected = package_credit(plain, preset="webshop")
    for name in ("anchor", "visits", "actions", "state_value", "credit"):
        assert [anchors[name][i] for i in steps] == expected[name], name


@pytest.mark.parametrize("style", STYLES)
def test_auto_recognises_it(style: str) -> None:
    assert detect_preset([pl.DataFrame(log(style))], Notes()) == "webshop"


def test_a_question_answering_log_with_search_is_not_webshop() -> None:
    rows = {
        "observation": ["Who wrote Emma?", "Jane Austen was an English novelist."] * 9,
        "action": ["search[Emma]", "finish[Jane Austen]"] * 9,
    }
    for sign in load_rules(preset_text("webshop"), "webshop").detect:
        if sign.column == "observation":
            assert not pl.DataFrame(rows)["observation"].str.contains(sign.pattern).any()
