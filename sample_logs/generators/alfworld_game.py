"""Random households as games of ALFWorld's own engine.

alfworld ships the PDDL domain, the text grammar, the goals and the tables that say which object
fits where, but no games. A game is those plus one PDDL problem, which this module writes: a random
choice of receptacles from one floor plan, a task, the objects it needs and some that it does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import alfworld
import numpy as np
from alfworld.gen import constants
from alfworld.gen.goal_library import gdict as goal_library

ALFWORLD_FOLDER = Path(alfworld.__file__).parent

FLOOR_PLANS = {
    "kitchen": range(1, 31),
    "living room": range(201, 231),
    "bedroom": range(301, 331),
    "bathroom": range(401, 431),
}
ALL_ROOMS = tuple(FLOOR_PLANS)
DESK_LIKE = ("CoffeeTable", "Desk", "DiningTable", "Dresser", "Shelf", "SideTable", "TVStand")
NOT_USED = frozenset(
    {
        *constants.MOVABLE_RECEPTACLES,
        *("Bathtub", "BathtubBasin", "HandTowelHolder", "PaintingHanger", "Sink", "SinkBasin"),
        *("ToiletPaperHanger", "TowelHolder"),
    }
)
ONE_OF_A_KIND = ("Fridge", "Microwave", "SinkBasin")
MOST_RECEPTACLES, MOST_OPENABLE = 10, 4
LAMP = "DeskLamp"


@dataclass(frozen=True)
class Device:
    """The appliance that a task needs: its verb, its kind and the property of fit objects."""

    verb: str
    receptacle: str
    property_name: str


@dataclass(frozen=True)
class TaskType:
    """One of ALFWorld's six task types."""

    name: str
    rooms: tuple[str, ...]
    targets: int = 1
    device: Device | None = None
    needs_lamp: bool = False


TASK_TYPES = (
    TaskType("pick_and_place_simple", ALL_ROOMS),
    TaskType("look_at_obj_in_light", ("living room", "bedroom"), needs_lamp=True),
    TaskType(
        "pick_clean_then_place_in_recep",
        ("kitchen",),
        device=Device("clean", "SinkBasin", "Cleanable"),
    ),
    TaskType(
        "pick_heat_then_place_in_recep",
        ("kitchen",),
        device=Device("heat", "Microwave", "Heatable"),
    ),
    TaskType(
        "pick_cool_then_place_in_recep",
        ("kitchen",),
        device=Device("cool", "Fridge", "Coolable"),
    ),
    TaskType("pick_two_obj_and_place", ALL_ROOMS, targets=2),
)


@dataclass(frozen=True)
class Receptacle:
    """A place that holds objects, with its own location."""

    kind: str
    name: str
    location: str

    @property
    def opens(self) -> bool:
        """Whether it has a door or a drawer."""
        return self.kind in constants.OPENABLE_CLASS_SET

    def takes(self, kind: str) -> bool:
        """Whether an object of this kind fits."""
        return kind in constants.VAL_RECEPTACLE_OBJECTS[self.kind]


@dataclass(frozen=True)
class Item:
    """An object and the index of the receptacle it starts in."""

    kind: str
    name: str
    place: int


@dataclass(frozen=True)
class Household:
    """A game in its start state.

    Attributes:
      task_type: its kind of task.
      floor_plan: number of the floor plan whose receptacles and objects it draws from.
      task: the task as the agent reads it.
      goal_kind: kind of receptacle the target belongs in; None for the lamp task.
      receptacles: all receptacles; the agent starts at none of them.
      movable: the objects that the policy handles: the targets, then perhaps one more.
      lamp: the lamp of the lamp task.
      scenery: objects that nobody handles.
    """

    task_type: TaskType
    floor_plan: int
    task: str
    goal_kind: str | None
    receptacles: tuple[Receptacle, ...]
    movable: tuple[Item, ...]
    lamp: Item | None
    scenery: tuple[Item, ...]

    def game(self) -> dict[str, str]:
        """What ALFWorld's engine loads."""
        grammar = (ALFWORLD_FOLDER / "data" / "alfred.twl2").read_text(encoding="utf-8")
        return {
            "pddl_domain": (ALFWORLD_FOLDER / "data" / "alfred.pddl").read_text(encoding="utf-8"),
            "grammar": grammar.replace("UNKNOWN GOAL", self.task),
            "pddl_problem": pddl_problem(self),
        }


