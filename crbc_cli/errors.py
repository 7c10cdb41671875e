"""Everything that can go wrong, as one tree.

    CrbcError                 something the user can mend; one line, exit code 2
    ├── OptionError           an option's value, or options that contradict each other
    ├── InputError            a file, stream or directory that cannot be read as asked
    │   ├── BadLineError      a line that is not a JSON object
    │   └── ColumnError       a column that is missing or has a type that cannot be used
    ├── IdentityError         groups, rollouts or steps that are not what they claim to be
    ├── OutcomeError          an outcome that is missing or cannot be read
    ├── ClosureError          the linear solve failed its residual check
    ├── OutputError           an output that exists, cannot be written, or would collide
    └── EngineError           a cluster that is not there, or that lost the work

Each message says what is wrong, where (file, line or row, column) and what to do about it.
"""

__all__ = [
    "BadLineError",
    "ClosureError",
    "ColumnError",
    "CrbcError",
    "EngineError",
    "IdentityError",
    "InputError",
    "OptionError",
    "OutcomeError",
    "OutputError",
]


class CrbcError(Exception):
    """Base of every error this package raises on purpose.

    Args:
      what: what is wrong, one clause.
      where: file, line, row or column it was found at; may be empty.
      todo: what the user can do about it; may be empty.
    """

    def __init__(self, what: str, where: str = "", todo: str = "") -> None:
        self.what, self.where, self.todo = what, where, todo
        super().__init__(what, where, todo)

    def __str__(self) -> str:
        located = f"{self.where}: {self.what}" if self.where else self.what
        message = f"{located}; {self.todo}" if self.todo else located
        return " ".join(message.split())


class OptionError(CrbcError):
    """An option's value, or options that contradict each other."""


class InputError(CrbcError):
    """A file, stream or directory that cannot be read as asked."""


class BadLineError(InputError):
    """A line that is not a JSON object."""


class ColumnError(InputError):
    """A column that is missing or has a type that cannot be used."""


class IdentityError(CrbcError):
    """Groups, rollouts or steps that are not what they claim to be."""


class OutcomeError(CrbcError):
    """An outcome that is missing or cannot be read."""


class ClosureError(CrbcError):
    """The linear solve failed its residual check."""


class OutputError(CrbcError):
    """An output that exists, cannot be written, or would collide."""


class EngineError(CrbcError):
    """A cluster that is not there, or that lost the work."""
