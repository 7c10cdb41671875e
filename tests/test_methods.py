"""Every estimator on the golden group, against slow definitions, and on its exact identities."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from evidence import GOLDEN, ROWS, Rollout, merged, numbers, random_rollouts, step_credit
from numpy.typing import NDArray

from crbc_cli.methods.evidence import Evidence
from crbc_cli.methods.gated_bepo import bellman_residual_sums
from crbc_cli.methods.registry import METHODS
from crbc_cli.methods.similarity import first_fit, order_free
from crbc_cli.process.closure import local_values, solve_values
from crbc_cli.process.distance import success_distance
from crbc_cli.process.empirical import SUCCESS

Floats = NDArray[np.float64]
SEEDS = range(12)

# The golden group in published numbers: rewards 10 and 0, std scaling, rows as votes, discount 0.95
# (CRBC 0.98), omega 0.1, history 2; run with the authors' float32 code and printed to four places.
# Rows: t0 S-a M-p, t1 S-a M-q, t2 S-b N-c M-p, t3 S-b N-d.
PRINTED = {
    "episode": [0.8433, 0.8433, -1.0541, -1.0541, 0.8433, 0.8433, 0.8433, -1.0541, -1.0541],
    "rloo": [5.0, 5.0, -6.25, -6.25, 5.0, 5.0, 5.0, -6.25, -6.25],
    "gigpo return": [9.5, 10, 0, 0, 9.025, 9.5, 10, 0, 0],
    "gigpo": [0.9098, 0.5774, -0.8655, -1.1547, 0.8211, 0.7071, 0.5774, -0.8655, -0.7071],
    "graphgpo return": [1, 10, 1, 0.01, 0.1, 1, 10, 0.1, 0.01],
    "graphgpo": [0.8660, 0.5774, 0.8660, -1.1547, -0.8660, 0.7071, 0.5774, -0.8660, -0.7071],
    "g2po V": [4.3997, 6.3333, 4.3997, 6.3333, 4.3997, 4.5125, 6.3333, 4.3997, 4.5125],
    "g2po": [1.3434, 1.5510, 1.3434, -3.0449, -0.9101, 1.1522, 1.5510, -0.9101, -2.0758],
    "hgpo": [1.0506, 0.8828, -0.9993, -1.1657, 0.9481, 1.0, 0.7071, -0.9993, -1.0],
    "crbc": [1.0, 0.7071, 1.0, -1.4142, -1.0, 1.0, 0.7071, -1.0, -1.0],
}


@pytest.mark.parametrize("name", ["gigpo", "graphgpo", "g2po", "hgpo", "crbc"])
def test_golden_step_credit(name: str) -> None:
    computed = step_credit(merged(GOLDEN), name)
    assert np.abs(computed - PRINTED[name]).max() < 1e-4


def test_golden_raw_signals_and_trajectory_terms() -> None:
    evidence = merged(GOLDEN)
    signals = {
        "episode": numbers(evidence, "grpo", ROWS)[1],
        "rloo": numbers(evidence, "rloo", ROWS)[1],
        "gigpo return": numbers(evidence, "gigpo")[0].action_value,
        "graphgpo return": numbers(evidence, "graphgpo")[0].action_value,
        "g2po V": numbers(evidence, "g2po")[0].state_value,
    }
    for name, values in signals.items():
        assert np.abs(values - PRINTED[name]).max() < 1e-4, name


@pytest.mark.parametrize("name", ["gigpo", "graphgpo", "g2po"])
def test_golden_total_is_episode_and_step(name: str) -> None:
    step, term = numbers(merged(GOLDEN), name, ROWS)
    total = np.array(PRINTED["episode"]) + PRINTED[name]
    assert np.abs(step.advantage(term) - total).max() < 2e-4


# λ = 0: δ = 0.98·V(x) − V(s) with V(S) = 0.476999, V(M) = 0.653333, V(N) = 0.320133.
GOLDEN_SUMS = {
    0.0: [0.163268, 0.326667, 0.163268, -0.653333, -0.163268, 0.320133, 0.326667, -0.163268,
          -0.320133],
    0.95: [0.467395, 0.326667, -0.444985, -0.653333, 0.417918, 0.624260, 0.326667, -0.461312,
           -0.320133],
}  # fmt: skip


@pytest.mark.parametrize("decay", GOLDEN_SUMS)
def test_golden_residual_sums(decay: float) -> None:
    computed = numbers(merged(GOLDEN), f"gated-bepo:lambda={decay}")[0].credit
    assert np.abs(computed - GOLDEN_SUMS[decay]).max() < 1e-6


def test_golden_gated_bepo_mixes() -> None:
    """The gate is open everywhere: S has M and N after it, M and N have two ends."""
    step, term = numbers(merged(GOLDEN), "gated-bepo:alpha=0.25:scope=none")
    expected = 0.75 * term + 0.25 * np.array(GOLDEN_SUMS[0.95])
    assert np.abs(step.advantage(term) - expected).max() < 1e-6
    closed, term = numbers(merged(GOLDEN), "gated-bepo:alpha=0.25:successors=anchors")
    # Only S has two anchors after it; the other rows keep the group advantage whole.
    others = np.array([1, 3, 5, 6, 8])
    assert (closed.advantage(term)[others] == term[others]).all()


def test_golden_rtmc_by_hand() -> None:
    """γ 0.5, prior 2, R̄ = 1/2. Q(S,a) = (0.5 + 0)/2, Q(S,b) = (0.25 + 0)/2, Q(M,p) = 1, Q(M,q) = 0,
    Q(N,c) = 0.5, Q(N,d) = 0; V(S) = 0.75/4, V(M) = 2/3, V(N) = 1/4; V' = (n·V + 2·0.5)/(n + 2)."""
    step, term = numbers(merged(GOLDEN, success_reward=1.0), "rtmc:gamma=0.5")
    q = [0.25, 1, 0.25, 0, 0.125, 0.5, 1, 0.125, 0]
    s, m, n = (0.75 + 1) / 6, (2 + 1) / 5, (0.5 + 1) / 4
    v = [s, m, s, m, s, n, m, s, n]
    assert step.advantage(term) == pytest.approx(np.subtract(q, v), abs=1e-12)
    scaled, _ = numbers(merged(GOLDEN, success_reward=1.0), "rtmc:gamma=0.5:norm=std")
    assert scaled.step_credit == pytest.approx(step.credit / step.credit.std(), abs=1e-12)


