"""Where pieces are worked on: in this thread, or in several."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol, TypeVar

from crbc_cli.engine.slabs import Slab
from crbc_cli.engine.work import Done, Job, work

__all__ = ["Executor", "Local"]

_T = TypeVar("_T")


class Executor(Protocol):
    """Works on pieces, wherever, and gives back what was done in the order of the pieces."""

    def run(self, slabs: Iterable[Slab], job: Job) -> Iterator[Done]:
        """`work` of each slab. A bounded number of them is taken ahead of what was given back."""


@dataclass(frozen=True)
class Local:
    """This process, with up to `threads` pieces at a time."""

    threads: int

    def run(self, slabs: Iterable[Slab], job: Job) -> Iterator[Done]:
        """See `Executor`. A single piece needs no thread."""
        rest = iter(slabs)
        first = [*islice(rest, 2)]
        if self.threads == 1 or len(first) < 2:
            for slab in chain(first, rest):
                yield work(slab, job)
            return
        with ThreadPoolExecutor(self.threads, "crbc") as pool:
            yield from _in_order(pool, self.threads, chain(first, rest), lambda s: work(s, job))


def _in_order(
    pool: ThreadPoolExecutor, ahead: int, items: Iterable[Slab], function: Callable[[Slab], _T]
) -> Iterator[_T]:
    waiting: deque[Future[_T]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
