"""The HTML report and the group graph: their data against the commands' own, their geometry
against an independent walk, and log text that must stay text."""

from __future__ import annotations

import json
import math
import sys
import xml.etree.ElementTree as ET
from collections import deque
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import GOLDEN, ROOT, crbc, golden_rows, jsonl, strict_json
from pages import Page, as_json, written

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.picture import picture_group
from crbc_cli.engine.reader import Reader
from crbc_cli.errors import CrbcError
from crbc_cli.logs.sources import resolve
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.report.graph.data import group_data
from crbc_cli.report.graph.svg import group_svg

SOKOBAN = ROOT / "sample_logs" / "sokoban.parquet"
ALFWORLD = ROOT / "sample_logs" / "alfworld.parquet"
SECTIONS = ["summary", "check", "anchors", "coverage", "estimators", "gate", "runtime", "groups"]
NEAR = 1e-9
HOSTILE = [
    "</script><script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "<!-- <script> -->",
    "]]>&lt;b&gt; & \" ' `${1}` {{x}}",
    "\u2028\u2029\u202e\x00\x07 😀 \ud83d".encode("utf-8", "replace").decode(),
]


@pytest.fixture(scope="module")
def sokoban(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return written(tmp_path_factory.mktemp("report") / "r.html", "report", SOKOBAN)


def test_a_report_is_one_small_file_that_loads_nothing(sokoban: Page) -> None:
    assert [name for name in sokoban.sections if name != "group"] == SECTIONS
    assert len(sokoban.source.encode()) < 5 * 2**20
    assert sokoban.groups == list(range(16))
    sokoban.loads_nothing()
    links = [a["href"] for tag, a in sokoban.elements if tag == "a"]
    assert links == ["#content", *(f"#{name}" for name in SECTIONS)]


@pytest.mark.parametrize("command", ["check", "coverage", "compare"])
def test_a_report_holds_what_the_commands_say(sokoban: Page, command: str) -> None:
    found = sokoban.data("reports")[command]
    found.pop("options", None)
    assert found == as_json(command, SOKOBAN)


def test_a_report_holds_what_anchors_and_gate_say(sokoban: Page) -> None:
    reports = sokoban.data("reports")
    assert reports["anchors"] == as_json("anchors", SOKOBAN, "--no-suggestions")
    gate = as_json("gate", SOKOBAN, "--at", "5,10")
    assert reports["gate"]["points"] == gate["points"]


def test_groups_are_listed_with_the_credit_tables_own_numbers(sokoban: Page) -> None:
    ended = crbc(
        "annotate", SOKOBAN, "-o", "-", "--to", "arrow", "--method", "crbc,k0=crbc:depth=0"
    )
    assert ended.code == 0
    table = pl.DataFrame(pl.from_arrow(ended.table))
    listed = {group["id"]: group for group in sokoban.data("page")["groups"]}
    assert list(listed) == table["group_id"].unique(maintain_order=True).to_list()
    for [name], rows in table.group_by(["group_id"]):
        group = listed[name]
        assert group["rows"] == rows.height
        assert group["status"] == rows["group_status"][0]
        assert group["credited"] == pytest.approx((rows["crbc_step_credit"] != 0).mean())
        moved = (rows["crbc_credit"] - rows["k0_credit"]).abs().mean()
        assert group["interest"] == pytest.approx(moved, abs=NEAR)
        eligible = rows.filter(pl.col("actions") >= 2)
        assert group["reach"] == pytest.approx(eligible["reachable_rollouts"].mean())


@pytest.mark.parametrize(
    ("log", "number", "options"),
    [
        (SOKOBAN, 7, []),
        (SOKOBAN, 7, ["--depth", "2"]),
        (ALFWORLD, 3, ["--preset", "alfworld", "--truncated", "bootstrap"]),
        (ALFWORLD, 0, ["--truncated", "censor", "--depth", "1"]),
    ],
)
def test_a_drawn_group_holds_what_explain_says(
    log: Path, number: int, options: list[str], tmp_path: Path
) -> None:
    ids = pl.read_parquet(log, columns=["group_id"])["group_id"].unique(maintain_order=True)
    chosen = ["--group", ids[number], *options]
    page = written(tmp_path / "g.html", "explain", log, *chosen)
    page.loads_nothing()
    data, told = page.group(), as_json("explain", log, *chosen)
    numbers = data["depths"][data["run"]]
    actions = [action for anchor in told["anchors"] for action in anchor["actions"]]
    near(numbers["v"], [anchor["state_value"] for anchor in told["anchors"]])
    near(numbers["q"], [action["action_value"] for action in actions])
    near(numbers["credit"], [action["credit"] for action in actions])
    near(numbers["step_credit"], [action["step_credit"] for action in actions])
    reach = [int(bits, 16).bit_count() for bits in data["depths"][-1]["reach"]]
    assert reach == [anchor["reachable_rollouts"] for anchor in told["anchors"]]
    assert [a["visits"] for a in data["anchors"]] == [a["visit_count"] for a in told["anchors"]]
    texts = data["texts"]
    assert [texts[pair["action"]] for pair in data["pairs"]] == [a["action"] for a in actions]
    assert sorted((a["pair"], a["to"], a["count"]) for a in data["arrows"]) == sorted(
        (
            pair,
            x["anchor"] if x["boundary"] is None else {"success": -1, "failure": -2}[x["boundary"]],
            x["count"],
        )
        for pair, action in enumerate(actions)
        for x in action["successors"]
    )
    for mine, theirs in zip(data["rollouts"], told["rollouts"], strict=True):
        assert (mine["id"], mine["outcome"]) == (theirs["rollout_id"], theirs["outcome"])
        for name in ("v", "q", "credit", "step_credit", "group_advantage", "advantage"):
            column = {"v": "state_value", "q": "action_value"}.get(name, name)
            near([s[name] for s in mine["steps"]], [s[column] for s in theirs["steps"]])
        rows = pl.read_parquet(log).filter(pl.col("group_id") == ids[number])
        rows = rows.filter(pl.col("rollout_id") == mine["id"]).sort("step")
        assert [texts[s["seen"]] for s in mine["steps"]] == rows["observation"].to_list()
        assert [texts[s["did"]] for s in mine["steps"]] == rows["action"].to_list()


def near(mine: list[float | None], theirs: list[float | None]) -> None:
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None)
        assert a is None or b is None or math.isclose(a, b, rel_tol=0, abs_tol=NEAR)


