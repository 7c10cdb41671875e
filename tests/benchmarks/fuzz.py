"""Ten thousand mutated logs through the commands.

    python tests/benchmarks/fuzz.py [--runs N] [--first SEED]

Each run ends in success or in one line with exit code 2, changes no input and leaves no partial
output; a run that takes more than a minute counts as hanging. Prints how the runs ended, and in
which of them a library wrote to stderr past the program (a panic of polars in a damaged file).
"""

import argparse
import os
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from mutations import run_mutation

_SECONDS = 60


def _hangs(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {_SECONDS} s")


@contextmanager
def _stderr_of_the_process(path: Path) -> Iterator[None]:
    """What goes to the descriptor itself, in a file."""
    kept = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def main() -> None:
    """Runs the mutations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=1_000)
    asked = parser.parse_args()
    signal.signal(signal.SIGALRM, _hangs)
    ended: Counter[str] = Counter()
    for seed in range(asked.first, asked.first + asked.runs):
        with tempfile.TemporaryDirectory() as folder:
            signal.alarm(_SECONDS)
            told = Path(folder, "stderr")
            try:
                with _stderr_of_the_process(told):
                    ended[f"exit code {run_mutation(seed, Path(folder))}"] += 1
            except (Exception, SystemExit) as error:
                ended["failed"] += 1
                print(f"seed {seed}: {type(error).__name__}: {error}")
                traceback.print_exc(limit=-2)
            finally:
                signal.alarm(0)
            if told.stat().st_size:
                ended["written past the program"] += 1
                print(f"seed {seed}: {told.read_text('utf-8', 'replace').strip()[:200]}")
    print(dict(sorted(ended.items())))
    sys.exit(1 if ended["failed"] else 0)


if __name__ == "__main__":
    main()
