"""What `--uncertainty` costs, as a multiple of the plain solve.

    python tests/benchmarks/uncertainty.py [--groups 1000] [--rollouts 8] [--repeat 5]

Makes a synthetic log (see synthetic.py), merges it once, and takes the processor time, interleaved
in one run, of crbc's step credit (the stage "solve" of annotate) and of the uncertainty of its
numbers by jackknife and by bootstrap, in chunks as annotate takes them. Prints medians and ratios.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from crbc_cli import api
from crbc_cli.engine.clock import Clock
from crbc_cli.methods.crbc import crbc
from crbc_cli.methods.uncertainty import uncertainty
from crbc_cli.notes import Notes
from crbc_cli.options import CreditOptions, Settings, UncertaintyOptions
from crbc_cli.process.closure import solve_values

sys.path.insert(0, str(Path(__file__).parent))
import synthetic


def seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of --uncertainty.")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--resamples", type=int, default=0, help="bootstrap, left out if 0")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--depth", type=float, default=math.inf)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.parquet"
        rows = synthetic.write(log, arguments.groups, rollouts=arguments.rollouts)
        [prepared] = api.prepared_logs([str(log)], Settings(), Clock(), Notes())
        processes = [chunk.process for chunk in prepared.chunks(Clock())]
    credit = CreditOptions(depth=arguments.depth)
    ways = {"jackknife": UncertaintyOptions(True)}
    if arguments.resamples:
        ways["bootstrap"] = UncertaintyOptions(True, "bootstrap", resamples=arguments.resamples)
    solved = [(p, solve_values(p, credit.discount, credit.depth)) for p in processes]
    uncertainty(*solved[-1], credit, ways["jackknife"], censored=False)  # imports
    times: dict[str, list[float]] = {name: [] for name in ("solve", *ways)}
    for _ in range(arguments.repeat):
        times["solve"].append(seconds(lambda: [crbc(p, credit) for p in processes]))
        for name, options in ways.items():
            times[name].append(
                seconds(
                    lambda way=options: [  # type: ignore[misc]
                        uncertainty(p, v, credit, way, censored=False) for p, v in solved
                    ]
                )
            )
    medians = {name: statistics.median(values) for name, values in times.items()}
    if arguments.json:
        print(json.dumps({"rows": rows, **medians}))
        return
    print(f"{rows} rows, {arguments.groups} groups; medians of {arguments.repeat} runs")
    for name, value in medians.items():
        print(f"{name:12}{value:9.3f} s{value / medians['solve']:9.1f} x solve")


if __name__ == "__main__":
    main()
