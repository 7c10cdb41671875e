"""The pages in a real browser: quiet, offline, readable with a keyboard and in both themes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import GOLDEN, ROOT, crbc, golden_rows, jsonl
from pages import Page, written
from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Page as Tab

from crbc_cli.report.graph.colours import value_colour

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ALFWORLD = ROOT / "sample_logs" / "alfworld.parquet"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LOOKS = [(width, scheme) for width in (1280, 400) for scheme in ("light", "dark")]

if CHROMIUM is None and not os.environ.get("CI"):
    pytest.skip("chromium is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("page") / "r.html"
    ended = crbc("report", ALFWORLD, "-o", output, "-q", "--detail", 2)
    assert ended.code == 0, ended.stderr
    return output


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("page") / "g.html"
    ended = crbc("explain", GOLDEN, "--step", "t2:1", "-o", output)
    assert ended.code == 0, ended.stderr
    return output


@dataclass
class Seen:
    """What a tab said and asked for."""

    tab: Tab
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Browser, path: Path, width: int = 1280, scheme: str = "light") -> Iterator[Tab]:
    """The page in a fresh profile; at the end nothing was said on the console, nothing loaded."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
        offline=True,
    )
    context.set_default_timeout(120_000)  # a machine that does other work too
    seen = Seen(context.new_page())
    seen.tab.on("console", lambda message: seen.said.append(message.text))
    seen.tab.on("pageerror", lambda error: seen.said.append(str(error)))
    seen.tab.on("dialog", lambda dialog: seen.said.append(f"dialog {dialog.message}"))
    seen.tab.on("request", lambda request: seen.asked.append(request.url))
    seen.tab.goto(path.as_uri())
    yield seen.tab
    context.close()
    assert seen.said == []
    assert seen.asked == [path.as_uri()]


def open_first_group(tab: Tab) -> None:
    tab.locator("#list button.link").first.click()
    tab.locator("svg.graph").wait_for()


