"""Both studies of tests/learning, reduced, as a user starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from conftest import ROOT

LEARNING = ROOT / "tests" / "learning"


def run(script: str, *arguments: object) -> str:
    """Standard output of one of the scripts."""
    done = subprocess.run(
        [sys.executable, LEARNING / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_policy_learns_through_the_pipe(tmp_path: Path) -> None:
    out = tmp_path / "training.json"
    methods = ("grpo", "crbc K=inf")
    arguments = ("--quick", "--updates", 12, "--rooms", 256, "--out", out, "--methods", *methods)
    printed = run("train.py", *arguments)
    assert all(method in printed for method in methods)
    runs: dict[str, Any] = {r["method"]: r for r in json.loads(out.read_text())["runs"]}
    start = {r["held_out"][0] for r in runs.values()}
    assert len(start) == 1  # the same first weights and rooms
    assert 0.02 < start.pop() < 0.1
    for one in runs.values():
        assert one["updates"] == [0, 5, 10, 12]
        assert one["held_out"][-1] > 1.5 * one["held_out"][0]
        seconds = one["median_seconds"]
        assert seconds["credit"] < 0.05 * sum(seconds.values())
    # A second call finds everything done.
    before = out.read_bytes()
    run("train.py", *arguments)
    assert out.read_bytes() == before


def test_fidelity_study_shows_the_known_inequalities(tmp_path: Path) -> None:
    """Those of the reference that are large enough for 40 rooms, each beyond its interval."""
    out = tmp_path / "fidelity.json"
    printed = run("fidelity.py", "--rooms", 40, "--out", out)
    assert "A_S K=inf" in printed
    done = json.loads(out.read_text())
    found = {
        (d["a"], d["b"], d["setting"], d["size"]): (d["cosine"], d["cosine_se"])
        for d in done["differences"]
    }
    for larger, smaller, setting, size in (
        ("k3", "k0", "exact", 8),
        ("k8", "kinf", "exact", 8),
        ("kinf", "gigpo", "untimed", 8),
        ("kinf boot", "kinf", "untimed", 8),
        ("mix", "grpo", "exact", 8),
    ):
        mean, se = found[larger, smaller, setting, size]
        assert mean > 1.96 * se, (larger, smaller, setting, size, mean, se)
    mean, se = found["kinf", "gigpo_std", "skill 1.5", 8]
    assert mean < -1.96 * se
    cosine = {(c["row"], c["setting"], c["size"]): c["cosine"] for c in done["cells"]}
    for (row, setting, size), value in cosine.items():
        if row == "rloo":  # a multiple of GRPO's inside every group
            assert abs(value - cosine["grpo", setting, size]) < 1e-4
        if row == "k0" and setting != "view":  # GiGPO's mean over the visits of (s, a)
            assert abs(value - cosine["gigpo_98", setting, size]) < 1e-4
    assert done["logs"]["skill-0"]["aliased"] == 0
    assert done["logs"]["skill-0"]["aliased_view"] > 0.4
