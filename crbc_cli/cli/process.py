"""The program as a process: how it starts, and how signals and its end are handled.

Nothing heavy is imported before signals are, so that an interrupt ends it quietly at any time.
"""

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress
from typing import Any

__all__ = ["program", "signals"]

signals: list[int] = []
"""Numbers of the signals that came."""

_PATIENCE = 20.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


def program() -> None:
    """`crbc_cli.cli.main.main` as a process of its own, which ends as soon as the exit handlers are
    through: taking the interpreter apart takes longer than many a run."""
    # What is imported stays: looking through it for garbage takes a tenth of a short run.
    gc.set_threshold(500_000)
    code: Any = 1

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(end)  # the first one runs last
    try:
        for number in _SIGNALS:
            # nohup ignores one
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _leave)
        from crbc_cli.cli.main import main

        main()
    except SystemExit as leave:
        code = leave.code
        raise
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
        sys.exit(code)


def _leave(number: int, frame: object) -> None:
    """Ends the program as an error would, so that no temporary file is left; at once when asked
    again, or when that takes too long: what is raised in the middle of an import can leave its lock
    behind, for which threads wait then."""
    del frame
    if signals:
        _end_now()
    signals.append(number)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: _end_now())
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _end_now() -> None:
    scratch: Any = sys.modules.get("crbc_cli.logs.scratch")  # importing it may be what hangs
    if scratch is not None:
        scratch.remove_all()
    os._exit(128 + signals[0])
