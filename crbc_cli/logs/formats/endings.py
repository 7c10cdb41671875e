"""How rollouts ended: counted while a dump is read, said once."""

from collections import Counter
from dataclasses import dataclass, field

from crbc_cli.logs.formats.format import Remarks
from crbc_cli.notes import counted

__all__ = ["Endings"]


@dataclass
class Endings:
    """Counts of rollouts by how they ended, other than by themselves.

    Attributes:
      cut: reason -> rollouts that a limit cut.
      failed: reason -> rollouts that crashed; they are no failures of the agent and left out.
      empty: rollouts in which the agent did nothing; left out.
    """

    cut: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    empty: int = 0

    def tell(self, remarks: Remarks) -> None:
        """Says what was counted."""
        if self.cut:
            cut = counted(self.cut.total(), "rollout")
            remarks.say("cut", f"{cut} cut by a limit ({_list(self.cut)}): truncated")
        if self.failed:
            failed = counted(self.failed.total(), "rollout")
            remarks.say(
                "crashed_rollouts",
                f"{failed} crashed ({_list(self.failed)}): left out",
                warning=True,
            )
        if self.empty:
            remarks.say(
                "empty_rollouts", f"{counted(self.empty, 'rollout')} without steps left out"
            )


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{word[:60]}: {count}" for word, count in sorted(counts.items()))
