"""How a run reads its logs: conventions applied and anchor rules chosen once for all inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace

from crbc_cli.anchors.rulefile import RuleFile
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.load import load, rules_for
from crbc_cli.engine.prepare import Prepared, prepare
from crbc_cli.logs.columns import Field
from crbc_cli.logs.read import available_columns
from crbc_cli.logs.sources import Source
from crbc_cli.methods.presets import apply_preset
from crbc_cli.notes import Notes
from crbc_cli.options import Settings

__all__ = ["Part", "Reader"]

Part = Sequence[Source]
"""Inputs that are read together: one file, or all where groups span files."""


@dataclass(frozen=True)
class Reader:
    """Inputs, and everything about reading them that is the same for each.

    Attributes:
      sources: inputs in order.
      settings: with the conventions of `--like` applied.
      rules: what makes up an anchor.
      clock, notes: filled while reading.
    """

    sources: Sequence[Source]
    settings: Settings
    rules: RuleFile
    clock: Clock
    notes: Notes

    @classmethod
    def open(
        cls, sources: Sequence[Source], settings: Settings, clock: Clock, notes: Notes
    ) -> "Reader":
        """Applies conventions and chooses rules.

        Raises:
          OptionError: unknown conventions or rules, or no preset fits under `--preset auto`.
        """
        settings = _with_conventions(settings, sources, notes)
        return cls(sources, settings, rules_for(sources, settings, notes), clock, notes)

    @property
    def parts(self) -> list[Part]:
        """What is read together."""
        per_file = self.settings.log.per_file
        return [[source] for source in self.sources] if per_file else [self.sources]

    def read(
        self,
        part: Part,
        *,
        following: bool = False,
        anchors: bool = True,
        anchor_id: bool = False,
        lengths: bool = False,
        extra: Sequence[Field] = (),
    ) -> Prepared:
        """One part, in canonical order; arguments as in `crbc_cli.engine.load.load`."""
        loaded = load(
            part,
            self.settings,
            self.clock,
            self.notes,
            rules=self.rules,
            following=following,
            anchors=anchors,
            anchor_id=anchor_id,
            lengths=lengths,
            extra=extra,
        )
        return prepare(loaded, self.settings, self.clock)

    def logs(
        self,
        *,
        following: bool = False,
        lengths: bool = False,
        extra: Sequence[Field] = (),
        tolerant: bool = False,
    ) -> Iterator[Prepared]:
        """All parts, one at a time; `tolerant` takes dumps of formats that log no states."""
        for part in self.parts:
            anchors = not (tolerant and any(source.stateless for source in part))
            yield self.read(
                part, following=following, anchors=anchors, lengths=lengths, extra=extra
            )


def _with_conventions(settings: Settings, sources: Sequence[Source], notes: Notes) -> Settings:
    like = settings.conventions.like
    if not like:
        return settings
    validity = settings.log.column_map.get("is_action_valid", "is_action_valid")
    logged = any(validity in available_columns(source) for source in sources)
    own = {
        f.name: getattr(settings.group_advantage, f.name)
        for f in fields(settings.group_advantage)
        if f.name in settings.explicit
    }
    preset = apply_preset(like, settings.group_advantage, validity_logged=logged)
    options = replace(preset, **own)
    before, after = asdict(settings.group_advantage), asdict(options)
    changed = ", ".join(f"{k}={v}" for k, v in after.items() if before[k] != v)
    notes.say("conventions", f"--like {like} sets {changed or 'what is set already'}")
    return replace(settings, group_advantage=options)
