"""What a run inferred or tolerated: printed on stderr and stored in the output's metadata."""

from dataclasses import asdict, dataclass, field

__all__ = ["Note", "Notes", "counted"]


def counted(number: int, one: str, several: str = "") -> str:
    """A number and what it counts: `1 row`, `2 rows`.

    Args:
      number: how many.
      one: the words for one of them.
      several: the words for any other number; by default `one` with an s.
    """
    return f"{number} {one if number == 1 else several or f'{one}s'}"


@dataclass(frozen=True, slots=True)
class Note:
    """One remark.

    Attributes:
      code: stable short name, for scripts.
      message: one line for people.
      warning: something is probably wrong with the log; `--strict` turns it into exit code 1.
    """

    code: str
    message: str
    warning: bool = False


@dataclass
class Notes:
    """Remarks of one run, in the order made, each once."""

    items: list[Note] = field(default_factory=list)

    def say(self, code: str, message: str, *, warning: bool = False) -> None:
        note = Note(code, message, warning)
        if note not in self.items:
            self.items.append(note)

    @property
    def warnings(self) -> int:
        return sum(note.warning for note in self.items)

    def echo(self) -> list[dict[str, object]]:
        return [asdict(note) for note in self.items]
