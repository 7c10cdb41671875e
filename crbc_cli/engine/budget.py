"""How much memory and how many threads a run takes, and how many rows it holds at a time."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from crbc_cli.errors import InputError, OptionError

__all__ = ["Budget", "parse_memory"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SHARE = 0.25
_MOST = 800 * 10**6
_LEAST = 200 * 10**6
_PROGRAM = 230 * 10**6
"""What the interpreter, the libraries and their caches take."""
_PER_ROW = 1000
"""Keys, process, numbers and credit of one row, in bytes, before its values."""
_FEWEST_ROWS = 4096


def parse_memory(text: str) -> int:
    """Bytes of `500MB`, `1GB`, `2GiB` or a plain number.

    Raises:
      OptionError: not a size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    size = 0.0
    if found:
        unit = _UNITS[found[2]]
        size = float(found[1]) * (1024 ** list(_UNITS).index(found[2]) if found[3] else unit)
    if not 1 <= size < 10**18:
        raise OptionError(f"--memory {text!r} is not a size", todo="for example --memory 1GB")
    return int(size)


@dataclass(frozen=True)
class Budget:
    """What a run may take.

    Attributes:
      memory: bytes, aimed at: one group is always held whole.
      threads: pieces that are worked on at the same time.
    """

    memory: int
    threads: int

    @classmethod
    def of(cls, memory: str = "", threads: int = 0) -> "Budget":
        """By default a quarter of the memory that is free, 800 MB at most, and a thread per core.

        Raises:
          OptionError: not a size, or less than no threads.
        """
        if threads < 0:
            raise OptionError(f"--threads {threads} is negative")
        size = parse_memory(memory) if memory else int(min(_MOST, _SHARE * _free_memory()))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return cls(max(size, _LEAST), threads or cores or 1)

    def rows(self, row_bytes: int) -> int:
        """Rows of one piece, if the values that are read of a row have `row_bytes`."""
        pieces = self.threads + 1
        room = max(self.memory - _PROGRAM, self.memory // 8) // pieces
        return max(room // (_PER_ROW + row_bytes), _FEWEST_ROWS)

    def refuse(self, rows: int, name: str) -> None:
        """Refuses what would not fit, before the system ends the program for it.

        Args:
          rows: rows that are held at the same time because a group is.
          name: of the input.
        Raises:
          InputError: they need more memory than is free.
        """
        needed = rows * _PER_ROW
        if needed <= self.memory:
            return
        free = _free_memory()
        if needed > free:
            raise InputError(
                f"groups of {rows:,} rows need about {needed / 1e9:.1f} GB of memory, "
                f"{free / 1e9:.1f} GB are free",
                name,
                "cut the groups smaller (--group-by, --key), or run where more is free",
            )

    @property
    def gathered(self) -> int:
        """Bytes of rows that are gathered in memory before they go to disk."""
        return self.memory // (2 * self.threads + 2)


def _free_memory() -> int:
    """Bytes that this process can take: free in the machine, in its control group and under its
    limit of address space."""
    free = []
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        found = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text("ascii"))
        free += [int(found[1]) * 1024] if found else []
    group = Path("/sys/fs/cgroup")
    try:
        most = (group / "memory.max").read_text("ascii").strip()
        taken = int((group / "memory.current").read_text("ascii"))
        free += [int(most) - taken] if most.isdecimal() else []
    except (OSError, ValueError):
        pass
    return max(min([*free, *_free_addresses()], default=4 * _MOST), 0)


def _free_addresses() -> list[int]:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return []
    most, statm = resource.getrlimit(resource.RLIMIT_AS)[0], Path("/proc/self/statm")
    if most == resource.RLIM_INFINITY or not statm.is_file():
        return []
    return [most - int(statm.read_text("ascii").split()[0]) * resource.getpagesize()]
