"""Draws the figures of the README: `python -m sample_logs.generators.figures`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LOGS = Path(__file__).parent.parent
FIGURES: dict[str, list[str]] = {
    "coverage": ["coverage", "sokoban.parquet"],
    "runtime": ["profile", "sokoban.parquet", "--timings", "timings.jsonl"],
    "sweep": [
        *("compare", "sokoban.parquet", "--truth", "true_advantage", "--methods", "crbc,gigpo"),
        *("--score", "credit", "--sweep", "depth=0,1,2,3,inf", "discount=.9,.98"),
    ],
    "steps": ["steps", "sokoban.parquet"],
}
"""Name -> command; each is written to `sample_logs/figures/NAME.svg`."""


def main() -> None:
    folder = LOGS / "figures"
    folder.mkdir(exist_ok=True)
    for name, arguments in FIGURES.items():
        command = [sys.executable, "-m", "crbc_cli", *arguments, "--force", "--quiet"]
        command += ["--figure", str(folder / f"{name}.svg")]
        subprocess.run(command, cwd=LOGS, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