def draw_household(task_type: TaskType, rng: np.random.Generator) -> Household | None:
    """A random household with a task of this type; None where the draw does not allow one."""
    floor_plan = int(rng.choice(FLOOR_PLANS[str(rng.choice(task_type.rooms))]))
    layouts = ALFWORLD_FOLDER / "gen" / "layouts"
    found = set(json.loads((layouts / f"FloorPlan{floor_plan}-objects.json").read_text()))
    openable = json.loads((layouts / f"FloorPlan{floor_plan}-openable.json").read_text())

    receptacles = draw_receptacles(task_type, found, list(openable), rng)
    if receptacles is None:
        return None
    kinds = portable_kinds(found, receptacles)
    goals = [
        (kind, goal)
        for kind in kinds
        if task_type.device is None
        or kind in constants.VAL_ACTION_OBJECTS[task_type.device.property_name]
        for goal in goal_kinds(task_type, kind, receptacles)
    ]
    if not goals:
        return None
    target_kind, goal_kind = goals[int(rng.integers(len(goals)))]
    others = [kind for kind in kinds if kind != target_kind]
    if not others:
        return None

    movable = [
        place_item(target_kind, receptacles, rng, banned=goal_kind)
        for _ in range(task_type.targets)
    ]
    other_kind = str(rng.choice(others))
    if task_type.targets == 1:
        movable.append(place_item(other_kind, receptacles, rng))
    lamp = None
    if task_type.needs_lamp:
        desks = [index for index, place in enumerate(receptacles) if place.kind in DESK_LIKE]
        if not desks:
            return None
        lamp = Item(LAMP, pddl_name(LAMP, rng), int(rng.choice(desks)))
    drawn = [str(rng.choice(others)) for _ in range(int(rng.integers(3, 9)))]
    scenery = [place_item(kind, receptacles, rng) for kind in drawn if kind != other_kind]
    templates = goal_library[task_type.name]["templates"]
    return Household(
        task_type=task_type,
        floor_plan=floor_plan,
        task=str(rng.choice(templates)).format(
            obj=target_kind.lower(), recep=(goal_kind or "").lower(), toggle=LAMP.lower()
        ),
        goal_kind=goal_kind,
        receptacles=tuple(receptacles),
        movable=tuple(movable),
        lamp=lamp,
        scenery=tuple(scenery),
    )


def draw_receptacles(
    task_type: TaskType, found: set[str], openable: list[str], rng: np.random.Generator
) -> list[Receptacle] | None:
    """Receptacles of a floor plan, the task's appliance first; None where that is missing."""
    available: list[str] = []
    for kind in sorted(found & set(constants.VAL_RECEPTACLE_OBJECTS) - NOT_USED):
        if kind in constants.OPENABLE_CLASS_SET:
            copies = max(1, sum(name.startswith(f"{kind}|") for name in openable))
        else:
            copies = int(rng.integers(1, 3))
        available += [kind] * (1 if kind in ONE_OF_A_KIND else copies)
    if found & {"Sink", "SinkBasin"}:
        available.append("SinkBasin")
    rng.shuffle(available)
    if task_type.device is not None:
        if task_type.device.receptacle not in available:
            return None
        available.remove(task_type.device.receptacle)
        available.insert(0, task_type.device.receptacle)

    chosen: list[Receptacle] = []
    for kind in available:
        suffix = "|SinkBasin" if kind == "SinkBasin" else ""
        name = pddl_name("Sink" if suffix else kind, rng, suffix)
        receptacle = Receptacle(kind, name, pddl_text(f"loc|{len(chosen)}|0|0|30"))
        full = sum(other.opens for other in chosen) >= MOST_OPENABLE
        if len(chosen) < MOST_RECEPTACLES and not (receptacle.opens and full):
            chosen.append(receptacle)
    return chosen


def portable_kinds(found: set[str], receptacles: list[Receptacle]) -> list[str]:
    """Kinds of the floor plan's objects that can be carried and fit somewhere, sorted."""
    fixed = set(constants.VAL_RECEPTACLE_OBJECTS) - set(constants.MOVABLE_RECEPTACLES)
    return sorted(
        kind
        for kind in found - fixed - {LAMP, "FloorLamp"}
        if "Sliced" not in kind and any(receptacle.takes(kind) for receptacle in receptacles)
    )