def test_golden_rewardflow_by_hand() -> None:
    """V(z⁺) = 10, V(M) = 9, V(N) = V(S) = 8.1; r = 0.9 into M, 0 into N, and 10 or 0 at the end."""
    step, _ = numbers(merged(GOLDEN), "rewardflow")
    assert step.state_value == pytest.approx([8.1, 9, 8.1, 9, 8.1, 8.1, 9, 8.1, 8.1])
    r = np.array([0.9, 10, 0.9, 0, 0, 0.9, 10, 0, 0])
    mean = np.array([0.45, 20 / 3, 0.45, 20 / 3, 0.45, 0.45, 20 / 3, 0.45, 0.45])
    assert step.step_credit == pytest.approx(r - mean, abs=1e-12)
    last = numbers(merged(GOLDEN), "rewardflow:last=difference")[0].action_value
    assert last == pytest.approx([0.9, 1, 0.9, 0, 0, 0.9, 1, 0, 0])


# --- slow definitions -----------------------------------------------------------------------------


def rows_of(rollouts: list[Rollout]) -> list[tuple[int, Rollout, int]]:
    return [(i, r, t) for i, r in enumerate(rollouts) for t in range(len(r.visits))]


def by_group(rollouts: list[Rollout]) -> list[list[Rollout]]:
    groups = defaultdict(list)
    for r in rollouts:
        groups[r.group].append(r)
    return list(groups.values())


def slow_rtmc(rollouts: list[Rollout], gamma: float, prior: float) -> list[float]:
    """First-visit Monte Carlo with dicts."""
    result: list[float] = []
    for group in by_group(rollouts):
        tree: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for r in group:
            seen = set()
            for t, (s, a) in enumerate(r.visits):
                if (s, a) not in seen:
                    tree[s][a].append(gamma ** (len(r.visits) - 1 - t) * r.success)
                seen.add((s, a))
        mean = sum(r.success for r in group) / len(group)
        for r in group:
            for s, a in r.visits:
                returns = [x for values in tree[s].values() for x in values]
                shrunk = (sum(returns) + prior * mean) / (len(returns) + prior)
                result.append(sum(tree[s][a]) / len(tree[s][a]) - shrunk)
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_rtmc_is_its_definition(seed: int) -> None:
    rollouts = random_rollouts(seed)
    computed = step_credit(merged(rollouts, success_reward=1.0), "rtmc:prior=3")
    assert computed == pytest.approx(slow_rtmc(rollouts, 0.99, 3.0), abs=1e-12)


