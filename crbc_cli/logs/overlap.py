"""Work in other threads, whose results come in order."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

__all__ = ["ahead", "in_order"]

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def ahead(items: Generator[_Out]) -> Iterator[_Out]:
    """The same items, each made in another thread while the one before it is in use."""
    with ThreadPoolExecutor(1) as beside:
        try:
            following = beside.submit(next, items, None)
            while (item := following.result()) is not None:
                following = beside.submit(next, items, None)
                yield item
        finally:
            with suppress(RuntimeError):  # the program ends, and nobody needs it closed
                beside.submit(items.close)


def in_order(
    pool: ThreadPoolExecutor,
    most: int,
    items: Iterable[_In],
    function: Callable[[_In], _Out],
) -> Iterator[_Out]:
    """What a function makes of the items, in their order, up to `most` of them ahead."""
    waiting: deque[Future[_Out]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