def goal_kinds(
    task_type: TaskType, kind: str, receptacles: list[Receptacle]
) -> Iterator[str | None]:
    """Kinds of receptacle that an object can be wanted in, given that it starts elsewhere."""
    if task_type.needs_lamp:
        yield None
        return
    hosts = {receptacle.kind for receptacle in receptacles if receptacle.takes(kind)}
    appliance = task_type.device.receptacle if task_type.device else None
    if len(hosts) > 1:
        yield from sorted(hosts - {appliance})


def place_item(
    kind: str, receptacles: list[Receptacle], rng: np.random.Generator, banned: str | None = None
) -> Item:
    """An object in a random receptacle that takes it and is not of the kind `banned`."""
    hosts = [
        index
        for index, receptacle in enumerate(receptacles)
        if receptacle.takes(kind) and receptacle.kind != banned
    ]
    return Item(kind, pddl_name(kind, rng), int(rng.choice(hosts)))


def pddl_name(kind: str, rng: np.random.Generator, suffix: str = "") -> str:
    """A unique name in ALFWorld's style, kind and three coordinates, for example Mug|-01.32|..."""
    coordinates = "".join(f"|{value:+06.2f}" for value in rng.uniform(-9.0, 9.0, size=3))
    return pddl_text(kind + coordinates + suffix)


def pddl_text(text: str) -> str:
    """The text with the characters spelled out that PDDL names cannot have."""
    for character, word in (("-", "minus"), ("|", "bar"), ("+", "plus"), (".", "dot")):
        text = text.replace(character, f"_{word}_")
    return text


def pddl_problem(household: Household) -> str:
    """The household as a PDDL problem of ALFWorld's domain."""
    receptacles = household.receptacles
    items = [*household.movable, *household.scenery]
    if household.lamp is not None:
        items.append(household.lamp)
    item_kinds = sorted({item.kind for item in items})
    receptacle_kinds = sorted({receptacle.kind for receptacle in receptacles})
    start = pddl_text("loc|99|0|0|30")

    objects = ["agent1 - agent", f"{start} - location"]
    objects += [f"{kind}Type - otype" for kind in sorted({*item_kinds, "ButterKnife", "Knife"})]
    objects += [f"{kind}Type - rtype" for kind in sorted({*receptacle_kinds, *ONE_OF_A_KIND})]
    objects += [f"{item.name} - object" for item in items]
    objects += [f"{receptacle.name} - receptacle" for receptacle in receptacles]
    objects += [f"{receptacle.location} - location" for receptacle in receptacles]

    facts = [f"(atLocation agent1 {start})"]
    for receptacle in receptacles:
        facts.append(f"(receptacleType {receptacle.name} {receptacle.kind}Type)")
        facts.append(f"(receptacleAtLocation {receptacle.name} {receptacle.location})")
        if receptacle.opens:
            facts.append(f"(openable {receptacle.name})")
    for kind in receptacle_kinds:
        fitting = [item for item in item_kinds if item in constants.VAL_RECEPTACLE_OBJECTS[kind]]
        facts += [f"(canContain {kind}Type {item}Type)" for item in fitting]
    for item in items:
        facts.append(f"(objectType {item.name} {item.kind}Type)")
        facts.append(f"(inReceptacle {item.name} {receptacles[item.place].name})")
        facts.append(f"(objectAtLocation {item.name} {receptacles[item.place].location})")
        if item is household.lamp:
            facts.append(f"(toggleable {item.name})")
            continue
        facts.append(f"(pickupable {item.name})")
        for property_name in ("Cleanable", "Heatable", "Coolable"):
            if item.kind in constants.VAL_ACTION_OBJECTS[property_name]:
                facts.append(f"({property_name.lower()} {item.name})")

    goal = goal_library[household.task_type.name]["pddl"].format(
        obj=household.movable[0].kind, recep=household.goal_kind, toggle=LAMP
    )
    return "\n".join(
        [
            "(define (problem household)",
            "(:domain alfred)",
            "(:objects",
            *objects,
            ")",
            "(:init",
            *facts,
            ")",
            goal.replace("#", "-"),
        ]
    )