def slow_rewardflow(rollouts: list[Rollout], gamma: float, both: bool) -> list[float]:
    """Step rewards by value iteration over (source, target, reward before, reward) tuples."""
    result: list[float] = []
    for group in by_group(rollouts):
        triples = []
        for r in group:
            nodes = [s for s, _ in r.visits] + (["z+"] if r.success else [])
            for t, (source, target) in enumerate(itertools.pairwise(nodes)):
                if source != target:
                    before = r.rewards[t - 1] if t else 0.0
                    triples.append((source, target, before, r.rewards[t]))
        own: dict[str, float] = {}
        edges = set()
        for source, target, before, reward in triples:
            own.setdefault(source, before)
            own.setdefault(target, reward)
            edges |= {(source, target)} | ({(target, source)} if both else set())
        value = dict(own)
        for _ in range(1000):
            new = dict(value)
            for source, target in edges:
                new[source] = max(new[source], gamma * value[target])
            value = new
        for r in group:
            for t, (s, _) in enumerate(r.visits):
                last = t == len(r.visits) - 1
                following = 0.0 if last else value.get(r.visits[t + 1][0], 0.0)
                result.append(r.rewards[t] if last else following - value.get(s, 0.0))
    return result


@pytest.mark.parametrize("edges", ["directed", "both"])
@pytest.mark.parametrize("seed", SEEDS)
def test_rewardflow_is_its_definition(seed: int, edges: str) -> None:
    rollouts = random_rollouts(seed, groups=2, shaped=True)
    step, _ = numbers(merged(rollouts), f"rewardflow:edges={edges}")
    assert step.action_value == pytest.approx(
        slow_rewardflow(rollouts, 0.9, edges == "both"), abs=1e-12
    )


def slow_distances(rollouts: list[Rollout]) -> list[float]:
    """d of the node after each row by relaxing every transition until nothing changes."""
    result: list[float] = []
    for group in by_group(rollouts):
        ends = {id(r): "z+" if r.success else r.then or f"? {id(r)}" for r in group}
        edges = [
            (r.visits[t][0], r.visits[t + 1][0] if t + 1 < len(r.visits) else ends[id(r)])
            for r in group
            for t in range(len(r.visits))
        ]
        distance = defaultdict(lambda: math.inf, {"z+": 0.0})
        for _ in edges:
            for source, target in edges:
                distance[source] = min(distance[source], 1 + distance[target])
        beyond = 1 + max(d for d in distance.values() if d < math.inf)
        result += [min(distance[target], beyond) for _, target in edges]
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_graphgpo_returns_are_shortest_distances(seed: int) -> None:
    rollouts = random_rollouts(seed)
    expected = 10 * 0.5 ** np.array(slow_distances(rollouts))
    step, _ = numbers(merged(rollouts), "graphgpo:omega=0.5")
    assert step.action_value == pytest.approx(expected, abs=1e-12)
    paper, _ = numbers(merged(rollouts), "graphgpo:omega=0.5:exponent=transition")
    assert paper.action_value == pytest.approx(expected / 2, abs=1e-12)


