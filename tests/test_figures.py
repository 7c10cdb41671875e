"""Figures: data equal to the reports, every format, words for those who do not see them."""

from __future__ import annotations

import builtins
import csv
import io
import json
import re
import sys
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest
import vl_convert
from conftest import GOLDEN, ROOT, crbc
from helpers import rollout, write_log

import crbc_cli
from crbc_cli.errors import OptionError
from crbc_cli.report.figures.draw import FORMATS, figure_target
from crbc_cli.report.figures.figure import COLORS, DASHES
from crbc_cli.report.text import Bar, heat

SAMPLES = ROOT / "sample_logs"
SOKOBAN = SAMPLES / "sokoban.parquet"
SWEEP = ("--sweep", "depth=0,1,inf", "--methods", "crbc,grpo")
COMMANDS: dict[str, tuple[Any, ...]] = {
    "coverage": ("coverage", SOKOBAN),
    "profile": ("profile", SOKOBAN, "--timings", SAMPLES / "timings.jsonl"),
    "profile without timings": ("profile", GOLDEN),
    "agreement": ("compare", SOKOBAN),
    "fidelity": ("compare", SOKOBAN, "--truth", "true_advantage", "--group-size", "4,8"),
    "sweep": ("compare", SOKOBAN, "--truth", "true_advantage", *SWEEP),
    "sweep without truth": ("compare", GOLDEN, "--sweep", "crbc.depth=0,1", "--methods", "crbc"),
    "gate": ("gate", SOKOBAN, "--at", "3,6", "--threshold", "0.2,0.4", "--select"),
    "anchors": ("anchors", SOKOBAN, "--no-suggestions"),
    "rules": ("anchors", SAMPLES / "alfworld.parquet", "--compare-rules", "exact,alfworld"),
    "steps": ("steps", SOKOBAN),
}
"""One of each kind of figure."""


def rows_of(*arguments: Any, folder: Path) -> list[dict[str, str]]:
    """The data behind a command's figure."""
    target = folder / "figure.csv"
    ended = crbc(*arguments, "--figure", target, "--force", "--quiet")
    assert ended.code == 0, ended.stderr
    return list(csv.DictReader(io.StringIO(target.read_text("utf-8"))))


def number(cell: str) -> float | None:
    return float(cell) if cell else None


# --- the data -------------------------------------------------------------------------------------


def test_figure_5_draws_what_json_prints(tmp_path: Path) -> None:
    rows = rows_of("coverage", SOKOBAN, folder=tmp_path)
    report = crbc("coverage", SOKOBAN, "--json").json
    drawn = [
        (row["depth"], int(row["rollouts"]), int(row["count"]), float(row["share"]))
        for row in rows
        if row["panel"] == "distribution"
    ]
    assert drawn == [
        (str(d["depth"]), cell["rollouts"], cell["count"], cell["share"])
        for d in report["depths"]
        for cell in d["distribution"]
    ]
    paired = [
        (int(row["depth_0"]), int(row["rollouts"]), int(row["count"]), float(row["share"]))
        for row in rows
        if row["panel"] == "paired"
    ]
    assert paired == [
        (c["depth_0"], c["closure"], c["count"], c["share"]) for c in report["paired"]
    ]
    assert sum(count for _, _, count, _ in paired) == report["eligible_units"]


def test_figure_4_draws_the_logged_seconds(tmp_path: Path) -> None:
    """The paper's update of 187.46 s; what is left of it is 11.79 s."""
    rows = rows_of(*COMMANDS["profile"], folder=tmp_path)
    seconds = {r["part"]: float(r["seconds"]) for r in rows if r["panel"] == "update"}
    assert seconds.pop("step credit (crbc)") > 0
    assert seconds == pytest.approx(
        {"rollout": 154.99, "policy update": 20.35, "advantage (trainer)": 0.33, "rest": 11.79}
    )
    shares = [float(r["share"]) for r in rows if r["panel"] == "update"][:4]
    assert sum(shares) == pytest.approx(1)
    stages = [r["part"] for r in rows if r["panel"] == "crbc"]
    assert stages == ["read", "arrange", "build", "solve", "coverage", "combine", "write"]


