"""Every option that changes what is computed, declared once as data.

The command line, the environment variables (`CRBC_*`), the config file, the echo in each output's
metadata and the README's tables are all made from these dataclasses. Checking of values that do
not depend on a log happens in `__post_init__`, so a library user gets the same errors as the
command line.
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from keyword import iskeyword
from typing import Any

from crbc_cli.errors import OptionError

__all__ = [
    "LARGEST",
    "MOST",
    "AnchorOptions",
    "ConventionOptions",
    "CreditOptions",
    "GroupAdvantageOptions",
    "LogOptions",
    "OutcomeOptions",
    "Settings",
    "UncertaintyOptions",
    "flag_of",
    "option_groups",
    "parse_depth",
    "refuse_beyond",
]


def _option(default: Any, text: str, *, choices: tuple[str, ...] = (), metavar: str = "") -> Any:
    metadata = {"help": text, "choices": choices, "metavar": metavar}
    return field(default=default, metadata=metadata)


LARGEST = 1e60
"""Largest size of a number that is computed with: squares, quotients and sums stay finite."""

MOST = 1_000_000
"""Largest whole number that an option takes: no group is as large, no backup as late."""


class _Checked:
    """Checks each option that has a fixed set of values, and that numbers can be computed with."""

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            choices = f.metadata["choices"]
            value = getattr(self, f.name)
            if isinstance(value, int | float) and f.name != "depth":
                most = LARGEST if isinstance(f.default, float) else MOST
                refuse_beyond(flag_of(f.name), value, most)
            if choices:
                for one in value if isinstance(value, tuple) else (value,):
                    if one not in choices:
                        raise OptionError(
                            f"{flag_of(f.name)} {one!r} is not known",
                            todo=f"use one of {', '.join(filter(None, choices))}",
                        )


def refuse_beyond(name: str, value: float, most: float) -> None:
    """Raises OptionError for NaN, infinities and numbers too large to compute with."""
    if isinstance(value, float) and math.isnan(value):
        raise OptionError(f"{name} {value} is not a number")
    if abs(value) > most:
        raise OptionError(f"{name} {value} is beyond {most:,}")


def flag_of(name: str) -> str:
    """An option's flag: `from_` (`from` is a word of Python) is `--from`."""
    return "--" + name.rstrip("_").replace("_", "-")


@dataclass(frozen=True, slots=True)
class ConventionOptions(_Checked):
    """Whose conventions to follow."""

    like: str = _option(
        "",
        "Set all conventions of the group advantage as a trainer or the paper has them.",
        choices=("", "paper", "verl", "verl-agent", "trl", "tinker"),
        metavar="paper|verl|verl-agent|trl|tinker",
    )


@dataclass(frozen=True, slots=True)
class LogOptions(_Checked):
    """What the rows are, and which belong together."""

    from_: str = _option(
        "",
        "What wrote the log (see crbc inspect --formats); by default told from its first record.",
        metavar="NAME",
    )
    map: tuple[str, ...] = _option(
        (),
        "Read a canonical column from another one (dotted path into JSON or structs).",
        metavar="CANONICAL=COLUMN",
    )
    key: tuple[str, ...] = _option(
        (), "Add columns to the group key, for instance global_step.", metavar="COL[,COL]"
    )
    group_by: tuple[str, ...] = _option(
        (),
        "Group by these columns instead of group_id (checked: equal sizes).",
        metavar="COL[,COL]",
    )
    group_stride: int = _option(
        0,
        "Every N consecutive rollouts of a file are one group (checked: one prompt each).",
        metavar="N",
    )
    allow_uneven: bool = _option(
        False, "Accept inferred groups (--group-by, --group-stride) of different sizes."
    )
    spanning_groups: bool = _option(False, "Equal group ids in several files are one group.")
    spanning_rollouts: bool = _option(
        False, "Equal rollout ids in several files are one rollout (implies --spanning-groups)."
    )
    order_by: str = _option(
        "step",
        "What orders the rows of a rollout: its step column or their order in the file.",
        choices=("step", "file"),
    )
    on_duplicate: str = _option(
        "error",
        "Rows with equal group, rollout and step but different content.",
        choices=("error", "first", "last"),
    )
    skip_bad_lines: bool = _option(
        False, "Leave out JSONL lines that cannot be read, and count them."
    )

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        for entry in self.map:
            canonical, equals, column = entry.partition("=")
            if not (equals and canonical and column):
                raise OptionError(
                    f"--map {entry!r} is not CANONICAL=COLUMN",
                    todo="for example --map observation=obs",
                )
        for name in ("key", "group_by"):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
        if self.group_stride < 0:
            raise OptionError("--group-stride must be at least 1")
        if self.group_by and self.group_stride:
            raise OptionError("--group-by and --group-stride exclude each other", todo="choose one")

    @property
    def column_map(self) -> dict[str, str]:
        """Canonical name -> column name or dotted path."""
        return dict(entry.split("=", 1) for entry in self.map)

    @property
    def infers_groups(self) -> bool:
        """Groups come from a rule instead of from group_id."""
        return bool(self.group_by or self.group_stride)

    @property
    def per_file(self) -> bool:
        """No group spans files, so that each file can be treated alone."""
        return not (self.spanning_groups or self.spanning_rollouts)