def slow_residual_sums(rollouts: list[Rollout], gamma: float, decay: float) -> list[float]:
    """V by value iteration, then the sum along each rollout, with loops."""
    result: list[float] = []
    for group in by_group(rollouts):
        after = defaultdict(list)
        for r in group:
            names = [s for s, _ in r.visits] + ["z+" if r.success else "z-"]
            for source, target in itertools.pairwise(names):
                after[source].append(target)
        value = defaultdict(float, {"z+": 1.0})
        for _ in range(2000):
            for source, targets in after.items():
                value[source] = gamma * sum(value[x] for x in targets) / len(targets)
        for r in group:
            names = [s for s, _ in r.visits] + ["z+" if r.success else "z-"]
            deltas = [gamma * value[x] - value[s] for s, x in itertools.pairwise(names)]
            result += [
                sum(decay ** (k - t) * deltas[k] for k in range(t, len(deltas)))
                for t in range(len(deltas))
            ]
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_gated_bepo_is_its_definition(seed: int) -> None:
    rollouts = random_rollouts(seed, groups=2)
    computed = numbers(merged(rollouts), "gated-bepo:gamma=0.9:lambda=0.7")[0].credit
    assert computed == pytest.approx(slow_residual_sums(rollouts, 0.9, 0.63), abs=1e-10)


@pytest.mark.parametrize("backup", ["visits", "transitions"])
@pytest.mark.parametrize("success", ["boundary", "reward"])
def test_gated_bepo_solvers_agree(backup: str, success: str) -> None:
    """Enough sweeps are the solve; a reward on the last edge is the boundary over γ."""
    evidence = merged(random_rollouts(5))
    spec = f"gated-bepo:gamma=0.8:backup={backup}:success={success}"
    exact, swept = numbers(evidence, spec)[0], numbers(evidence, f"{spec}:sweeps=200")[0]
    assert swept.credit == pytest.approx(exact.credit, abs=1e-12)
    boundary = numbers(evidence, spec.replace("reward", "boundary"))[0]
    factor = 0.8 if success == "reward" else 1.0
    assert factor * exact.state_value == pytest.approx(boundary.state_value, abs=1e-12)


def test_gated_bepo_mean_over_transitions() -> None:
    """Two visits S-a succeed and one S-a fails: V(S) = 0.98·2/3 over visits, 0.98/2 over
    transitions."""
    evidence = merged([Rollout("S-a", True), Rollout("S-a", True), Rollout("S-a", False)])
    for backup, value in (("visits", 0.98 * 2 / 3), ("transitions", 0.49)):
        step, _ = numbers(evidence, f"gated-bepo:backup={backup}")
        assert step.state_value == pytest.approx([value] * 3, abs=1e-12)


