"""What the anchor of a row was made from, where rules made it."""

import numpy as np
import polars as pl

from crbc_cli.anchors.carry import Carried
from crbc_cli.anchors.ops import apply_ops, option_ops
from crbc_cli.engine.anchoring import carried_rows
from crbc_cli.engine.explanation import PartFacts
from crbc_cli.engine.prepare import Prepared
from crbc_cli.engine.texts import Text
from crbc_cli.logs.fetch import fetch_text

__all__ = ["AnchorParts"]


class AnchorParts:
    """Parts of the anchors of one group.

    Attributes:
      applies: rules, --normalize or --mask make anchors; without, an anchor is what was logged.
    """

    def __init__(self, log: Prepared) -> None:
        rules = log.loaded.rules
        self._log = log
        self._ops = (*option_ops(log.settings.anchor), *rules.reply)
        silent = rules.no_op or rules.missing or rules.thought
        self.applies = bool(self._ops or silent or rules.key != ("reply",))
        self._carried: Carried | None = None
        if self.applies:
            self._carried = carried_rows(log.loaded.frame, log.rollouts, rules)

    def reply(self, position: int) -> int:
        """Position of the row whose reply stands for this one, before it where it is silent."""
        source = -1 if self._carried is None else int(self._carried.reply[position])
        return source if source >= 0 else position

    def needed(self, position: int) -> list[int]:
        """Positions of the rows whose texts `parts` shows."""
        if self._carried is None:
            return []
        since = [self._since(number, position) for number in range(len(self._carried.parts))]
        rows = [self.reply(position), *since]
        return [p for row in rows for p in (row - 1, row) if p >= self._start(position)]

    def parts(self, position: int, texts: dict[int, Text]) -> tuple[PartFacts, ...]:
        """The parts of a row's anchor, in the order of the rules' key.

        Args:
          position: the row, in canonical order; it has an anchor.
          texts: texts of the rows that `needed` names.
        """
        if self._carried is None:
            return ()
        rules, found, number = self._log.loaded.rules, [], 0
        kinds = {slot.name: slot.kind for slot in rules.slot}
        for name in rules.key:
            if name == "reply":
                found.append(self._reply_part(position, texts))
                continue
            value = int(self._carried.parts[number][position])
            if name in kinds:
                found.append(self._slot_part(name, kinds[name], value, number, position, texts))
            else:
                cell = self._cell(name, position)
                found.append(PartFacts(name, "column", None, None, None, cell))
            number += 1
        return tuple(found)

    def _reply_part(self, position: int, texts: dict[int, Text]) -> PartFacts:
        source = self.reply(position)
        text = pl.Series("text", [texts[source][0]], dtype=pl.String)
        content = text.to_frame().select(apply_ops(pl.col("text"), self._ops)).item()
        return PartFacts("reply", "reply", self._step(source), None, None, content)

    def _slot_part(
        self, name: str, kind: str, value: int, number: int, position: int, texts: dict[int, Text]
    ) -> PartFacts:
        if kind == "count":
            return PartFacts(name, kind, None, value, None, None)
        if not value:
            return PartFacts(name, kind, None, None, None, None)
        since = self._since(number, position)
        before = since - 1 if since > self._start(position) else None
        action = None if before is None else texts[before][1]
        return PartFacts(name, kind, self._step(since), None, action, texts[since][0])

    def _since(self, number: int, position: int) -> int:
        """Row at which a part got the value that it has at `position`."""
        assert self._carried is not None
        start = self._start(position)
        values = self._carried.parts[number][start : position + 1]
        other = np.flatnonzero(values != values[-1])
        return start + (int(other[-1]) + 1 if len(other) else 0)

    def _start(self, position: int) -> int:
        rollouts = self._log.rollouts
        return int(rollouts.offsets[rollouts.rollout[position]])

    def _step(self, position: int) -> int:
        return int(self._log.rollouts.step[position])

    def _cell(self, part: str, position: int) -> str | None:
        log, name = self._log, part.split(":", 1)[1]
        row = int(log.rollouts.row[position])
        source = log.loaded.sources[log.frame["source"][row]]
        at = log.frame["source_row"][row]
        columns = {name: log.settings.log.column_map.get(name, name)}
        skip = log.settings.log.skip_bad_lines
        return fetch_text(source, [at], columns, skip_bad_lines=skip)[at][name]
