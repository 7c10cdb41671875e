"""The README's tables of both studies, from the results kept in this folder.

    python tests/learning/tables.py

`tests/readme_tables.py` puts them into the README.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import fidelity_tables
import training_tables
from kept import read

TRAINING = ("training", "training-rate-0.002", "training-rate-0.001")
"""Results of the study, and of the same with smaller learning rates."""


def rates() -> str:
    """Final success and area under several learning rates, with the size of each study."""
    studies = [read(name) for name in TRAINING]
    sizes = [
        f"{training_tables.rate_of(done):g}: {len({run['seed'] for run in done['runs']})} seeds,"
        f" {training_tables.minutes_of(done):.0f} minutes"
        for done in studies
    ]
    return f"{training_tables.success_by_rate(studies)}\n{'; '.join(sizes)}.\n"


def weights() -> str:
    """Final success and area where only the weight of the step term differs."""
    methods = ("grpo", "gigpo", "gigpo w_s=5", "crbc K=inf", "crbc w_s=1")
    done = training_tables.merged(read("training"), read("training-weights"), methods=methods)
    return training_tables.success(done)


def with_facts(
    table: Callable[[Mapping[str, Any]], str], facts: Callable[[Mapping[str, Any]], str], name: str
) -> str:
    """A table and the sentence about its study."""
    done = read(name)
    return f"{table(done)}\n{facts(done)}"


PARTS: dict[str, Callable[[], str]] = {
    "training": partial(with_facts, training_tables.success, training_tables.facts, "training"),
    "training-rates": rates,
    "training-weights": weights,
    "training-seconds": lambda: training_tables.seconds(read("training")),
    "fidelity": partial(with_facts, fidelity_tables.cosines, fidelity_tables.facts, "fidelity"),
    "fidelity-differences": lambda: fidelity_tables.differences(read("fidelity")),
}
"""Generated parts of the README, by the name of their mark."""


def main() -> None:
    """Prints all tables."""
    for name, text in PARTS.items():
        print(f"{name}\n\n{text()}")


if __name__ == "__main__":
    main()