def test_every_depth_of_a_drawn_group_is_a_run_of_its_own(tmp_path: Path) -> None:
    data = written(tmp_path / "g.html", "explain", SOKOBAN, "--group", "sokoban-0007").group()
    depths = [numbers["depth"] for numbers in data["depths"]]
    assert depths[0] == 0
    assert depths[-1] == "inf"
    assert {0, 1, 2, 3, 5, data["settled"], "inf"} == set(depths)
    for numbers in data["depths"]:
        told = as_json("explain", SOKOBAN, "--group", "sokoban-0007", "--depth", numbers["depth"])
        near(numbers["v"], [anchor["state_value"] for anchor in told["anchors"]])
    full, settled = data["depths"][-1]["reach"], data["depths"][depths.index(data["settled"])]
    assert settled["reach"] == full


def test_the_golden_page_shows_the_numbers_of_the_golden_group(tmp_path: Path) -> None:
    """The hand-solved table of the golden group; sample_logs/generators/golden.py has it too."""
    data = written(tmp_path / "g.html", "explain", GOLDEN).group()
    name = {anchor["name"]: number for number, anchor in enumerate(data["anchors"])}
    texts = data["texts"]
    pair = {
        (data["anchors"][p["anchor"]]["name"], texts[p["action"]]): n
        for n, p in enumerate(data["pairs"])
    }
    expected: dict[int | str, tuple[float, ...]] = {
        0: (0.475398, 0.653333, 0.480200, 0.004802, 0.480200, 0.326667, -0.653333, 0.0480),
        1: (0.555431, 0.653333, 0.320133, 0.084835, 0.320133, 0.326667, -0.653333, 0.8484),
        2: (0.476999, 0.653333, 0.320133, 0.163268, 0.320133, 0.326667, -0.653333, 1.0),
        3: (0.476999, 0.653333, 0.320133, 0.163268, 0.320133, 0.326667, -0.653333, 1.0),
        "inf": (0.476999, 0.653333, 0.320133, 0.163268, 0.320133, 0.326667, -0.653333, 1.0),
    }
    shown = {numbers["depth"]: numbers for numbers in data["depths"]}
    for depth, values in expected.items():
        n = shown[depth]
        credit = [("S", "a"), ("N", "c"), ("M", "p"), ("M", "q")]
        found = [n["v"][name[s]] for s in "SMN"] + [n["credit"][pair[p]] for p in credit]
        assert found == pytest.approx(values[:7], abs=5e-7)
        assert n["step_credit"][pair["S", "a"]] == pytest.approx(values[7], abs=5e-5)
    reach = [
        [
            int(shown[k]["reach"][s["anchor"]], 16).bit_count()
            for r in data["rollouts"]
            for s in r["steps"]
        ]
        for k in (0, 1)
    ]
    assert reach == [[4, 3, 4, 3, 4, 2, 3, 4, 2], [4, 3, 4, 3, 4, 4, 3, 4, 4]]
    advantages = [s["advantage"] for r in data["rollouts"] for s in r["steps"]]
    by_hand = [5.8660, 4.4016, 4.1340, -7.9371, -4.1340, 5.8660, 4.4016, -5.8660, -5.8660]
    assert advantages == pytest.approx(by_hand, abs=5e-5)
    lines = dict(map(tuple, data["pairs"][pair["S", "a"]]["lines"]))
    assert lines["Q(a)"] == "= 0.98 * V(M) = 0.98 * 0.653333 = 0.640267"


