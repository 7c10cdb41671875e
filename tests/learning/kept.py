"""Results of the studies: kept as JSON, shown as Markdown."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def write(done: Mapping[str, Any], path: Path) -> None:
    """JSON with one line per row of its lists."""
    parts = []
    for key, value in done.items():
        if isinstance(value, list):
            lines = ",\n".join("  " + json.dumps(row) for row in value)
            parts.append(f" {json.dumps(key)}: [\n{lines}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def read(name: str) -> dict[str, Any]:
    """Results kept in this folder."""
    done: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return done


def versions(crbc: Sequence[str]) -> dict[str, str]:
    """What the numbers depend on."""
    program = subprocess.run([*crbc, "--version"], capture_output=True, text=True, check=True)
    found = {"crbc": program.stdout.split()[-1], "python": platform.python_version()}
    for package in ("torch", "numpy", "scipy", "polars", "pyarrow", "gym-sokoban"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | {"machine": f"{platform.machine()}, {os.cpu_count()} cores"}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def number(value: float) -> str:
    """Three decimals without a leading zero."""
    return f"{value:.3f}".replace("0.", ".", 1)


def signed(mean: float, half: float) -> str:
    """A difference with its sign; bold where the interval leaves out 0."""
    text = ("+" if mean >= 0 else "−") + number(abs(mean))
    return (f"**{text}**" if abs(mean) > half else text) + spread(half)


def spread(half: float) -> str:
    """Half of an interval, or nothing where a single value has none."""
    return "" if math.isnan(half) else f" ±{number(half)}"


def machine(done: Mapping[str, Any]) -> str:
    """Program and machine of a study."""
    return f"crbc {done['versions']['crbc']}, {done['versions']['machine']}"
