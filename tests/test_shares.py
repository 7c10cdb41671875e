"""What a number is made of: uses, contributions and shares of rollouts and transitions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, ROOT, crbc, golden_rows
from helpers import INF, Rows, approx, prepared, process_of, rollout
from oracle import Options, read_groups, visit_uses
from test_closed_forms import closed_class, random_walks

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.explain import explain_step
from crbc_cli.engine.shares import EvidenceShares
from crbc_cli.process.closure import solve_values
from crbc_cli.process.shares import action_uses, sized_shares, state_uses

NUMBERS = ("state_value", "action_value", "credit")
DEPTHS = (0, 1, 2, 7, INF)


def evidence_of(rows: Rows, position: int, **options: Any) -> tuple[EvidenceShares, list[float]]:
    """Evidence of one row of a group, and its V, Q and credit."""
    step = explain_step(prepared(rows, **options), position, Clock())
    assert step.evidence is not None
    assert step.anchor is not None
    assert step.own_action is not None
    numbers = [step.anchor.state_value, step.own_action.action_value, step.own_action.credit]
    return step.evidence, [float(x or 0.0) for x in numbers]


# --- by hand --------------------------------------------------------------------------------------


def test_closure_of_the_golden_group() -> None:
    """From S, M is visited n(M) = 0.98·(1/2 + 0.49/2) = 0.7301 times, N 0.49 times."""
    evidence, _ = evidence_of(golden_rows(), 0)
    m, n, beta = 0.7301, 0.49, 0.98
    uses = {
        (0, "a", 1): (0.5, 1.0),
        (0, "b", 2): (0.5, 0.0),
        (1, "p", None): (m * 2 / 3, beta * 2 / 3),
        (1, "q", None): (m / 3, beta / 3),
        (2, "c", 1): (n / 2, 0.0),
        (2, "d", None): (n / 2, 0.0),
    }
    seen = {(t.anchor, t.action, t.successor): t for t in evidence.transitions}
    assert seen.keys() == uses.keys()
    for key, (of_v, of_q) in uses.items():
        assert [seen[key].state_value.uses, seen[key].action_value.uses] == approx([of_v, of_q])
        assert seen[key].credit.uses == pytest.approx(of_q - of_v, abs=1e-12)
    success = seen[1, "p", None]
    assert (success.boundary, success.count) == ("success", 2)
    assert success.state_value.contribution == approx(0.476999)
    assert success.action_value.contribution == approx(0.640267)
    assert success.credit.contribution == approx(0.163268)
    assert [t.state_value.share for t in evidence.transitions if t is not success] == [0.0] * 5
    # Each success is one of the two that led from M to z+; failures earn nothing but are used.
    assert [r.state_value.contribution for r in evidence.rollouts] == approx(
        [0.476999 / 2, 0, 0.476999 / 2, 0]
    )
    assert [r.state_value.uses for r in evidence.rollouts] == approx(
        [0.25 + m / 3, 0.25 + m / 3, 0.25 + n / 2 + m / 3, 0.25 + n / 2]
    )
    assert [r.credit.share for r in evidence.rollouts] == approx([0.5, 0, 0.5, 0])


def test_local_evidence_of_the_golden_group() -> None:
    """Depth 0: the mean of the own returns 0.98², 0, 0.98³, 0; depth 1: those one step ahead."""
    evidence, _ = evidence_of(golden_rows(), 0, depth=0)
    assert [t.kind for t in evidence.transitions] == ["returns", "returns"]
    assert [r.state_value.contribution for r in evidence.rollouts] == approx(
        [0.98**2 / 4, 0, 0.98**3 / 4, 0]
    )
    assert [r.action_value.share for r in evidence.rollouts] == approx([1, 0, 0, 0])
    evidence, _ = evidence_of(golden_rows(), 0, depth=1)
    ahead = {(t.anchor, t.action): t for t in evidence.transitions if t.kind == "returns"}
    assert ahead[1, "p"].state_value.contribution == pytest.approx(
        0.98 / 2 * 2 / 3 * 0.98, abs=6e-7
    )
    assert ahead[2, "c"].state_value.contribution == approx(0.98 / 2 / 2 * 0.98**2)
    assert {t.kind for t in evidence.transitions if t.anchor == 0} == {"transition"}


def test_shares_where_nothing_was_earned() -> None:
    """All rollouts fail: the shares are those of the uses."""
    rows = rollout("t0", "S-a M-p", 0) + rollout("t1", "S-b", 0)
    evidence, numbers = evidence_of(rows, 0)
    assert numbers == [0, 0, 0]
    for name in NUMBERS:
        parts = [getattr(t, name) for t in evidence.transitions]
        assert [p.share for p in parts] == [p.use_share for p in parts]
        assert sum(p.share for p in parts) == pytest.approx(1, abs=1e-12)
    assert [t.state_value.share for t in evidence.transitions] == approx(
        [0.5 / 1.49, 0.49 / 1.49, 0.5 / 1.49]
    )
    assert sized_shares(np.array([3.0, -1.0]), np.ones(2)).tolist() == [0.75, 0.25]


# --- against exact arithmetic ---------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("seed", range(3))
def test_uses_are_the_factors_of_what_visits_earn(seed: int, depth: float) -> None:
    rows = random_walks(seed, 5, 4, 6)
    process = process_of(rows)
    [group] = read_groups(rows, Options(depth=depth))
    assert group.exact
    for at in (0, len(group.visits) // 2):
        exact = visit_uses(group, group.visits[at], depth)
        of = {
            "state_value": state_uses(process, int(process.state[at]), 0.98, depth),
            "action_value": action_uses(process, int(process.pair[at]), 0.98, depth),
        }
        for name, uses in of.items():
            ours = np.stack([uses.backed, uses.returned], axis=1)
            theirs = np.array(exact[name], dtype=float)
            assert np.abs(ours - theirs).max() <= 1e-13


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"discount": 1.0},
        {"discount": 0.5},
        {"intermediate_rewards": True},
        {"truncated": "bootstrap", "discount": 1.0},
        {"truncated": "censor"},
    ],
    ids=str,
)
def test_contributions_recompute_the_numbers(depth: float, options: dict[str, Any]) -> None:
    """Sums over rollouts and over transitions give V, Q and credit to 1e-12; shares sum to 1."""
    rng = np.random.default_rng(7)
    rows = random_walks(3, 12, 8, 15)
    if options.get("intermediate_rewards"):
        rows = [row | {"reward": float(rng.normal())} for row in rows]
    if "truncated" in options:
        rows = cut(rows)
    log = prepared(rows, depth=depth, **options)
    for position in (0, 5, 40, len(rows) - 1):
        step = explain_step(log, position, Clock())
        if step.evidence is None:
            assert step.anchor is None
            continue
        evidence, numbers = evidence_of(rows, position, depth=depth, **options)
        for parts in (evidence.rollouts, evidence.transitions):
            for name, number in zip(NUMBERS, numbers, strict=True):
                mine = [getattr(part, name) for part in parts]
                assert math.fsum(p.contribution for p in mine) == pytest.approx(number, abs=1e-12)
                assert math.fsum(p.share for p in mine) == pytest.approx(1, abs=1e-12)
                assert math.fsum(p.use_share for p in mine) == pytest.approx(1, abs=1e-12)


def cut(rows: Rows) -> Rows:
    """The failures end by a limit, at an observation that the group knows."""
    last = {row["rollout_id"]: i for i, row in enumerate(rows)}
    ended = []
    for i, row in enumerate(rows):
        at_end = last[row["rollout_id"]] == i
        failed = at_end and not row["success"]
        ended.append(
            row
            | {"done": at_end and not failed, "truncated": failed}
            | {"next_observation": rows[0]["observation"] if failed else None}
        )
    return ended


def test_a_closed_class_adds_nothing() -> None:
    """Bootstrapped ends at discount 1: anchors without a way out are worth 0."""
    rows = closed_class(exit_too=False)
    process = process_of(rows, truncated="bootstrap", discount=1.0)
    value = solve_values(process, 1.0, INF)
    for state in range(process.states):
        uses = state_uses(process, state, 1.0, INF)
        earned = sum(x.sum() for x in uses.earned(process, 1.0))
        assert earned == pytest.approx(value.state[state], abs=1e-12)


# --- on the command line --------------------------------------------------------------------------


@pytest.mark.parametrize("depth", ["inf", "2", "0"])
def test_evidence_as_json(depth: str) -> None:
    """On a real group: sums over the report's own records."""
    arguments = ("--group", "alfworld-0001", "--step", "2:3", "--depth", depth, "--json")
    report = crbc("explain", ROOT / "sample_logs" / "alfworld.parquet", *arguments).json
    own = report["anchor"]["actions"][report["step"]["action_index"]]
    numbers = (report["anchor"]["state_value"], own["action_value"], own["credit"])
    for kind in ("rollouts", "transitions"):
        for name, number in zip(NUMBERS, numbers, strict=True):
            parts = [x[name] for x in report["evidence"][kind]]
            assert sum(p["contribution"] for p in parts) == pytest.approx(number, abs=1e-12)
            assert sum(p["share"] for p in parts) == pytest.approx(1, abs=1e-12)
    assert [r["rollout_id"] for r in report["evidence"]["rollouts"]] == list(range(8))


def test_evidence_as_text() -> None:
    text = " ".join(crbc("explain", GOLDEN, "--step", "t0:0").text.split())
    assert "M p -> success x2 27.1 % 100.0 % 100.0 % +0.163268 100.0 %" in text
    assert "t2 25.4 % 50.0 % 50.0 % +0.081634 50.0 %" in text
    arguments = ("--group", "alfworld-0001", "--step", "2:3")
    text = crbc("explain", ROOT / "sample_logs" / "alfworld.parquet", *arguments).text
    [rest] = [line.split() for line in text.splitlines() if " more  " in line and "%" in line]
    assert int(rest[0]) > 100
    assert max(map(len, text.splitlines())) <= 80
    assert Fraction(rest[2]) > 80