def test_the_computation_of_a_step_is_that_of_explain(tmp_path: Path) -> None:
    data = written(tmp_path / "g.html", "explain", ALFWORLD, "--group", "alfworld-0003").group()
    rollout, step = data["rollouts"][5], data["rollouts"][5]["steps"][4]
    told = as_json("explain", ALFWORLD, "--group", "alfworld-0003", "--step", f"{rollout['id']}:4")
    values = {formula["symbol"]: formula["filled"] for formula in told["formulas"]}
    lines = dict(map(tuple, data["pairs"][step["pair"]]["lines"]))
    assert lines["sigma"].startswith(f"= {values['sigma']} = ")
    assert rollout["term"][1].startswith(f"= {values['A_G']} = ")
    evidence = data["pairs"][step["pair"]]["evidence"]
    theirs = {r["rollout_id"]: r["credit"]["share"] for r in told["evidence"]["rollouts"]}
    mine = {data["rollouts"][part[0]]["id"]: part[5] for part in evidence["rollouts"]}
    assert mine == pytest.approx(theirs, abs=NEAR)
    assert sum(mine.values()) == pytest.approx(1)
    shares = sorted((t["credit"]["share"] for t in told["evidence"]["transitions"]), reverse=True)
    assert [part[5] for part in evidence["transitions"]] == pytest.approx(shares[:12], abs=NEAR)
    assert evidence["more"] == max(len(shares) - 12, 0)


def hostile_log(folder: Path) -> Path:
    rows = golden_rows()
    for number, row in enumerate(rows):
        row["observation"] = f"{row['observation']} {HOSTILE[number % len(HOSTILE)]}"
        row["action"] += HOSTILE[(number + 1) % len(HOSTILE)]
        row["rollout_id"] += HOSTILE[1]
        row["group_id"] = HOSTILE[0]
    path = folder / "<b onclick=alert(1)>.jsonl"
    path.write_bytes(jsonl(rows))
    return path


def test_log_text_stays_text(tmp_path: Path) -> None:
    log = hostile_log(tmp_path)
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    for page in (
        written(tmp_path / "r.html", "report", log),
        written(tmp_path / "g.html", "explain", log),
    ):
        page.loads_nothing()
        tags = {tag for tag, _ in page.elements}
        assert tags.isdisjoint({"img", "b"})
        data = page.group()
        assert data["id"] == HOSTILE[0]
        seen = [
            (data["texts"][s["seen"]], data["texts"][s["did"]])
            for r in data["rollouts"]
            for s in r["steps"]
        ]
        assert sorted(seen) == sorted((row["observation"], row["action"]) for row in rows)
    picture = tmp_path / "g.svg"
    assert crbc("explain", log, "-o", picture).code == 0
    tags = {element.tag.rpartition("}")[2] for element in ET.parse(picture).iter()}
    assert tags <= {"svg", "title", "desc", "rect", "g", "text", "path", "circle", "defs", "marker"}


@pytest.mark.parametrize("suffix", ["html", "svg"])
def test_a_drawn_group_is_the_same_bytes_again(suffix: str, tmp_path: Path) -> None:
    made = []
    for number in range(2):
        output = tmp_path / f"{number}.{suffix}"
        ended = crbc("explain", SOKOBAN, "--group", "sokoban-0003", "-o", output)
        assert ended.code == 0, ended.stderr
        made.append(output.read_bytes())
    assert made[0] == made[1]


