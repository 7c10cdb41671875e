"""Where pieces are worked on: in this thread, or in several."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from crbc_cli.engine.slabs import Slab
from crbc_cli.engine.work import Done, Job, work
from crbc_cli.logs.overlap import in_order

__all__ = ["Executor", "Local"]


class Executor(Protocol):
    """Works on pieces, wherever, and gives back what was done in the order of the pieces."""

    @property
    def together(self) -> int:
        """Outputs that are made at the same time where there are several, each with an executor
        of its own; 1 where pieces alone are spread."""

    def alone(self) -> "Executor":
        """An executor for one of several outputs."""

    def run(self, slabs: Iterable[Slab], job: Job) -> Iterator[Done]:
        """`work` of each slab. A bounded number of them is taken ahead of what was given back."""


@dataclass(frozen=True)
class Local:
    """This process, with up to `threads` pieces at a time."""

    threads: int

    @property
    def together(self) -> int:
        """See `Executor`."""
        return self.threads

    def alone(self) -> "Local":
        """One piece at a time."""
        return Local(1)

    def run(self, slabs: Iterable[Slab], job: Job) -> Iterator[Done]:
        """See `Executor`. A single piece needs no thread."""
        rest = iter(slabs)
        first, second = next(rest, None), None
        if self.threads > 1:
            second = next(rest, None)
        items = _chained([first, second], rest)
        del first
        if second is None:
            for slab in items:
                yield work(slab, job)
            return
        del second
        with ThreadPoolExecutor(self.threads, "crbc") as pool:
            yield from in_order(pool, self.threads, items, lambda slab: work(slab, job))


def _chained(first: list[Slab | None], rest: Iterator[Slab]) -> Iterator[Slab]:
    """All of them, none held when it is given."""
    first.reverse()
    while first:
        slab = first.pop()
        if slab is not None:
            yield slab
            del slab
    yield from rest
