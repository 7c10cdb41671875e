"""prime-rl: credit of `crbc annotate --emit prime-rl` as advantages of sampled tokens.

In a subclass of Algorithm that the config selects:

    async def score_group(self, episodes):
        for trace in (trace for episode in episodes for trace in episode.traces):
            self.assign_advantages(trace, token_advantages(self.credit, trace))

with self.credit = load_credit(PATH). The numbers are final. A rollout whose credit is 0 on every
token is filtered afterwards by prime-rl itself.
"""

from typing import Any

import pyarrow.parquet as pq

Credit = dict[tuple[str, int], float | None]


def load_credit(path: str) -> Credit:
    """(trace id, node index) -> credit of that sampled node; None where it has none."""
    rows = pq.read_table(path).to_pylist()
    return {(row["trace_id"], row["node_index"]): row["advantage"] for row in rows}


def token_advantages(credit: Credit, trace: Any) -> list[float | None]:
    """One entry per sampled token, in node order: its node's credit.

    A sampled node that was not logged is a KeyError. Null stays None, which prime-rl leaves out
    of the loss; it is not 0. Tokens that the node's own mask leaves out are no sampled tokens.
    """
    tokens: list[float | None] = []
    values = set()
    for index, node in enumerate(trace.nodes):
        if node.sampled:
            value = credit[trace.id, index]
            values.add(value)
            tokens += [value] * sum(map(bool, node.mask))
    assert set(tokens) == values, f"distinct credits of {trace.id} got lost: a node has no token"
    return tokens
