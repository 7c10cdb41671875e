"""Work on a Ray cluster: a task per output, or per piece where one output takes all inputs.

A task of an output reads its inputs and writes it, as this process would, so inputs and outputs
stand where every machine sees them under the same name. Tasks that died with their worker are
started again: an output appears whole, so one that was half-written was never there.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, cast

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.execute import Local
from crbc_cli.engine.slabs import Slab
from crbc_cli.engine.stream import Stream, Told, Unit
from crbc_cli.engine.work import Done, Job, Totals, work
from crbc_cli.errors import CrbcError, EngineError
from crbc_cli.logs.write import Target
from crbc_cli.notes import Notes

if TYPE_CHECKING:
    from ray import ObjectRef

__all__ = ["Cluster", "connected"]

_RETRIES = 5
_ENDING_SECONDS = 20.0
_ANSWER_SECONDS = 10.0


@contextmanager
def connected(address: str, threads: int) -> Iterator["Cluster"]:
    """A cluster to work on; one that runs already in this process is used and kept.

    Args:
      address: of a cluster, `auto` for that of this machine; "" for RAY_ADDRESS, and without it
        for a cluster of this machine alone, made for this run.
      threads: workers of a cluster that is made.
    Raises:
      EngineError: Ray is not installed, or there is no cluster at this address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        from ray import is_initialized, shutdown
    except ImportError as error:
        raise EngineError(
            "--engine ray needs Ray", todo="install it with pip install 'crbc-cli[ray]'"
        ) from error
    with redirect_stdout(cast(TextIO, _BytesAlone(sys.stdout))):
        if is_initialized():
            cluster = Cluster(_cpus())
            try:
                yield cluster
            finally:
                cluster.clean()
            return
        ended_by = _begin(address or os.environ.get("RAY_ADDRESS") or "local", threads)
        cluster = Cluster(_cpus())
        try:
            yield cluster
        except SystemExit:
            if ended_by:  # Ray raises its own, with another exit code
                raise ended_by[0] from None
            raise
        finally:
            shutdown()
            cluster.clean()


class _BytesAlone:
    """A stdout for tables: Ray prints there that a worker died."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return len(text)


def _begin(address: str, threads: int) -> list[BaseException]:
    """Connects; returns a list that gets what a signal raises that ends the run.

    Raises:
      EngineError: there is no cluster.
    """
    import ray

    how: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        how |= {"num_cpus": threads, "include_dashboard": False}
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if host and port.isdecimal():
        try:  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
        except OSError as error:
            raise EngineError(
                f"no Ray cluster at {address} ({error.strerror or error})",
                todo="check --ray-address",
            ) from error
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**how, runtime_env={"env_vars": {"POLARS_MAX_THREADS": "1"}})
    except Exception as error:  # whatever keeps it from starting
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise EngineError(
            f"no Ray cluster at {address} ({line})", todo="check --ray-address"
        ) from error
    ended_by: list[BaseException] = []

    def end(number: int, frame: FrameType | None) -> None:
        try:
            if callable(before):
                before(number, frame)
        except BaseException as raised:
            ended_by.append(raised)
            raise

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end if callable(before) else before)
    return ended_by


def _cpus() -> int:
    import ray

    return max(int(ray.cluster_resources().get("CPU", 1)), 1)


@dataclass(frozen=True)
class Cluster:
    """A cluster, which is an `Executor` of pieces.

    Attributes:
      cpus: its processors.
      begun: outputs that tasks were given.
    """

    cpus: int
    begun: list[Target] = field(default_factory=list)

    def clean(self) -> None:
        """Removes what dead workers left of outputs, waiting for those that are about to die."""
        deadline = time.monotonic() + _ENDING_SECONDS
        for target in self.begun:
            while not target.clean() and time.monotonic() < deadline:
                time.sleep(0.05)

    @property
    def together(self) -> int:
        """See `crbc_cli.engine.execute.Executor`: outputs are spread by `run_all`."""
        return 1

    def alone(self) -> Local:
        """A worker's."""
        return Local(1)

    def run(self, slabs: Iterable[Slab], job: Job) -> Iterator[Done]:
        """See `crbc_cli.engine.execute.Executor`."""
        import ray

        there = ray.put((job, os.getcwd()))
        task = _task(_piece, "crbc piece")
        yield from self._in_order(task(slab, there) for slab in slabs)

    def run_all(self, units: Sequence[Unit], stream: Stream) -> Generator[Told]:
        """As `Stream.run_all`. A single unit is cut into pieces."""
        if len(units) == 1:
            yield replace(stream, executor=self).tried(units[0])
            return
        import ray

        budget = replace(stream.budget, threads=1)
        one = replace(stream, executor=self.alone(), budget=budget, progress=None)
        there = ray.put((one, os.getcwd()))

        def tasks() -> Iterator["ObjectRef[Any]"]:
            for unit in units:
                self.begun.extend(plan.target for plan in unit.plans)
                yield _task(_unit, f"crbc {unit.plans[0].target.name}")(unit, there)

        for unit, (found, notes, clock) in zip(units, self._in_order(tasks()), strict=True):
            stream.clock.add(clock)
            yield unit, found, notes

    def _in_order(self, tasks: Iterable["ObjectRef[Any]"]) -> Iterator[Any]:
        """Results of tasks, of which two per processor are under way; ends what is left over.

        Raises:
          CrbcError: a task's, or EngineError where the cluster lost it.
        """
        import ray

        waiting: deque[ObjectRef[Any]] = deque()
        try:
            for task in tasks:
                waiting.append(task)
                if len(waiting) >= 2 * self.cpus:
                    yield _result(waiting.popleft())
            while waiting:
                yield _result(waiting.popleft())
        finally:
            left = [*waiting]
            for task in left:
                ray.cancel(task)
            if left:
                ray.wait(left, num_returns=len(left), timeout=_ENDING_SECONDS)


def _piece(slab: Slab, there: tuple[Job, str]) -> Done | CrbcError:
    job, folder = there
    try:
        with _inside(folder):
            return work(slab, job)
    except CrbcError as error:
        return error


def _unit(
    unit: Unit, there: tuple[Stream, str]
) -> tuple[Totals | CrbcError, Notes, Clock] | CrbcError:
    stream, folder = there
    stream = replace(stream, clock=Clock(), stopped=threading.Event())
    try:
        with _inside(folder):
            _, found, notes = stream.tried(unit)
    except EngineError as error:
        return error
    return found, notes, stream.clock


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    """Paths mean what they mean where the run was started."""
    try:
        os.stat(folder)
    except OSError as error:
        raise EngineError(
            "is not there on a machine of the cluster",
            folder,
            "run in a folder that all of them share",
        ) from error
    with chdir(folder):
        yield


def _task(function: Callable[..., Any], name: str) -> Callable[..., "ObjectRef[Any]"]:
    import ray

    made = ray.remote(function).options(name=name, num_cpus=1, max_retries=_RETRIES)
    submit: Callable[..., ObjectRef[Any]] = made.remote
    return submit


def _result(task: "ObjectRef[Any]") -> Any:
    import ray
    from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

    try:
        found = ray.get(task)
    except RayTaskError as error:
        raise error.cause from None
    except OutOfMemoryError as error:
        raise EngineError(
            f"a worker ran out of memory {_RETRIES + 1} times",
            todo="give it less at once with --memory, or its machine fewer workers",
        ) from error
    except RayError as error:
        raise EngineError(
            f"the Ray cluster lost the work ({type(error).__name__})",
            todo="look into the cluster's logs, then run again with --resume",
        ) from error
    if isinstance(found, CrbcError):
        raise found
    return found
