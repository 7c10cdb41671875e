"""The anchors that look least like states, with what speaks against each."""

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.prepare import Chunk, Prepared
from crbc_cli.engine.suspects import ConflictingAction, Entry, Followed, Suspects, WorstAnchor
from crbc_cli.engine.texts import Text, row_texts
from crbc_cli.process.empirical import SUCCESS, EmpiricalProcess
from crbc_cli.process.quality import START, entries, markov_test, pair_outcomes

__all__ = ["suspects_of"]

_MOST_PER_CHUNK = 20
_MOST_ACTIONS = 2
_MOST_SUCCESSORS = 3
_MOST_ENTRIES = 2

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def suspects_of(log: Prepared, chunk: Chunk) -> Suspects:
    """The most suspicious anchors of a chunk, with the texts that show why.

    Raises:
      InputError: an input cannot be read any more.
    """
    process = chunk.process
    outcomes, test = pair_outcomes(process), markov_test(process)
    conflicting = np.bincount(
        process.pair_state, outcomes.visits * outcomes.conflict, process.states
    ).astype(np.int64)
    p_value = np.full(process.states, np.nan)
    p_value[test.state] = test.p_value
    odd = np.flatnonzero(conflicting)
    # What is significant is only known once all chunks are: the lowest p-values, and the most hit.
    by_p = odd[np.argsort(np.nan_to_num(p_value[odd], nan=2.0), kind="stable")]
    by_size = odd[np.argsort(-conflicting[odd], kind="stable")]
    chosen = [*by_p[:_MOST_PER_CHUNK].tolist(), *by_size[:_MOST_PER_CHUNK].tolist()]
    view = _View(log, chunk, outcomes.telling, conflicting, p_value)
    return Suspects(test.p_value, view.anchors(list(dict.fromkeys(chosen))))


class _View:
    """Some anchors of one chunk, first as ids, then with texts."""

    def __init__(
        self, log: Prepared, chunk: Chunk, telling: Bools, conflicting: Ints, p_value: Floats
    ) -> None:
        self.log, self.position = log, chunk.position
        self.process: EmpiricalProcess = chunk.process
        self.first_group = chunk.first_group
        self.conflicting, self.p_value = conflicting, p_value
        self.entry = entries(self.process)
        self.telling = telling
        _, self.state_visit = np.unique(self.process.state, return_index=True)
        _, self.pair_visit = np.unique(self.process.pair, return_index=True)
        reply = log.loaded.frame["reply_key"]
        self.said = reply.is_not_null().to_numpy()[log.rollouts.row]
        self.texts: dict[int, Text] = {}
        self.wanted: set[int] = set()

    def anchors(self, states: list[int]) -> list[WorstAnchor]:
        for state in states:  # the first pass finds out which texts are needed
            self._anchor(state)
        row = self.log.rollouts.row
        rows = {
            visit: (int(row[self._reply_of(visit)]), int(row[self.position[visit]]))
            for visit in self.wanted
        }
        found = row_texts(self.log, sorted({at for both in rows.values() for at in both}))
        self.texts = {visit: (found[at][0], found[own][1]) for visit, (at, own) in rows.items()}
        return [self._anchor(state) for state in states]

    def _reply_of(self, visit: int) -> int:
        """Canonical row of the reply that stands for a visit: the latest that says something."""
        at = int(self.position[visit])
        begin = int(self.log.rollouts.offsets[self.log.rollouts.rollout[at]])
        said = np.flatnonzero(self.said[begin : at + 1])
        return begin + int(said[-1]) if len(said) else at

    def _text(self, visit: int) -> Text:
        """(reply that stands for the visit, its action)."""
        self.wanted.add(visit)
        return self.texts.get(visit, (None, None))

    def _anchor(self, state: int) -> WorstAnchor:
        process, frame = self.process, self.log.frame
        mine = np.flatnonzero(process.state == state)
        pair, visits = np.unique(process.pair[mine[self.telling[mine]]], return_counts=True)
        several = [
            p
            for p in pair[np.argsort(-visits, kind="stable")].tolist()
            if len(np.unique(process.successor[(process.pair == p) & self.telling])) > 1
        ]
        row = int(self.log.rollouts.row[self.position[mine[0]]])
        p_value = float(self.p_value[state])
        return WorstAnchor(
            self.log.loaded.sources[frame["source"][row]].name,
            str(frame["group_id"][row]),
            self._text(int(self.state_visit[state]))[0],
            len(mine),
            len(np.unique(process.rollout[mine])),
            int(self.conflicting[state]),
            None if np.isnan(p_value) else p_value,
            None,
            tuple(self._action(p) for p in several[:_MOST_ACTIONS]),
        )

    def _action(self, pair: int) -> ConflictingAction:
        process = self.process
        mine = np.flatnonzero((process.pair == pair) & self.telling)
        successor, count = np.unique(process.successor[mine], return_counts=True)
        ways, way = np.unique(self.entry[mine], return_inverse=True)
        cells, inside = np.unique(
            np.stack([way, process.successor[mine]]), axis=1, return_counts=True
        )
        best = np.zeros(len(ways), np.int64)
        np.maximum.at(best, cells[0], inside)
        order = np.argsort(-count, kind="stable")[:_MOST_SUCCESSORS]
        return ConflictingAction(
            self._text(int(self.pair_visit[pair]))[1],
            len(mine),
            len(successor),
            int(best.sum()),
            int(count.max()),
            tuple(self._followed(mine, int(successor[i]), int(count[i])) for i in order),
        )

    def _followed(self, visits: Ints, successor: int, count: int) -> Followed:
        mine = visits[self.process.successor[visits] == successor]
        entry, times = np.unique(self.entry[mine], return_counts=True)
        order = np.argsort(-times, kind="stable")[:_MOST_ENTRIES]
        ways = tuple(self._entry(int(entry[i]), int(times[i])) for i in order)
        if successor >= 0:
            return Followed(self._text(int(self.state_visit[successor]))[0], None, count, ways)
        return Followed(None, "success" if successor == SUCCESS else "failure", count, ways)

    def _entry(self, pair: int, times: int) -> Entry:
        if pair == START:
            return Entry(None, None, times)
        return Entry(*self._text(int(self.pair_visit[pair])), times)