def test_only_the_most_interesting_groups_are_drawn_and_the_page_says_so(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", "report", SOKOBAN, "--detail", 3)
    groups = page.data("page")["groups"]
    assert len(groups) == 16
    best = sorted(groups, key=lambda group: -group["interest"])[:3]
    assert sorted(page.groups) == sorted(group["n"] for group in best)
    assert "Graph and transcript of the 3 most interesting groups are in this page" in page.source
    assert "of the other 13 only the numbers are" in page.source


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Three training updates of different success."""
    folder = tmp_path / "run"
    folder.mkdir()
    log = pl.read_parquet(SOKOBAN)
    names = log["group_id"].unique(maintain_order=True).to_list()
    for number, first in ((2, 0), (10, 4), (1, 8)):
        log.filter(pl.col("group_id").is_in(names[first : first + 4])).write_parquet(
            folder / f"step_{number}.parquet"
        )
    return folder


def test_a_folder_of_updates_gets_curves_in_natural_order(run_folder: Path, tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", "report", run_folder)
    assert "updates" in page.sections
    updates = page.data("reports")["overview"]["updates"]
    files = [run_folder / f"step_{n}.parquet" for n in (1, 2, 10)]
    assert [line["source_file"] for line in updates] == list(map(str, files))
    for line, file in zip(updates, files, strict=True):
        check, coverage = as_json("check", file), as_json("coverage", file)
        assert line["success_rate"] == pytest.approx(check["summary"]["success_rate"])
        assert line["conflict"] == pytest.approx(coverage["conflict_rate"])
        first, last = coverage["depths"][0], coverage["depths"][-1]
        assert line["full_0"] == pytest.approx(first["full_coverage_share"])
        assert line["full"] == pytest.approx(last["full_coverage_share"])
        assert line["reach"] == pytest.approx(last["mean_rollouts"] / 8)
        mine = [g for g in page.data("page")["groups"] if g["file"] == str(file)]
        flat = [g["status"] in ("all_success", "all_fail") for g in mine]
        assert line["zero_variance"] == pytest.approx(sum(flat) / len(flat))
    titles = [str(a.get("aria-label")) for tag, a in page.elements if a.get("class") == "chart"]
    for told in (
        "Success rate",
        "Coverage",
        "Steps with credit",
        "Zero-variance",
        "Conflict",
        "Runtime",
    ):
        assert [title for title in titles if title.startswith(told)], told


def test_charts_have_text_and_tables_have_captions(sokoban: Page) -> None:
    charts = [a for tag, a in sokoban.elements if tag == "svg"]
    assert charts
    for chart in charts:
        assert chart["role"] == "img"
        assert len(str(chart["aria-label"])) > 30
    tables = [tag for tag, _ in sokoban.elements if tag in ("table", "caption")]
    assert tables == ["table", "caption"] * (len(tables) // 2)


def columns_by_walking(data: dict[str, Any]) -> dict[int, int]:
    """Fewest transitions from a start to each anchor."""
    after: dict[int, set[int]] = {}
    for arrow in data["arrows"]:
        after.setdefault(data["pairs"][arrow["pair"]]["anchor"], set()).add(arrow["to"])
    column = {r["steps"][0]["anchor"]: 0 for r in data["rollouts"]}
    queue = deque(column)
    while queue:
        here = queue.popleft()
        for there in after.get(here, ()):
            if there >= 0 and there not in column:
                column[there] = column[here] + 1
                queue.append(there)
    return column


@pytest.mark.parametrize(
    ("log", "options", "most"),
    [(SOKOBAN, [], 30), (ALFWORLD, ["--preset", "alfworld"], 200), (ALFWORLD, [], 60)],
)
def test_nothing_overlaps_and_time_runs_to_the_right(
    log: Path, options: list[str], most: int, tmp_path: Path
) -> None:
    page = written(
        tmp_path / "r.html", "report", log, "--detail", 4, "--methods", "grpo,crbc", *options
    )
    for number in page.groups:
        data = page.group(number)
        assert 0 < len(data["anchors"]) < most
        boxes = [(a["x"], a["y"], a["r"]) for a in [*data["anchors"], *data["boundaries"]]]
        for i, (x, y, r) in enumerate(boxes):
            assert r <= x <= data["size"][0] - r
            assert r <= y <= data["size"][1]
            for u, v, s in boxes[:i]:
                assert math.hypot(x - u, y - v) > r + s
        column = columns_by_walking(data)
        place = [(column[number], a["x"]) for number, a in enumerate(data["anchors"])]
        for depth, x in place:
            assert all(x > u for other, u in place if other < depth)
        rightmost = max(a["x"] for a in data["anchors"])
        assert all(b["x"] > rightmost for b in data["boundaries"])
        assert all(a["path"].startswith("M") and "nan" not in a["path"] for a in data["arrows"])


def test_a_picture_shows_each_anchor_and_marks_a_step(tmp_path: Path) -> None:
    output = tmp_path / "g.svg"
    ended = crbc("explain", GOLDEN, "--step", "t2:1", "-o", output)
    assert ended.code == 0, ended.stderr
    root = ET.parse(output).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f".//{space}circle")) == 3
    titles = [str(t.text) for t in root.iter(f"{space}title")]
    assert any("c: 1x, Q 0.640267, credit +0.320133" in title for title in titles)
    [marked] = [e for e in root.iter(f"{space}path") if e.get("id") == "step"]
    way = [
        e.get("d")
        for e in root.iter(f"{space}path")
        if e.find(f"{space}title") is not None
        and str(e.find(f"{space}title").text).startswith("c: ")
    ]  # type: ignore[union-attr]
    assert way == [marked.get("d")]


def test_the_readmes_picture_is_what_the_program_draws(tmp_path: Path) -> None:
    output = tmp_path / "g.svg"
    log = Path("sample_logs") / "sokoban.parquet"
    ended = crbc("explain", log, "--group", "sokoban-0012", "-o", output, cwd=ROOT)
    assert ended.code == 0, ended.stderr
    assert output.read_bytes() == (ROOT / "sample_logs/figures/group-graph.svg").read_bytes()


@pytest.mark.parametrize("rule", ["fail", "censor", "exclude", "bootstrap"])
def test_odd_logs_are_drawn(rule: str) -> None:
    """Every worked case: groups of one, no outcome, thoughts, empty anchors, cut rollouts."""
    drawn = 0
    for case in sorted((ROOT / "tests" / "cases").glob("*.jsonl")):
        settings = Settings.from_flat({"truncated": rule})
        try:
            logs = [*Reader.open(resolve(str(case)), settings, Clock(), Notes()).logs()]
        except CrbcError:
            continue
        for log in logs:
            for group in range(log.rollouts.groups):
                alone = log.only(group)
                picture = picture_group(alone, Clock(), evidence=True)
                data = strict_json(json.dumps(group_data(picture)))
                assert sum(len(r["steps"]) for r in data["rollouts"]) == len(alone.rollouts.row)
                ET.fromstring(group_svg(picture))
                drawn += 1
    assert drawn > 20


def test_odd_logs_are_reported(tmp_path: Path) -> None:
    for name in ("group-of-one", "nan-and-null-reward", "uneven-groups"):
        case = ROOT / "tests" / "cases" / f"{name}.jsonl"
        page = written(tmp_path / f"{name}.html", "report", case, "--methods", "grpo,crbc")
        rows = [len(case.read_bytes().splitlines())]
        assert [sum(g["rows"] for g in page.data("page")["groups"])] == rows


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["report", GOLDEN, "-o", "r.txt"], "r.txt has no known suffix; name it NAME.html"),
        (["report", GOLDEN, "-o", "there.html"], "there.html: exists already; use --force"),
        (["report", GOLDEN, "-o", "r.html", "--detail", "-1"], "--detail -1 is negative"),
        (["explain", GOLDEN, "-o", "g.png"], "name it NAME.html or NAME.svg"),
        (["explain", GOLDEN, "-o", "g.svg", "--json"], "--json and -o are two answers"),
        (["explain", GOLDEN, "-o", "g.svg", "--step", "t9:0"], "no rollout 't9'"),
    ],
)
def test_a_page_that_cannot_be_is_refused(
    arguments: list[object], says: str, tmp_path: Path
) -> None:
    (tmp_path / "there.html").write_text("mine")
    assert says in crbc(*arguments, cwd=tmp_path).refused()
    assert [path.name for path in tmp_path.iterdir()] == ["there.html"]
    assert (tmp_path / "there.html").read_text() == "mine"


def test_a_missing_layout_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    line = crbc("report", GOLDEN, "-o", tmp_path / "r.html").refused()
    assert "pip install 'crbc-cli[report]'" in line


def test_a_page_can_be_piped() -> None:
    ended = crbc("explain", GOLDEN, "-o", "-")
    assert ended.code == 0
    assert ended.text.startswith("<!doctype html>")


def test_a_group_without_anchors_is_drawn(tmp_path: Path) -> None:
    """Unscored beside a good one, or without any observation."""
    rows = golden_rows() + [
        row | {"group_id": "other", "success": None, "observation": None} for row in golden_rows()
    ]
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(rows))
    assert crbc("report", log, "-o", tmp_path / "r.html").code == 0
    for suffix in ("html", "svg"):
        picture = tmp_path / f"g.{suffix}"
        assert crbc("explain", log, "--group", "other", "-o", picture).code == 0
        assert picture.stat().st_size
