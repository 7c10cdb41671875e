"""Kills `crbc annotate` at random moments and lets `--resume` go on.

    python tests/benchmarks/kills.py [--kills 200] [--files 12] [--groups 40]

Every killed run is followed by another one with --resume, killed again, until enough kills were
made; then a last run finishes. Checked after each kill: whatever stands under a final name is byte
for byte what an undisturbed run writes. Checked at the end: all outputs are, and nothing else is
left.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import synthetic


def command(logs: Path, output: Path, *options: str) -> list[str]:
    """`crbc annotate` of a folder into a folder."""
    return [
        *(sys.executable, "-m", "crbc_cli", "annotate", str(logs), "-o", f"{output}/"),
        *("--chunk-rows", "2000", *options),
    ]


def contents(folder: Path) -> dict[str, bytes]:
    """Name -> bytes of every file that has a final name."""
    if not folder.is_dir():
        return {}
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return {path.name: path.read_bytes() for path in files}


def torture(logs: Path, work: Path, kills: int, seed: int = 0) -> dict[str, int]:
    """Makes `kills` kills in runs over `logs`.

    Returns:
      How many runs were killed, how many of them before their first output, and how many ended by
      themselves.
    Raises:
      AssertionError: an output is not what an undisturbed run writes, or something is left.
    """
    choose = random.Random(seed)
    expected_folder, folder, scratch = work / "expected", work / "out", work / "tmp"
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch)}
    begin = time.monotonic()
    subprocess.run(command(logs, expected_folder), check=True, capture_output=True, env=environment)
    whole = time.monotonic() - begin
    expected = contents(expected_folder)
    assert len(expected) > 1
    counts = {"killed": 0, "before_output": 0, "ended": 0}
    while counts["killed"] < kills:
        before = contents(folder)
        running = subprocess.Popen(
            command(logs, folder, "--resume"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        )
        try:
            _, said = running.communicate(timeout=choose.uniform(0, 1.1 * whole))
            assert running.returncode == 0, said
            counts["ended"] += 1
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.communicate()
            counts["killed"] += 1
        now = contents(folder)
        assert now.items() <= expected.items(), sorted(set(now) - set(expected))
        assert before.items() <= now.items()
        counts["before_output"] += now == before
        if now == expected:  # and again from nothing, or with some of it gone
            for name in choose.sample(sorted(now), choose.randint(1, len(now))):
                (folder / name).unlink()
    subprocess.run(
        command(logs, folder, "--resume"), check=True, capture_output=True, env=environment
    )
    assert contents(folder) == expected
    assert sorted(path.name for path in folder.iterdir()) == sorted(expected)
    assert not [*scratch.iterdir()]
    return counts


def write_logs(folder: Path, files: int, groups: int) -> None:
    """Logs in order and shuffled, Parquet and JSONL, so that every way of reading is killed."""
    folder.mkdir()
    for number in range(files):
        suffix = "jsonl" if number % 4 == 3 else "parquet"
        log = folder / f"{number}.{suffix}"
        synthetic.write(log, groups, rollouts=4, steps=12, seed=number)
        if number % 4 == 1:
            import polars as pl

            pl.read_parquet(log).sample(fraction=1, shuffle=True, seed=1).write_parquet(log)


def main() -> None:
    parser = argparse.ArgumentParser(description="Random kills, each followed by --resume.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--groups", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        write_logs(work / "logs", options.files, options.groups)
        counts = torture(work / "logs", work, options.kills, options.seed)
    print(
        f"{counts['killed']} kills, {counts['ended']} runs that ended before theirs: the outputs "
        "equal those of an undisturbed run, and nothing else is left"
    )


if __name__ == "__main__":
    main()
