"""Facts about logs, as the Markdown table of this folder's parent README.

Anchors are whole observations inside one group. Needs pyarrow. From the root of the repository:

    python -m sample_logs.generators.summary sample_logs/*.parquet sample_logs/golden.jsonl
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Hashable
from pathlib import Path

import pyarrow.json
import pyarrow.parquet as pq

COLUMNS = ("group_id", "rollout_id", "observation", "action", "done", "success", "truncated")


def facts(path: Path) -> dict[str, str]:
    """Names and values of the facts about one log."""
    read = pq.read_table if path.suffix == ".parquet" else pyarrow.json.read_json
    rows = read(path).select(COLUMNS).to_pylist()
    outcomes: dict[Hashable, list[bool]] = defaultdict(list)
    anchors = [(row["group_id"], row["observation"]) for row in rows]
    visits = Counter(anchors)
    rollouts: dict[Hashable, set[Hashable]] = defaultdict(set)
    actions: dict[Hashable, set[str]] = defaultdict(set)
    for anchor, row in zip(anchors, rows, strict=True):
        rollouts[anchor].add(row["rollout_id"])
        actions[anchor].add(row["action"])
        if row["done"]:
            outcomes[row["group_id"]].append(row["success"])
    ends = sum(map(len, outcomes.values()))

    def share(count: int, total: int) -> str:
        return f"{100 * count / total:.1f} %"

    return {
        "bytes": f"{path.stat().st_size:,}",
        "groups": str(len(outcomes)),
        "rollouts": str(ends),
        "rows": f"{len(rows):,}",
        "successes": share(sum(map(sum, outcomes.values())), ends),
        "cut rollouts": str(sum(row["truncated"] for row in rows)),
        "mixed groups": str(sum(len(set(group)) == 2 for group in outcomes.values())),
        "anchors": f"{len(visits):,}",
        "anchors visited twice or more": share(sum(n > 1 for n in visits.values()), len(visits)),
        "visits to those": share(sum(visits[anchor] > 1 for anchor in anchors), len(rows)),
        "visits to anchors of several rollouts": share(
            sum(len(rollouts[anchor]) > 1 for anchor in anchors), len(rows)
        ),
        "visits to anchors with several actions": share(
            sum(len(actions[anchor]) > 1 for anchor in anchors), len(rows)
        ),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", type=Path, nargs="+")
    paths: list[Path] = parser.parse_args().logs
    columns = [facts(path) for path in paths]
    print("| |", " | ".join(f"`{path.name}`" for path in paths), "|")
    print("|---" * (len(paths) + 1) + "|")
    for name in columns[0]:
        print(f"| {name} |", " | ".join(column[name] for column in columns), "|")


if __name__ == "__main__":
    main()