@dataclass(frozen=True, slots=True)
class AnchorOptions(_Checked):
    """When two steps stood in the same situation, and what was done there."""

    anchor: tuple[str, ...] = _option(
        ("observation",),
        "Column(s) or dotted path(s) whose content is the anchor.",
        metavar="COL[,COL]",
    )
    preset: str = _option(
        "",
        "Built-in rules of an environment, or auto; see crbc anchors --explain-preset.",
        metavar="NAME|auto",
    )
    rules: str = _option("", "File with declared anchor and action rules (TOML).", metavar="FILE")
    normalize: tuple[str, ...] = _option(
        (),
        "Text rules for anchors, applied in the fixed order nfc, strip, whitespace, case.",
        choices=("nfc", "strip", "whitespace", "case"),
        metavar="RULE[,RULE]",
    )
    mask: tuple[str, ...] = _option(
        (),
        "Regular expression whose matches are cut out of anchor text (Rust syntax).",
        metavar="REGEX",
    )
    drop: tuple[str, ...] = _option(
        (),
        "Dotted JSON path left out of JSON anchors, for instance meta.timestamp.",
        metavar="PATH",
    )
    action: str = _option("action", "Column or dotted path that holds the action.", metavar="COL")
    action_tag: str = _option(
        "",
        "Take the action from inside <TAG>…</TAG> of that column; other text stays whole.",
        metavar="TAG",
    )

    thoughts: str = _option(
        "inherit",
        "Rows that rules call thoughts: numbers of the environment step that follows, null, or 0.",
        choices=("inherit", "null", "zero"),
    )
    invalid_actions: str = _option(
        "keep",
        "Actions the environment cannot parse, as rules tell: each its own, or one shared.",
        choices=("keep", "share"),
    )
    merge_similar: float = _option(
        0.0,
        "Merge anchors of a group whose texts are at least so similar, 0.95 for instance; 0: none.",
        metavar="X",
    )

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if not 0 <= self.merge_similar <= 1:
            raise OptionError(
                f"--merge-similar {self.merge_similar:g} is not between 0 and 1",
                todo="for example --merge-similar 0.95",
            )
        if not self.anchor:
            raise OptionError("--anchor names no column", todo="for example --anchor observation")
        if self.preset and self.rules:
            raise OptionError("--preset and --rules exclude each other", todo="choose one")
        if not re.fullmatch(r"[\w.:-]*", self.action_tag):
            raise OptionError(
                f"--action-tag {self.action_tag!r} is not the name of a tag",
                todo="for example --action-tag action",
            )


@dataclass(frozen=True, slots=True)
class OutcomeOptions(_Checked):
    """What a rollout's end means."""

    success_when: str = _option(
        "", "Outcome rule on a rollout's last row instead of the success column.", metavar="EXPR"
    )
    truncated: str = _option(
        "fail",
        "Rollouts cut by a limit: failures (paper), last edge dropped, left out, or "
        "continued at the logged next observation.",
        choices=("fail", "censor", "exclude", "bootstrap"),
    )
    unscored: str = _option(
        "exclude", "Rollouts without an outcome.", choices=("exclude", "error", "fail")
    )
    expected_group_size: int = _option(
        0, "Groups in which fewer rollouts count are marked incomplete.", metavar="N"
    )
    boundary: str = _option(
        "outcome",
        "Value a rollout ends in: its 0/1 outcome, or a graded column in [0, 1] (extension).",
        metavar="outcome|COL",
    )

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if self.expected_group_size < 0:
            raise OptionError(f"--expected-group-size {self.expected_group_size} is negative")
        if len(self.success_when) > _LONGEST_RULE:
            raise OptionError(
                f"--success-when has {len(self.success_when)} characters, "
                f"more than {_LONGEST_RULE}",
                todo='for example "reward >= 1"',
            )


