"""ALFWorld's own engine around a household, with its hidden state made readable."""

from __future__ import annotations

import copy
import functools
from typing import NamedTuple

import fast_downward
import textworld
import textworld.envs.pddl.textgen as textgen
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from textworld.envs import PddlEnv
from textworld.logic import Rule

from .alfworld_game import Household

START, HELD = -1, -1
PREPARED_FACTS = ("isclean", "ishot", "iscool")


class HouseholdState(NamedTuple):
    """The part of the engine's state that the policy can change.

    Attributes:
      location: index of the receptacle the agent stands at, or START.
      held: index of the movable object in hand, or None.
      places: per movable object the index of its receptacle, or HELD.
      prepared: whether the target has been cleaned, heated or cooled, or the lamp switched on.
      opened: indices of the open receptacles.
    """

    location: int
    held: int | None
    places: tuple[int, ...]
    prepared: bool
    opened: frozenset[int]


def start_state(household: Household) -> HouseholdState:
    """The state in which every rollout begins."""
    places = tuple(item.place for item in household.movable)
    return HouseholdState(START, None, places, prepared=False, opened=frozenset())


class HouseholdEngine:
    """A game loaded into textworld's PddlEnv behind ALFWorld's naming layer.

    Attributes:
      names: the agent's word for every PDDL name, for example `mug 1`.
    """

    def __init__(self, household: Household) -> None:
        infos = textworld.EnvInfos(admissible_commands=True, won=True, facts=True)
        self._engine = AlfredDemangler(PddlEnv(infos), shuffle=False)
        self._engine.load(household.game())
        self._household = household
        self.reset()
        self.names: dict[str, str] = {
            name: info.name for name, info in self._game_state["_entity_infos"].items()
        }

    def reset(self) -> None:
        """Starts a new rollout."""
        self._game_state = self._engine.reset()

    def step(self, command: str) -> None:
        """Executes one command."""
        self._game_state, _, _ = self._engine.step(command)

    @property
    def observation(self) -> str:
        """The reply to the last command, or the introduction."""
        return str(self._game_state.feedback)

    @property
    def admissible_commands(self) -> list[str]:
        """All commands that would do something now, sorted."""
        return list(self._game_state["admissible_commands"])

    @property
    def won(self) -> bool:
        """Whether the task is done."""
        return bool(self._game_state["won"])

    def state(self) -> HouseholdState:
        """The hidden state, read from the engine's facts."""
        household = self._household
        location_index = {
            receptacle.location.lower(): index
            for index, receptacle in enumerate(household.receptacles)
        }
        receptacle_index = {
            receptacle.name.lower(): index for index, receptacle in enumerate(household.receptacles)
        }
        item_index = {item.name.lower(): index for index, item in enumerate(household.movable)}
        location, held, prepared = START, None, False
        places = [HELD] * len(household.movable)
        opened = set()
        for fact in self._game_state["_facts"]:
            arguments = [variable.name for variable in fact.arguments]
            first = arguments[0]
            if fact.name == "atlocation":
                location = location_index.get(arguments[1], START)
            elif fact.name == "holds" and arguments[1] in item_index:
                held = item_index[arguments[1]]
            elif fact.name == "inreceptacle" and first in item_index:
                places[item_index[first]] = receptacle_index[arguments[1]]
            elif fact.name == "opened":
                opened.add(receptacle_index[first])
            elif fact.name in PREPARED_FACTS:
                prepared = prepared or item_index.get(first) == 0
            elif fact.name == "istoggled":
                prepared = True
        return HouseholdState(location, held, tuple(places), prepared, frozenset(opened))


@functools.cache
def remember_parsed_games() -> None:
    """Caches what textworld would parse and translate again in every step; changes no result.

    Calling it again does nothing.
    """

    @functools.cache
    def convert(text: str, rule_name: str) -> object:
        return textgen._Converter().walk(textgen._PARSER.parse(text, rule_name=rule_name))

    def parse_and_convert(text: str, rule_name: str = "symbols", trace: bool = False) -> object:
        return copy.deepcopy(convert(text, rule_name))

    textgen._parse_and_convert = parse_and_convert
    query = functools.cache(Rule.parse_conjunctive_query)
    Rule.parse_conjunctive_query = staticmethod(query)
    fast_downward.pddl2sas = functools.lru_cache(maxsize=4)(fast_downward.pddl2sas)