# --- identities -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_local_credit_is_the_mean_gigpo_return(seed: int) -> None:
    """CRBC at K = 0: A(s,a) = mean over (s,a) of β·R_t/10 less its anchor mean, γ = β."""
    evidence = merged(random_rollouts(seed))
    process = evidence.process
    returns = 0.98 * numbers(evidence, "gigpo:gamma=0.98")[0].action_value / 10
    expected = process.pair_mean(returns) - process.state_mean(returns)[process.pair_state]
    local = numbers(evidence, "crbc:depth=0")[0].credit
    assert local == pytest.approx(expected[process.pair], abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_g2po_value_is_the_local_value(seed: int) -> None:
    """G2PO's V over 10 is CRBC's V⁰ at β = 0.95."""
    evidence = merged(random_rollouts(seed))
    value = local_values(evidence.process, 0.95).state[evidence.process.state]
    assert numbers(evidence, "g2po")[0].state_value / 10 == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_residual_sums_lie_between_closure_and_return(seed: int) -> None:
    """λ = 0: the mean of δ over (s,a) is Q − V of the closure. λ = 1: A^B = G − V."""
    evidence = merged(random_rollouts(seed))
    process = evidence.process
    closure = solve_values(process, 0.98, math.inf)
    one = numbers(evidence, "gated-bepo:lambda=0")[0].credit
    expected = closure.pair - closure.state[process.pair_state]
    assert process.pair_mean(one) == pytest.approx(expected, abs=1e-12)
    whole = numbers(evidence, "gated-bepo:lambda=1")[0].credit
    expected = process.suffix_returns(0.98) - closure.state[process.state]
    assert whole == pytest.approx(expected, abs=1e-12)
    # The two limits of the sum itself, for any values.
    value, backup = np.zeros(process.states), np.arange(len(process.state), dtype=float)
    assert (bellman_residual_sums(process, value, backup, 0.0) == backup).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_rtmc_is_local_where_nothing_repeats(seed: int) -> None:
    """β·Q of RTMC is Q⁰ at γ = β when no (s,a) repeats inside a rollout."""
    rollouts = []
    for r in random_rollouts(seed):
        kept = list(dict.fromkeys(r.path.split()))
        rollouts.append(replace(r, path=" ".join(kept), invalid=()))
    evidence = merged(rollouts, success_reward=1.0)
    process = evidence.process
    expected = local_values(process, 0.98).pair[process.pair]
    computed = 0.98 * numbers(evidence, "rtmc:gamma=0.98")[0].action_value
    assert computed == pytest.approx(expected, abs=1e-12)


SPECS = [
    *METHODS,
    "crbc:depth=0",
    "crbc:depth=2",
    "gigpo:norm=mean",
    "gigpo:similarity=order-free:threshold=0.5",
    "graphgpo:variant=paper",
    "graphgpo:normalize_distance=true:unreachable=zero",
    "g2po:variant=paper",
    "gated-bepo:scope=anchor:backup=transitions",
    "hgpo:history=4:base_group=true",
    "rtmc:norm=std",
    "rewardflow:norm=mean_std:edges=both:last=difference",
]


@pytest.mark.parametrize("spec", SPECS)
def test_names_and_order_do_not_matter(spec: str) -> None:
    """Other names for anchors and actions, and rollouts in reverse order: equal to 1e-12."""
    rollouts = random_rollouts(3)
    names = str.maketrans("ABCDEFxyz", "QERTWUnlm")
    renamed = [
        replace(r, path=r.path.translate(names), then=r.then.translate(names)) for r in rollouts
    ]
    turned = [r for group in by_group(renamed) for r in reversed(group)]
    position = {id(r): i for i, r in enumerate(turned)}
    values, other = (numbers(merged(log, penalty=0.1), spec, ROWS) for log in (rollouts, turned))
    ours, theirs = (step.advantage(term) for step, term in (values, other))
    starts = np.cumsum([0, *(len(r.visits) for r in turned)])
    order = np.concatenate([starts[position[id(r)]] + np.arange(len(r.visits)) for r in renamed])
    assert ours == pytest.approx(theirs[order], abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("spec", SPECS)
def test_a_group_does_not_see_its_neighbours(spec: str) -> None:
    """The same bits for a group alone as among others."""
    rollouts = random_rollouts(8, groups=4)
    together = merged(rollouts, penalty=0.1)
    step, term = numbers(together, spec, ROWS)
    for number, group in enumerate(by_group(rollouts)):
        alone = merged([replace(r, group=0) for r in group], penalty=0.1)
        own, own_term = numbers(alone, spec, ROWS)
        mine = together.process.visit_group == number
        for name in ("state_value", "action_value", "credit", "step_credit"):
            expected, computed = getattr(step, name)[mine], getattr(own, name)
            assert np.array_equal(expected, computed, equal_nan=True), name
        assert np.array_equal(step.advantage(term)[mine], own.advantage(own_term))


@pytest.mark.parametrize("seed", SEEDS)
def test_two_copies_of_a_group_change_no_value(seed: int) -> None:
    rollouts = random_rollouts(seed, groups=1)
    once, twice = merged(rollouts), merged([*rollouts, *rollouts])
    n = len(once.process.state)
    for spec in ("crbc", "crbc:depth=1"):
        assert step_credit(twice, spec)[:n] == pytest.approx(step_credit(once, spec), abs=1e-12)
    for spec in ("g2po", "rewardflow", "gated-bepo"):
        first, second = (numbers(evidence, spec)[0].state_value for evidence in (once, twice))
        assert second[:n] == pytest.approx(first, abs=1e-12), spec


# --- options --------------------------------------------------------------------------------------


def test_graphgpo_paper_gives_transitions_one_vote() -> None:
    """S-a leads to success twice, S-b once to nowhere: returns 10·ω^1 and 10·ω^3 (d_max is 1, so
    FAILURE is at distance 2). Two transitions vote: mean 0.505, and each is 0.7071 away."""
    evidence = merged([Rollout("S-a", True), Rollout("S-a", True), Rollout("S-b", False)])
    step, _ = numbers(evidence, "graphgpo:variant=paper")
    assert step.action_value == pytest.approx([1, 1, 0.01])
    assert step.state_value == pytest.approx([0.505] * 3)
    assert step.step_credit == pytest.approx([0.7071, 0.7071, -0.7071], abs=1e-4)
    rows, _ = numbers(evidence, "graphgpo")
    assert rows.step_credit == pytest.approx([0.5774, 0.5774, -1.1547], abs=1e-4)


def test_graphgpo_variants_of_the_exponent() -> None:
    """S-a T-c succeeds and U-x fails: d(T) = 1, d(S) = 2, d(U) = 3 (unreachable), end of U 3."""
    evidence = merged([Rollout("S-a T-c", True), Rollout("U-x", False)])

    def returns(options: str) -> list[float]:
        values: list[float] = numbers(evidence, f"graphgpo:omega=0.5{options}")[0].action_value
        return list(values)

    assert returns("") == [5, 10, 1.25]
    assert returns(":exponent=transition") == [2.5, 5, 0.625]
    assert returns(":normalize_distance=true") == [10 * 0.5 ** (1 - 2 + 1), 10, 10 * 0.5]
    assert returns(":unreachable=zero") == [5, 10, 0]
    assert returns(":unreachable=zero:normalize_distance=true") == [10, 10, 0]


def test_graphgpo_success_by_reward_or_outcome() -> None:
    """A failure with a positive total reward reaches the success node in the published code."""
    evidence = merged([Rollout("S-a", False, rewards=[0.5]), Rollout("S-b", False, rewards=[-1.0])])
    assert numbers(evidence, "graphgpo")[0].action_value == pytest.approx([10, 0.1 * 0.1 * 10])
    assert numbers(evidence, "graphgpo:success=outcome")[0].action_value == pytest.approx([1, 1])


def test_g2po_terminal_value() -> None:
    """The code counts only exactly the success reward as success at the end, the paper the reward;
    both let it enter V: v = 0.95·9 and 0.95·10."""
    evidence = merged([Rollout("S-a", True, rewards=[9.0]), Rollout("T-a", True, rewards=[10.0])])
    code, paper = (numbers(evidence, f"g2po:variant={v}")[0] for v in ("reference", "paper"))
    assert code.action_value.tolist() == [0, 10]
    assert paper.action_value.tolist() == [9, 10]
    for step in (code, paper):
        assert step.state_value == pytest.approx([8.55, 9.5])


def test_g2po_terms_add_up() -> None:
    evidence = merged(random_rollouts(2))
    node, edge = (step_credit(evidence, f"g2po:{off}=0") for off in ("edge", "node"))
    assert step_credit(evidence, "g2po:edge=0.5") == pytest.approx(node + 0.5 * edge, abs=1e-12)


def test_hgpo_counts_longer_histories_more() -> None:
    """Two rollouts S-a T-b, one of them a success: returns at T are 10 and 0 for the histories T
    and S T alike, so both items are ±1 and any weights give ±1 (less 1e-6 over their sum, 5)."""
    evidence = merged([Rollout("S-a T-b", True), Rollout("S-a T-b", False), Rollout("T-c", True)])
    # At T: returns 10, 0, 10, ddof 0: mean 20/3, std 4.714; history S T: 10 and 0.
    one = np.array([(10 - 20 / 3) / math.sqrt(200 / 9), -20 / 3 / math.sqrt(200 / 9)])
    expected = (2 * one + 3 * np.array([1, -1])) / 5
    assert step_credit(evidence, "hgpo")[[1, 3]] == pytest.approx(expected, abs=1e-5)
    assert step_credit(evidence, "hgpo:history=0")[[1, 3]] == pytest.approx(one, abs=1e-5)
    assert step_credit(evidence, "hgpo:alpha=0")[[1, 3]] == pytest.approx(
        (one + np.array([1, -1])) / 2, abs=1e-5
    )


def test_hgpo_base_group_is_one_more_item() -> None:
    evidence = merged([Rollout("S-a", True), Rollout("S-b", False)])
    step, term = numbers(evidence, "hgpo:base_group=true", ROWS)
    # Weights 1 for A_G = ±0.7071 (rows, ddof 1) and 2 for the anchor's ±1 (ddof 0).
    assert step.advantage(term) == pytest.approx(np.array([1, -1]) * (0.7071068 + 2) / 3, abs=1e-5)
    assert step.trajectory_weight == 0


def test_penalty_stays_on_its_row() -> None:
    """0.1 off the invalid row's own return, after discounting; `penalty` overrides the run's."""
    rollouts = [Rollout("S-a T-b", True, invalid=[1]), Rollout("S-b", False)]
    for spec, size in (("gigpo", 0.1), ("gigpo:penalty=0.5", 0.5), ("gigpo:penalty=0", 0.0)):
        step, _ = numbers(merged(rollouts, penalty=0.1), spec)
        assert step.action_value == pytest.approx([9.5, 10 - size, 0])


# --- shortest ways --------------------------------------------------------------------------------


def test_distance_goes_around_cycles_and_past_dead_ends() -> None:
    """0 → 1 → 2 → success with 1 → 0 back and 0 → 0; 3 → 4 leads nowhere; 5 has no transition."""
    source = np.array([0, 1, 2, 1, 0, 3])
    target = np.array([1, 2, SUCCESS, 0, 0, 4])
    assert success_distance(source, target, 6).tolist() == [3, 2, 1, -1, -1, -1]


# --- similar anchors ------------------------------------------------------------------------------


# 50 letters each; neighbours differ in two of them (ratio 0.96), the outer two in four (0.92).
CHAIN = ["a" * 46 + "wwxx", "a" * 46 + "wwyy", "a" * 46 + "zzyy"]


def test_first_fit_depends_on_order_and_order_free_does_not() -> None:
    one, middle, other = CHAIN
    assert first_fit([middle, one, other], 0.95).tolist() == [0, 0, 0]
    assert first_fit([one, middle, other], 0.95).tolist() == [0, 0, 2]
    assert order_free([middle, one, other], 0.95).tolist() == [0, 0, 0]
    assert order_free([one, other, middle], 0.95).tolist() == [0, 0, 0]


def test_difflib_looks_at_the_second_text_only() -> None:
    """In texts of 200 letters and more difflib passes over letters of the second one that make up
    more than 1 % of it. Only q is rare in the first text here (3 of 231), nothing in the other
    (4 of 232), so that their published ratio is 462/463 one way and 0 the other."""
    one = "the lamp is off and the door is open, " * 6 + "qqq"
    other = "q" + one
    assert first_fit([one, other], 0.95).tolist() == [0, 0]
    assert first_fit([other, one], 0.95).tolist() == [0, 1]
    assert order_free([one, other], 0.95).tolist() == [0, 0]
    assert order_free([other, one], 0.95).tolist() == [0, 0]


def test_gigpo_compares_merged_anchors() -> None:
    rollouts = [Rollout(f"{text}-a", text != CHAIN[2]) for text in CHAIN]
    evidence = merged(rollouts)
    assert step_credit(evidence, "gigpo").tolist() == [0, 0, 0]
    together = step_credit(evidence, "gigpo:similarity=order-free")
    assert together == pytest.approx([0.5774, 0.5774, -1.1547], abs=1e-4)
    pairs = step_credit(evidence, "gigpo:similarity=first-fit")
    assert pairs.tolist() == [0, 0, 0]  # one and middle both return 10; other is alone


def test_similar_anchors_of_other_groups_stay_apart() -> None:
    rollouts = [Rollout(f"{CHAIN[0]}-a", True), Rollout(f"{CHAIN[1]}-a", False, group=1)]
    assert step_credit(merged(rollouts), "gigpo:similarity=order-free").tolist() == [0, 0]


def test_evidence_knows_where_rollouts_ended() -> None:
    """A visited observation is its state, equal unvisited ones share an id, unknown ones are −1;
    another group's state does not count."""
    evidence: Evidence = merged(
        [
            Rollout("S-a T-b", False, then="S"),
            Rollout("S-a", False, then="X"),
            Rollout("S-b", False, then="X"),
            Rollout("S-c", False, then="Y"),
            Rollout("S-c", False),
            Rollout("U-a", False, then="S", group=1),
        ]
    )
    states = evidence.process.states
    terminal = evidence.terminal_state.tolist()
    assert states == 3
    assert terminal[0] == 0
    assert terminal[1] == terminal[2] >= states
    assert terminal[3] >= states
    assert terminal[3] != terminal[1]
    assert terminal[4] == -1
    assert terminal[5] >= states