_LONGEST_RULE = 4000  # parsing takes time that grows with its square


@dataclass(frozen=True, slots=True)
class GroupAdvantageOptions(_Checked):
    """The trajectory-level term A_G."""

    estimator: str = _option(
        "grpo",
        "Group-relative term: GRPO, Dr.GRPO (mean only) or RLOO.",
        choices=("grpo", "dr-grpo", "rloo"),
    )
    reward: str = _option(
        "outcome",
        "Reward that enters it: the outcome, the sum or the last of the reward column, "
        "or a column's value on the last row.",
        metavar="outcome|sum|last|COL",
    )
    success_reward: float = _option(1.0, "What a success is worth in it.", metavar="X")
    episode_stats: str = _option(
        "rollout",
        "Whether each rollout or each row has one vote in mean and std.",
        choices=("rollout", "rows"),
    )
    ddof: int = _option(1, "Divisor correction of the std: n - ddof.", metavar="N")
    eps: float = _option(1e-6, "Added to the std.", metavar="X")
    singleton: str = _option(
        "zero",
        "Groups in which one rollout counts: 0, its raw reward, or null.",
        choices=("zero", "raw", "drop"),
    )
    invalid_penalty: str = _option(
        "none",
        "Where rows with is_action_valid = false are penalised.",
        choices=("none", "trajectory", "step", "both"),
    )
    penalty: float = _option(
        0.1, "Size of that penalty, on the scale of --success-reward.", metavar="X"
    )
    penalty_unit: str = _option(
        "row",
        "In the group advantage: each row carries its own, or the rollout their sum.",
        choices=("row", "sum"),
    )

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if self.ddof not in (0, 1):
            raise OptionError(f"--ddof {self.ddof} is not 0 or 1")
        if not self.eps >= 0:
            raise OptionError(f"--eps {self.eps} is negative")
        if self.success_reward < 1 / LARGEST:
            raise OptionError(f"--success-reward {self.success_reward} is below {1 / LARGEST}")


@dataclass(frozen=True, slots=True)
class CreditOptions(_Checked):
    """The closure and its step credit. Defaults are the paper's (section 5.1, appendix C.3)."""

    depth: float = _option(
        math.inf,
        "Closure depth: number of Bellman backups, or inf for the exact solve.",
        metavar="K|inf",
    )
    discount: float = _option(0.98, "Bellman discount per environment step.", metavar="X")
    w_g: float = _option(1.0, "Weight of the group advantage.", metavar="X")
    w_s: float = _option(5.0, "Weight of the step credit.", metavar="X")
    floor: float = _option(0.1, "Smallest sigma a credit is divided by.", metavar="X")
    sigma: str = _option(
        "depth",
        "Sigma of the credit at this depth, or of the exact closure.",
        choices=("depth", "closure"),
    )
    gate: str = _option(
        "actions",
        "Anchors that give step credit: two distinct actions, two distinct successors, or all.",
        choices=("actions", "successors", "none"),
    )
    intermediate_rewards: bool = _option(
        False, "Add the rewards of all rows but a rollout's last to the values (extension)."
    )

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if not 0 <= self.discount <= 1:
            raise OptionError(f"--discount {self.discount} is outside [0, 1]")
        if self.depth != math.inf and not (self.depth >= 0 and self.depth == int(self.depth)):
            raise OptionError(f"--depth {self.depth} is not a whole number or inf")
        if self.depth != math.inf:
            refuse_beyond("--depth", self.depth, MOST)
        if self.floor < 1 / LARGEST:
            raise OptionError(
                f"--floor {self.floor} is below {1 / LARGEST}",
                todo="use a small number such as 1e-9 to switch it off",
            )


@dataclass(frozen=True, slots=True)
class UncertaintyOptions(_Checked):
    """How sure the closure's numbers are."""

    uncertainty: bool = _option(
        False, "Add standard errors and intervals of V, Q and credit, and sign reliability."
    )
    resampling: str = _option(
        "jackknife",
        "Leave each rollout out once, or draw rollouts with replacement.",
        choices=("jackknife", "bootstrap"),
    )
    level: float = _option(0.9, "Level of the intervals.", metavar="X")
    resamples: int = _option(200, "Resamples of the bootstrap.", metavar="N")
    seed: int = _option(0, "Seed of the bootstrap.", metavar="N")

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if not 0 < self.level < 1:
            raise OptionError(f"--level {self.level} is not between 0 and 1")
        if self.resamples < 2:
            raise OptionError(f"--resamples {self.resamples} is below 2")
        if self.seed < 0:
            raise OptionError(f"--seed {self.seed} is negative")


