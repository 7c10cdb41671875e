"""Temporary files: held under a lock while their program lives, so that leftovers can be told.

A killed program cannot remove what it wrote. Its locks go with it, so whatever can be locked
belongs to nobody.
"""

import atexit
import fcntl
import functools
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

__all__ = [
    "locked",
    "remove_all",
    "remove_unlocked",
    "scratch_folder",
    "sweep_scratch",
    "unfinished",
]

_PREFIX = "crbc-"
_LOCK = "lock"


def locked(file: IO[bytes]) -> None:
    """Marks an open file as in use until it is closed."""
    with suppress(OSError):  # a file system without locks
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_unlocked(path: Path) -> bool:
    """Removes a file that no living program holds; whether it did."""
    with suppress(OSError), path.open("rb") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return True
    return False


_once = threading.Lock()


def scratch_folder() -> Path:
    """This program's folder for temporary files, removed when it ends.

    Raises:
      OSError: there is no room for one.
    """
    with _once:
        return _made_folder()


@functools.cache
def _made_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"{_PREFIX}{secrets.token_hex(8)}"
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # first: a signal may come any time
    folder.mkdir(mode=0o700)
    lock = (folder / _LOCK).open("wb")
    locked(lock)
    atexit.register(lock.close)
    return folder


_unfinished: set[Path] = set()


@contextmanager
def unfinished(path: Path) -> Iterator[IO[bytes]]:
    """A new locked file; gone at the end, unless renamed by then, however the program ends.

    Raises:
      OSError: it cannot be made.
    """
    _unfinished.add(path)
    try:
        with path.open("xb") as file:
            locked(file)
            yield file
    finally:
        path.unlink(missing_ok=True)
        _unfinished.discard(path)


@atexit.register
def _remove_unfinished() -> None:
    for path in [*_unfinished]:
        path.unlink(missing_ok=True)


def remove_all() -> None:
    """Removes every temporary file of this program, which is about to end."""
    _remove_unfinished()
    if _made_folder.cache_info().currsize:
        shutil.rmtree(_made_folder(), ignore_errors=True)


def sweep_scratch() -> None:
    """Removes the folders of killed programs of this user."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            if lock.stat().st_uid == os.getuid() and remove_unlocked(lock):
                shutil.rmtree(lock.parent, ignore_errors=True)