def test_sweeps_draw_the_cosines_and_level_lines(tmp_path: Path) -> None:
    """A method that depth does not touch has one result, drawn at every depth."""
    rows = rows_of(*COMMANDS["sweep"], folder=tmp_path)
    report = crbc(*COMMANDS["sweep"], "--json").json
    cosine = {r["name"]: r["metrics"]["cosine"] for r in report["results"]}
    assert [(r["line"], r["depth"]) for r in rows] == [
        (line, depth) for line in ("crbc", "grpo") for depth in ("0", "1", "inf")
    ]
    for row in rows:
        found = cosine[row["name"]]
        assert [float(row[n]) for n in ("value", "low", "high")] == [
            found[n] for n in ("mean", "low", "high")
        ]


def test_agreement_is_that_of_the_report(tmp_path: Path) -> None:
    rows = rows_of(*COMMANDS["agreement"], folder=tmp_path)
    spearman = {(row["a"], row["b"]): float(row["spearman"]) for row in rows}
    for pair in crbc(*COMMANDS["agreement"], "--json").json["agreement"]:
        assert spearman[pair["a"], pair["b"]] == spearman[pair["b"], pair["a"]]
        assert spearman[pair["a"], pair["b"]] == pair["spearman"]
    assert {value for (a, b), value in spearman.items() if a == b} == {1.0}


def test_gate_points_are_those_of_the_report(tmp_path: Path) -> None:
    rows = rows_of(*COMMANDS["gate"], folder=tmp_path)
    report = crbc(*COMMANDS["gate"], "--json").json
    fixed = [p for p in report["points"] if not p["chosen"]]
    drawn = [row for row in rows if row["kind"] == "fixed"]
    assert [(int(r["k"]), float(r["threshold"])) for r in drawn] == [
        (p["k"], p["threshold"]) for p in fixed
    ]
    assert [number(r["precision"]) for r in drawn] == [p["precision"] for p in fixed]
    known = {r["k"]: float(r["realised"]) for r in rows if r["kind"] == "all outcomes known"}
    assert known == {str(s["k"]): s["oracle_realised"] for s in report["separation"]}


@pytest.mark.parametrize("kind", ["anchors", "rules"])
def test_anchor_points_are_those_of_the_report(kind: str, tmp_path: Path) -> None:
    rows = rows_of(*COMMANDS[kind], folder=tmp_path)
    printed = csv.DictReader(io.StringIO(crbc(*COMMANDS[kind], "--csv").text))
    for row, expected in zip(rows, printed, strict=True):
        assert row.items() <= expected.items()


def test_steps_average_the_credit_table(tmp_path: Path) -> None:
    """Against a plain group-by of annotate's own rows."""
    log = pl.read_parquet(SOKOBAN)
    credit = pl.from_arrow(crbc_cli.credit(log.to_arrow()))
    assert isinstance(credit, pl.DataFrame)
    won = log.group_by("group_id", "rollout_id").agg(won=pl.col("success").any())
    table = credit.join(won, on=["group_id", "rollout_id"])
    rows = rows_of("steps", SOKOBAN, folder=tmp_path)
    assert sum(int(row["steps"]) for row in rows) == log.height
    for row in rows:
        mine = table.filter(
            pl.col("step") == int(row["position"]), pl.col("won") == (row["outcome"] == "success")
        )["step_credit"]
        assert int(row["steps"]) == len(mine)
        assert float(row["mean"]) == pytest.approx(mine.mean(), abs=1e-12)
        assert float(row["credited_share"]) == pytest.approx((mine != 0).mean(), abs=1e-12)
        assert float(row["low"]) == pytest.approx(mine.quantile(0.25, "linear"), abs=1e-12)
    report = crbc("steps", SOKOBAN, "--json").json
    assert [p["mean"] for p in report["positions"]] == [float(row["mean"]) for row in rows]