@dataclass(frozen=True, slots=True)
class Settings:
    """All options of one run."""

    conventions: ConventionOptions = field(default_factory=ConventionOptions)
    log: LogOptions = field(default_factory=LogOptions)
    anchor: AnchorOptions = field(default_factory=AnchorOptions)
    outcome: OutcomeOptions = field(default_factory=OutcomeOptions)
    group_advantage: GroupAdvantageOptions = field(default_factory=GroupAdvantageOptions)
    credit: CreditOptions = field(default_factory=CreditOptions)
    uncertainty: UncertaintyOptions = field(default_factory=UncertaintyOptions)
    explicit: frozenset[str] = frozenset()
    """Options the user set; conventions (`--like`) leave them alone."""

    @classmethod
    def from_flat(cls, options: Mapping[str, Any]) -> "Settings":
        """Settings from option names, as a library user writes them: `depth=0, w_s=1`.

        Raises:
          OptionError: an unknown name, or a value its option does not allow.
        """
        groups: dict[str, Any] = {}
        left = {f"{name}_" if iskeyword(name) else name: v for name, v in options.items()}
        for group, kind in option_groups().items():
            own = {
                f.name: _coerced(f.name, f.default, left.pop(f.name))
                for f in fields(kind)
                if f.name in left
            }
            groups[group] = kind(**own)
        if left:
            wrong = min(left)
            names = [f.name for kind in option_groups().values() for f in fields(kind)]
            near = difflib.get_close_matches(wrong, names, 3)
            raise OptionError(
                f"unknown option {wrong!r}",
                todo=f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}",
            )
        return cls(**groups, explicit=frozenset(options))

    def echo(self) -> dict[str, Any]:
        """Resolved options for an output's metadata; infinity is written as "inf"."""
        flat: dict[str, Any] = {}
        for group in option_groups():
            flat |= asdict(getattr(self, group))
        return {
            name.rstrip("_"): "inf"
            if value == math.inf
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in flat.items()
        }


def option_groups() -> dict[str, Any]:
    """Attribute of `Settings` -> dataclass of its options, in the order they are shown."""
    return {f.name: f.default_factory for f in fields(Settings) if f.name != "explicit"}


REPEATED = ("map", "mask", "drop")
"""Options whose values may hold commas, so that several are given one by one."""


def _coerced(name: str, default: Any, value: Any) -> Any:
    """A value as a library user writes it, as the type its option has.

    A string stands for one name, or several with commas; `map` may be a mapping.

    Raises:
      OptionError: a value that is not of the option's kind.
    """
    if name == "map" and isinstance(value, Mapping):
        return tuple(f"{canonical}={column}" for canonical, column in value.items())
    if isinstance(default, tuple):
        if isinstance(value, str):
            return (value,) if name in REPEATED else tuple(p.strip() for p in value.split(","))
        names = tuple(value) if isinstance(value, Iterable) else (value,)
        if not all(isinstance(one, str) for one in names):
            raise OptionError(f"{name}={value!r} is not a name or several")
        return names
    if name == "depth" and isinstance(value, str):
        return parse_depth(value)
    kind = float if isinstance(default, float) else type(default)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        refuse_beyond(flag_of(name), value, LARGEST)
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise OptionError(f"{name}={value!r} is not {_KINDS.get(kind, kind.__name__)}")
    return value


_KINDS = {float: "a number", int: "a whole number", bool: "True or False", str: "a string"}


def parse_depth(text: str) -> float:
    """A closure depth as typed: a whole number or `inf`.

    Raises:
      OptionError: anything else.
    """
    if text.strip().lower() in ("inf", "infinity", "∞"):
        return math.inf
    try:
        depth = int(text)
    except ValueError:
        depth = -1
    refuse_beyond("--depth", depth, MOST)
    if depth < 0:
        raise OptionError(
            f"depth {text!r} is not a whole number or inf",
            todo="for example --depth 3 or --depth inf",
        )
    return float(depth)
