"""How the studies of tests/learning are summed up; the studies themselves run in tests/real."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from conftest import ROOT
from scipy import stats

sys.path.insert(0, str(ROOT / "tests" / "learning"))
import fidelity_tables
import kept
import tables
import training_tables


def test_area_under_a_curve() -> None:
    # Trapezoids 5·.2 + 5·.4 + 2·.55 over 12 updates.
    run = {"updates": [0, 5, 10, 12], "held_out": [0.1, 0.3, 0.5, 0.6]}
    assert training_tables.area(run) == pytest.approx((1.0 + 2.0 + 1.1) / 12)
    assert training_tables.area({"updates": [0, 3, 7], "held_out": [0.25] * 3}) == pytest.approx(
        0.25
    )


def test_intervals_are_those_of_students_t() -> None:
    values = [0.31, 0.42, 0.35, 0.29, 0.5]
    low, high = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert training_tables.half_width(values) == pytest.approx((high - low) / 2)
    assert math.isnan(training_tables.half_width([0.3]))


def test_numbers_as_shown() -> None:
    assert kept.number(0.0421) == ".042"
    assert kept.signed(0.05, 0.01) == "**+.050** ±.010"
    assert kept.signed(-0.05, 0.051) == "−.050 ±.051"
    assert kept.signed(0.05, math.nan) == "+.050"


def run(method: str, seed: int, final: float) -> dict[str, object]:
    parts = {"sample": 1.0, "files": 1.0, "start": 6.0, "credit": 0.5, "optimise": 1.5}
    curve = {"updates": [0, 10], "held_out": [0.0, final]}
    return {"method": method, "seed": seed, "seconds": parts, "median_seconds": parts} | curve


def test_differences_are_paired_by_seed() -> None:
    """The methods differ by .1 for every seed, whatever the seeds do; an unfinished seed waits."""
    finals = [0.2, 0.5, 0.35]
    runs = [run("grpo", seed, final) for seed, final in enumerate(finals)]
    runs += [run("crbc", seed, final + 0.1) for seed, final in enumerate(finals)]
    shown = training_tables.success({"runs": [*runs, run("grpo", 9, 0.9)]})
    _, _, grpo, crbc = shown.splitlines()
    assert grpo.split("|")[2].strip().startswith(".350 ±")
    assert crbc.split("|")[3].strip() == "**+.100** ±.000"
    assert crbc.split("|")[5].strip() == "**+.050** ±.000"  # area of a straight line
    assert "5.0 %" in training_tables.seconds({"runs": runs})


def test_kept_training_runs_are_paired_and_pay_little_for_credit() -> None:
    for name in tables.TRAINING:
        done = kept.read(name)
        by_seed: dict[int, list[dict[str, object]]] = {}
        for one in done["runs"]:
            by_seed.setdefault(one["seed"], []).append(one)
            seconds = one["median_seconds"]
            assert seconds["credit"] < 0.05 * sum(seconds.values())
        assert len(by_seed) >= 5
        for runs in by_seed.values():
            assert len({one["method"] for one in runs}) == len(runs) == 5
            assert len({one["held_out"][0] for one in runs}) == 1  # the same first weights


def test_kept_fidelity_obeys_identities() -> None:
    """RLOO is a multiple of GRPO; K = 0 is GiGPO's mean over the visits of a state and action."""
    done = kept.read("fidelity")
    cosine = {(c["row"], c["setting"], c["size"]): c["cosine"] for c in done["cells"]}
    assert {(row, "exact", 8) for row in fidelity_tables.ROWS} <= cosine.keys()
    for (row, setting, size), value in cosine.items():
        if row == "rloo":
            assert value == cosine["grpo", setting, size]
        if row == "k0" and setting != "view":
            assert value == cosine["gigpo_98", setting, size]