def test_steps_leave_out_rows_without_credit(tmp_path: Path) -> None:
    """An unscored rollout, and a method that gives no step credit."""
    rows = rollout("t0", "S-a M-p", True) + rollout("t1", "S-b", False)
    log = write_log(rows + rollout("t2", "S-a", None), tmp_path / "log.jsonl")
    report = crbc("steps", log, "--json").json
    assert (report["steps"], report["rows_left_out"]) == (3, 1)
    assert [(p["position"], p["outcome"], p["steps"]) for p in report["positions"]] == [
        (0, "success", 1),
        (0, "failure", 1),
        (1, "success", 1),
    ]
    assert "1 row without step credit left out" in crbc("steps", log).text
    assert crbc("steps", log, "--method", "grpo", "--json").json["positions"] == []
    target = tmp_path / "none.svg"
    assert crbc("steps", log, "--method", "grpo", "--figure", target).code == 0


# --- the pictures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", COMMANDS)
def test_pictures_are_named_described_and_labelled(kind: str, tmp_path: Path) -> None:
    """Title, alternative text, a title on each axis and on each legend; no mark outside the data's
    range is NaN."""
    target = tmp_path / "figure.svg"
    ended = crbc(*COMMANDS[kind], "--figure", target)
    assert ended.code == 0, ended.stderr
    text = target.read_text("utf-8")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    title, alt = root.findtext(f"{space}title"), root.findtext(f"{space}desc")
    assert title
    assert alt
    assert len(alt) > 40
    assert f"{title} -> {target}" in ended.stderr
    assert root.get("role") == "img"
    assert "NaN" not in text
    axes = re.findall(r"aria-label=\"([XY])-axis titled '([^']+)'", text)
    assert {axis for axis, _ in axes} >= {"X"}
    assert all(not re.search(r"\b(undefined|null)\b", name) for _, name in axes)
    assert re.search(r'aria-roledescription="(bar|rect mark|rect|point|line mark)', text)