def serious(tab: Tab) -> list[tuple[str, str]]:
    """Serious violations that axe-core finds, with the first element of each."""
    found: list[dict[str, Any]] = Axe().run(tab).response["violations"]
    return [
        (v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_report_is_quiet_whole_and_accessible(
    browser: Browser, report: Path, width: int, scheme: str
) -> None:
    with opened(browser, report, width, scheme) as tab:
        for name in ("summary", "check", "anchors", "coverage", "estimators", "gate", "runtime"):
            assert tab.locator(f"#{name}").is_visible()
        open_first_group(tab)
        assert tab.locator("#group").is_visible()
        tab.locator("g.anchor").nth(3).click()
        if (width > 400) == (scheme == "light"):  # contrast depends on the theme, not on the width
            assert serious(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_drawn_group_is_accessible(
    browser: Browser, golden: Path, width: int, scheme: str
) -> None:
    with opened(browser, golden, width, scheme) as tab:
        tab.locator("svg.graph").wait_for()
        assert serious(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_theme_can_be_chosen(browser: Browser, golden: Path) -> None:
    def paper(tab: Tab) -> str:
        return str(tab.evaluate("getComputedStyle(document.body).backgroundColor"))

    with opened(browser, golden, scheme="dark") as tab:
        dark = paper(tab)
        tab.locator("#theme").click()
        assert paper(tab) != dark
        assert tab.locator("#theme").get_attribute("aria-pressed") == "false"
        tab.locator("#theme").click()
        assert paper(tab) == dark


def set_depth(tab: Tab, position: int) -> None:
    tab.locator("#depth").fill(str(position))


def test_a_depth_recolours_anchors(browser: Browser, golden: Path) -> None:
    data = Page.read(golden).group()
    with opened(browser, golden) as tab:
        tab.locator("svg.graph").wait_for()
        for position, numbers in enumerate(data["depths"]):
            set_depth(tab, position)
            circles = tab.locator("g.anchor circle").all()
            fills = [circle.get_attribute("fill") for circle in circles]
            assert fills == [value_colour(v / data["top"]) for v in numbers["v"]]
            shown = tab.locator("g.anchor text.value").all_text_contents()
            assert shown == [f"{v:.2f}" for v in numbers["v"]]
        assert len({numbers["v"][2] for numbers in data["depths"]}) > 1


def test_the_golden_page_tells_the_numbers(browser: Browser, golden: Path) -> None:
    with opened(browser, golden) as tab:
        details = tab.locator(".details")
        details.get_by_text("Step t2:1").wait_for()
        told = details.inner_text()
        for line in (
            "Q(c) = 0.98 * V(M) = 0.98 * 0.653333 = 0.640267",
            "V = 1/2 * 0.640267 + 1/2 * 0.000000 = 0.320133",
            "A_S = 0.320133 / max(0.320133, 0.1) = 1.0000",
            "advantage = 1 * 0.8660 + 5 * 1.0000 = 5.8660",
        ):
            assert line in told
        assert "M p → SUCCESS ×2" in " ".join(told.split())
        tab.locator("g.anchor").first.click()
        set_depth(tab, 0)
        assert "0.475398" in details.inner_text()
        set_depth(tab, 1)
        assert "0.555431" in details.inner_text()


def test_a_click_shows_the_transcript(browser: Browser, report: Path) -> None:
    page = Page.read(report)
    number = max(page.data("page")["groups"], key=lambda group: group["interest"])["n"]
    data = page.group(number)
    with opened(browser, report) as tab:
        open_first_group(tab)
        tab.locator(".chip").nth(4).click()
        steps, rollout = tab.locator(".transcript li"), data["rollouts"][4]
        assert steps.count() == len(rollout["steps"])
        for at in (0, 3, len(rollout["steps"]) - 1):
            step = rollout["steps"][at]
            seen = steps.nth(at).locator("pre").text_content()
            assert seen == data["texts"][step["seen"]]
            assert data["texts"][step["did"]] in str(steps.nth(at).locator(".did").text_content())
            sign = "+" if step["advantage"] > 0 else "−"
            assert f"{sign}{abs(step['advantage']):.4f}" in steps.nth(at).inner_text()
        steps.nth(3).locator("button").click()
        assert f"Step {rollout['id']}:3" in tab.locator(".details").inner_text()


def test_a_rollouts_path_stands_out(browser: Browser, golden: Path) -> None:
    data = Page.read(golden).group()
    with opened(browser, golden) as tab:
        tab.locator(".chip").nth(3).hover()
        steps = data["rollouts"][3]["steps"]
        on = tab.locator("g.arrow").evaluate_all("all => all.map(one => one.matches('.on'))")
        taken = {(step["pair"], step["to"]) for step in steps}
        assert on == [(arrow["pair"], arrow["to"]) in taken for arrow in data["arrows"]]
        assert tab.locator("g.boundary.on").count() == 1
        tab.locator("h1").hover()
        assert tab.locator("g.arrow.on").count() == 3  # t2's, which the page opened with


@pytest.mark.parametrize(
    ("position", "reached"), [(0, ["t2", "t3"]), (1, ["t0", "t1", "t2", "t3"])]
)
def test_reachable_rollouts_are_ringed(
    browser: Browser, golden: Path, position: int, reached: list[str]
) -> None:
    with opened(browser, golden) as tab:
        tab.get_by_role("button", name="Anchor N").click()
        set_depth(tab, position)
        names = tab.locator(".chip.reached").all_inner_texts()
        assert [name.split()[1] for name in names] == reached


def test_the_graph_obeys_the_keyboard(browser: Browser, golden: Path) -> None:
    with opened(browser, golden) as tab:
        tab.locator("g.anchor").first.focus()
        focus = "document.activeElement.getAttribute('aria-label').split(':')[0]"
        assert tab.evaluate(focus) == "Anchor S"
        tab.keyboard.press("ArrowRight")
        first = tab.evaluate(focus)
        assert first in ("Anchor M", "Anchor N")
        tab.keyboard.press("ArrowUp" if first == "Anchor M" else "ArrowDown")
        assert tab.evaluate(focus) == ("Anchor N" if first == "Anchor M" else "Anchor M")
        tab.keyboard.press("Enter")
        name = tab.evaluate(focus)
        assert tab.locator(".details h4").inner_text() == name
        assert tab.locator("g.anchor[tabindex='0']").count() == 1
        before = tab.locator("svg.graph").get_attribute("viewBox")
        tab.keyboard.press("+")
        assert tab.locator("svg.graph").get_attribute("viewBox") != before
        tab.keyboard.press("0")
        assert tab.locator("svg.graph").get_attribute("viewBox") == before


def test_groups_are_sorted_filtered_and_searched(browser: Browser, tmp_path: Path) -> None:
    rows = []
    for number in range(1000):
        for row in golden_rows():
            won = row["success"] and number % 4 > 0
            blue = number == 5 and row["observation"] == "M"
            text = "the blue door" if blue else row["observation"]
            rows.append(row | {"group_id": f"g{number}", "success": won, "observation": text})
    log = tmp_path / "many.jsonl"
    log.write_bytes(jsonl(rows))
    page = written(tmp_path / "r.html", "report", log, "--detail", 8, "--methods", "grpo,crbc")
    assert page.groups == [1, 2, 3, 5, 6, 7, 9, 10]
    with opened(browser, tmp_path / "r.html") as tab:
        status, listed = tab.locator("#list [role=status]"), tab.locator("#list tbody tr")
        assert status.inner_text() == "1000 of 1000 groups"
        assert listed.count() == 50
        tab.get_by_text("Show more").click()
        assert listed.count() == 100
        tab.locator("#status").select_option("all_fail")
        assert status.inner_text() == "250 of 1000 groups"
        tab.locator("#status").select_option("")
        tab.locator("#search").fill("g99")
        assert status.inner_text() == "11 of 1000 groups"
        tab.locator("#search").fill("BLUE door")
        assert status.inner_text() == "0 of 1000 groups"
        tab.locator("#inside").check()
        tab.get_by_text("1 of 1000 groups").wait_for()
        assert listed.first.locator("td").first.inner_text() == "g5"
        tab.locator("#search").fill("")
        tab.locator("#sort").select_option("log")
        assert listed.first.locator("td").first.inner_text().startswith("g0")


def test_log_text_is_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    attack = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    rows = [
        row | {"observation": row["observation"] + attack, "action": row["action"] + attack}
        for row in golden_rows()
    ]
    log = tmp_path / "hostile.jsonl"
    log.write_bytes(
        jsonl(
            [row | {"group_id": attack, "rollout_id": row["rollout_id"] + attack} for row in rows]
        )
    )
    written(tmp_path / "r.html", "report", log)
    with opened(browser, tmp_path / "r.html") as tab:
        open_first_group(tab)
        tab.locator("g.anchor").first.click()
        tab.locator("g.arrow").first.dispatch_event("click")
        tab.locator(".chip").first.click()
        assert tab.locator(".transcript pre").first.text_content() == f"S{attack}"
        assert tab.locator("img").count() == 0
        tab.wait_for_timeout(100)


def test_a_step_that_takes_no_part_is_told(browser: Browser, tmp_path: Path) -> None:
    rows = golden_rows()
    rows[5]["observation"] = None
    log = tmp_path / "gap.jsonl"
    log.write_bytes(jsonl(rows))
    ended = crbc("explain", log, "--step", "t2:1", "-o", tmp_path / "g.html")
    assert ended.code == 0, ended.stderr
    with opened(browser, tmp_path / "g.html") as tab:
        tab.get_by_text("Step t2:1").wait_for()
        assert "no_anchor" in tab.locator(".details").inner_text()
