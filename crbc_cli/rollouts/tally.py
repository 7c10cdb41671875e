"""What was counted while rows were arranged: added up over pieces of a log, then told once."""

from collections import Counter
from dataclasses import dataclass, field

from crbc_cli.errors import IdentityError, OutcomeError
from crbc_cli.notes import Notes, counted
from crbc_cli.options import LogOptions, OutcomeOptions

__all__ = ["Tally"]

_PLACES = 4


@dataclass
class Tally:
    """Counts over groups; pieces are added in canonical order, so that the first stays the first.

    Attributes:
      rows_are_rollouts: rollouts were not logged: each row is one.
      copies: rows that say the same as an earlier one.
      discarded: rows that --on-duplicate left out.
      clashes: steps that occur twice with different content, under --on-duplicate error.
      clash_places: where the first of them are.
      clash_first: identity of the first of them.
      sizes: groups by number of rollouts.
      unscored: rollouts without an outcome.
      unscored_first: where the first of them ends.
      cut, blind: rollouts that go on at the observation after their last row, and those of them
        that do not log it.
      rewarded: a rollout of several rows has a reward other than 0.
      repeated: all rows of each rollout have the reward of its first one.
    """

    rows_are_rollouts: bool = False
    copies: int = 0
    discarded: int = 0
    clashes: int = 0
    clash_places: list[str] = field(default_factory=list)
    clash_first: str = ""
    sizes: Counter[int] = field(default_factory=Counter)
    unscored: int = 0
    unscored_first: str = ""
    cut: int = 0
    blind: int = 0
    rewarded: bool = False
    repeated: bool = True

    def clash(self, number: int, places: list[str], first: str) -> None:
        """Counts clashing steps; `places` are those of the first ones."""
        self.clash_first = self.clash_first or first
        self.clash_places = [*self.clash_places, *places][:_PLACES]
        self.clashes += number

    def unscore(self, number: int, first: str) -> None:
        """Counts rollouts without an outcome; `first` is where the first one ends."""
        self.unscored_first = self.unscored_first or first
        self.unscored += number

    def add(self, later: "Tally") -> None:
        """Adds what a later piece of the same log counted."""
        self.rows_are_rollouts |= later.rows_are_rollouts
        self.copies += later.copies
        self.discarded += later.discarded
        self.clash(later.clashes, later.clash_places, later.clash_first)
        self.sizes.update(later.sizes)
        self.unscore(later.unscored, later.unscored_first)
        self.cut += later.cut
        self.blind += later.blind
        self.rewarded |= later.rewarded
        self.repeated &= later.repeated

    def tell(self, log: LogOptions, outcome: OutcomeOptions, notes: Notes) -> None:
        """Says what was tolerated and inferred.

        Raises:
          IdentityError: rows with equal (group, rollout, step) and different content, or inferred
            groups of different sizes without --allow-uneven.
          OutcomeError: unscored rollouts under --unscored error.
        """
        if self.rows_are_rollouts:
            notes.say("rows_are_rollouts", "no rollout_id: each row is one rollout of one step")
        self._tell_duplicates(log, notes)
        if log.infers_groups:
            self._tell_sizes(log, notes)
        self._tell_lone(notes)
        if self.unscored:
            self._tell_unscored(outcome, notes)
        if self.blind:
            notes.say(
                "no_next_observation",
                f"{self.blind:,} of {counted(self.cut, 'rollout')} cut by a limit log no "
                "next_observation on their last row: --truncated bootstrap takes them as failures",
                warning=True,
            )
        if self.rewarded and self.repeated:
            notes.say(
                "repeated_reward",
                "the reward column repeats each rollout's reward on all of "
                "its rows: it is an episode reward, so use --reward last, not sum",
            )

    def _tell_duplicates(self, log: LogOptions, notes: Notes) -> None:
        if self.clashes:
            steps = counted(self.clashes, "step occurs", "steps occur")
            raise IdentityError(
                f"{steps} twice with different content, first {self.clash_first}",
                "; ".join(self.clash_places),
                "if rollout_id is used twice, name the column that tells rollouts apart with --map "
                "rollout_id=COLUMN (draws of a task: --key COLUMN); if steps restart, use "
                "--order-by file; or choose with --on-duplicate first|last",
            )
        if self.copies:
            repeats = counted(
                self.copies,
                "row repeats an earlier row and counts once",
                "rows repeat earlier rows and count once",
            )
            notes.say("duplicates", repeats)
        if self.discarded:
            notes.say(
                "discarded",
                f"{counted(self.discarded, 'row')} with different content under one "
                f"(group, rollout, step) discarded by --on-duplicate {log.on_duplicate}",
                warning=True,
            )

    def _tell_sizes(self, log: LogOptions, notes: Notes) -> None:
        sizes = sorted(self.sizes.items())
        histogram = ", ".join(f"{count} of size {size}" for size, count in sizes)
        rule = (
            f"--group-by {','.join(log.group_by)}"
            if log.group_by
            else f"--group-stride {log.group_stride}"
        )
        text = f"{rule} gives {counted(self.sizes.total(), 'group')}: {histogram}"
        if len(sizes) > 1 and not log.allow_uneven:
            raise IdentityError(
                f"{text}; sizes differ", todo="group by a key, or accept them with --allow-uneven"
            )
        notes.say("inferred_groups", text, warning=len(sizes) > 1)

    def _tell_lone(self, notes: Notes) -> None:
        lone, groups = self.sizes[1], self.sizes.total()
        if not lone or 2 * lone < groups:
            return
        hold = "the only group holds" if groups == 1 else f"{lone:,} of {groups:,} groups hold"
        notes.say(
            "lone_rollouts",
            f"{hold} one rollout, which has no other to be compared with; if rollouts of one task "
            "have different group_id, group by a key that they share (--group-by, --map "
            "group_id=COLUMN)",
        )

    def _tell_unscored(self, outcome: OutcomeOptions, notes: Notes) -> None:
        what = counted(self.unscored, "rollout has", "rollouts have") + " no outcome"
        if outcome.unscored == "error":
            raise OutcomeError(
                f"{what}, the first ends here",
                self.unscored_first,
                "mend the log, or use --unscored exclude|fail",
            )
        fate = "left out" if outcome.unscored == "exclude" else "taken as failures"
        notes.say("unscored", f"{what}: {fate} (first ends at {self.unscored_first})", warning=True)