@pytest.mark.parametrize("suffix", FORMATS)
def test_formats(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"figure.{suffix.upper()}"
    assert crbc("coverage", GOLDEN, "--figure", target).code == 0
    content = target.read_bytes()
    starts = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF", "html": b"<!DOCTYPE html>"}
    assert content.startswith(starts.get(suffix, b"panel,depth"))
    if suffix == "html":
        page = content.decode()
        assert "<title>Evidence coverage of 9 eligible visits</title>" in page
        assert "44.4% reach every rollout at depth 0" in page
        assert not re.findall(r"""<(?:script|link|img)[^>]*(?:src|href)=["']https?:""", page)
    if suffix == "png":
        at = content.index(b"iTXtDescription")
        size = int.from_bytes(content[at - 4 : at], "big")
        body = content[at : at + 4 + size]
        crc = int.from_bytes(content[at + 4 + size : at + 8 + size], "big")
        assert crc == zlib.crc32(body)
        assert "66.7% at depth inf" in body.decode()


def test_pictures_open(tmp_path: Path) -> None:
    """PNG with its description decodes, at 200 pixels per inch."""
    from PIL import Image

    target = tmp_path / "figure.png"
    assert crbc("coverage", GOLDEN, "--figure", target, "--figure", tmp_path / "a.csv").code == 0
    with Image.open(target) as picture:
        picture.load()
        assert picture.width > 1000
        assert "eligible visits" in picture.info["Description"]
    assert (tmp_path / "a.csv").exists()


def test_the_same_bytes_again(tmp_path: Path) -> None:
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    for target in (first, second):
        assert crbc(*COMMANDS["sweep"], "--figure", target).code == 0
    assert first.read_bytes() == second.read_bytes()


def test_log_text_stays_text(tmp_path: Path) -> None:
    """Names out of a log, in a page and in a picture."""
    name = "</script><script>alert(1)</script>"
    rows = rollout("t0", "S-a", True, group=name) + rollout("t1", "S-b", False, group=name)
    log = write_log(rows, tmp_path / "log.jsonl")
    for suffix in ("svg", "html"):
        target = tmp_path / f"figure.{suffix}"
        assert crbc("anchors", log, "--no-suggestions", "--figure", target).code == 0
        assert "<script>alert(1)" not in target.read_text("utf-8")


def test_colors_are_told_apart_without_hue() -> None:
    """Neighbouring series differ in lightness or in their dashes; no two dashes are alike."""
    assert len({tuple(d) for d in DASHES}) == len(DASHES) == len(COLORS)
    spec = {
        "mark": "bar",
        "data": {"values": [{"a": c} for c in COLORS]},
        "encoding": {"x": {"field": "a"}},
    }
    assert vl_convert.vegalite_to_svg(json.dumps(spec)).startswith("<svg")


# --- refusals -------------------------------------------------------------------------------------


def test_refused_before_any_work(tmp_path: Path) -> None:
    line = crbc("coverage", GOLDEN, "--figure", tmp_path / "figure.gif").refused()
    assert "has no known suffix; use one of .svg, .png, .pdf, .html, .csv" in line
    taken = tmp_path / "figure.svg"
    taken.write_text("mine")
    for command in ("coverage", "profile", "compare", "gate", "anchors", "steps"):
        line = crbc(command, SOKOBAN, "--figure", taken).refused()
        assert "exists already; use --force to replace it" in line
    assert taken.read_text() == "mine"
    assert crbc("coverage", GOLDEN, "--figure", taken, "--force").code == 0
    assert "folder" in crbc("coverage", GOLDEN, "--figure", tmp_path / "no" / "f.svg").refused()


def test_without_the_renderer_there_is_still_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "vl_convert":
            raise ImportError(name)
        return real(name, *rest, **more)

    real = builtins.__import__
    monkeypatch.delitem(sys.modules, "vl_convert", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(OptionError, match=r"crbc-cli\[figures\]"):
        figure_target(str(tmp_path / "figure.svg"), False)
    assert figure_target(str(tmp_path / "figure.csv"), False).format == "csv"


# --- on the terminal ------------------------------------------------------------------------------


def test_bars_to_an_eighth_of_a_cell() -> None:
    assert [Bar(share, 2).text(False) for share in (0, 1 / 16, 0.5, 0.75, 1, 2)] == [
        "",
        "▏",
        "█",
        "█▌",
        "██",
        "██",
    ]
    assert Bar(0.75, 4).text(True) == "###"


def test_heat_is_colour_only() -> None:
    """The text is the number in either case; zero has no shade."""
    assert heat("3.8", 0.5).plain == "3.8"
    assert not heat("0.0", 0.0).style
    colored = crbc("coverage", SOKOBAN, env={"FORCE_COLOR": "1"}).text
    plain = crbc("coverage", SOKOBAN, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).text
    piped = crbc("coverage", SOKOBAN).text
    assert "\x1b[" in colored
    assert not re.search(r"\x1b\[[0-9;]*4[0-9]", plain)
    assert "\x1b" not in piped
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [line.rstrip() for line in stripped.splitlines()] == piped.splitlines()


@pytest.mark.parametrize("name", ["coverage", "runtime", "sweep", "steps"])
def test_figures_of_the_readme(name: str) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    [alt] = re.findall(rf"!\[([^\]]+)\]\(sample_logs/figures/{name}\.svg\)", readme)
    assert len(alt) > 30
    svg = (SAMPLES / "figures" / f"{name}.svg").read_text("utf-8")
    assert svg.startswith("<svg")
    assert "<desc" in svg
