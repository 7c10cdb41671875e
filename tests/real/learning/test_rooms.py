"""Generators and stepping: exact values against simulation, tables against the engine."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from rooms import ACTIONS, Rooms

from sample_logs.generators import sokoban, sokoban_fidelity
from sample_logs.generators.mdp import DISCOUNT, success_probability
from sample_logs.generators.truth_log import TRUTH_SCHEMA


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return Rooms.draw(6, seed=11)


def test_successors_are_those_of_the_engine(rooms: Rooms) -> None:
    assert rooms.check_engine(np.random.default_rng(1)) > 50


def test_success_is_that_of_the_enumerated_process(rooms: Rooms) -> None:
    rng = np.random.default_rng(2)
    policy = rng.dirichlet(np.ones(len(ACTIONS)), len(rooms.states))
    exact = rooms.success(policy)
    for index, start in enumerate(rooms.start):
        states, mdp = sokoban.enumerate_room(rooms.rooms[index])
        own = policy[start : start + len(states)][~mdp.is_goal].ravel()
        assert exact[index] == pytest.approx(success_probability(mdp, own, 15), abs=1e-12)


def test_boards_and_planes_show_the_same(rooms: Rooms) -> None:
    for state in range(0, len(rooms.states), 37):
        cells = [line.split(" ")[1:-1] for line in rooms.boards[state].as_py().split("\n")[1:-1]]
        wall, target, box, player = rooms.planes[state].reshape(4, 4, 4)
        for at, symbol in np.ndenumerate(np.array(cells)):
            shown = (wall[at], target[at], box[at], player[at])
            assert (
                shown
                == {
                    "#": (1, 0, 0, 0),
                    "_": (0, 0, 0, 0),
                    "O": (0, 1, 0, 0),
                    "X": (0, 0, 1, 0),
                    "P": (0, 0, 0, 1),
                    "√": (0, 1, 1, 0),
                    "S": (0, 1, 0, 1),
                }[symbol]
            )


def test_rooms_can_be_passed_over(rooms: Rooms) -> None:
    others = Rooms.draw(4, seed=11, without=rooms.first_boards())
    assert not others.first_boards() & rooms.first_boards()


def test_without_skill_the_log_is_that_of_the_sample_logs() -> None:
    plain = sokoban.make_log(4, 3, seed=5, check_engine=False)
    study = sokoban_fidelity.make_log(4, 3, seed=5, check_engine=True)
    assert study.select(TRUTH_SCHEMA.names).equals(plain)


def test_values_of_hidden_skill_are_those_of_simulation() -> None:
    """Mean discounted outcome of each skill, against V of the rollout's own policy."""
    log = pl.DataFrame(sokoban_fidelity.make_log(6, 300, seed=6, skill=1.5))
    rollouts = log.group_by("group_id", "rollout_id").agg(
        pl.col("skill").first(),
        pl.col("true_value").sort_by("step").first(),
        outcome=pl.col("success").any() * DISCOUNT ** pl.len(),
    )
    gaps = rollouts.group_by("group_id", "skill").agg(
        gap=pl.col("outcome").mean() - pl.col("true_value").first(),
        se=pl.col("outcome").std() / pl.len().sqrt(),
        values=pl.col("true_value").n_unique(),
    )
    assert gaps.height == 12
    assert (gaps["values"] == 1).all()
    assert (gaps["gap"].abs() < 4 * gaps["se"] + 0.02).all()
    weak, strong = (
        rollouts.filter(pl.col("skill") == x).select(pl.col("true_value").mean()).item()
        for x in (-1.5, 1.5)
    )
    assert strong > weak + 0.2


def test_the_view_hides_the_right_half() -> None:
    board = "# # # # # #\n# _ _ X P #\n# S _ √ O #"
    assert sokoban_fidelity.view_text(board) == "# # # ? ? ?\n# _ _ ? ? ?\n# S _ ? ? ?"
