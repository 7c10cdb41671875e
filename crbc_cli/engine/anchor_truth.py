"""Anchors against a column with the true state."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crbc_cli.engine.prepare import Prepared
from crbc_cli.errors import ColumnError, OptionError
from crbc_cli.logs.columns import Field
from crbc_cli.process.agreement import TruthScores, codes, truth_scores

__all__ = ["Truth", "TruthRows"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Truth:
    """Which rows are scored against which true state.

    Attributes:
      state: column that holds it.
      where: SQL condition on columns of the log that rows must meet, "" for none.
      min_rollouts: fewest rollouts of a group that is scored.
    """

    state: str
    where: str = ""
    min_rollouts: int = 1

    def fields(self) -> list[Field]:
        """What must be read.

        Raises:
          OptionError: the condition cannot be parsed.
        """
        state = Field("extra:state", self.state, "label")
        return [state, *(Field(f"where:{name}", name, "scalar") for name in self._columns())]

    def _columns(self) -> list[str]:
        if not self.where:
            return []
        try:
            names = pl.sql_expr(self.where).meta.root_names()
        except (pl.exceptions.PolarsError, pl.exceptions.SQLInterfaceError) as error:
            raise self._refused(error) from error
        return sorted(set(names))

    def _refused(self, error: Exception) -> OptionError:
        reason = str(error).strip().splitlines()[0]
        return OptionError(
            f"--where {self.where!r} cannot be evaluated ({reason})",
            todo="for example --where \"kind = 'action'\"",
        )

    def rows(self, log: Prepared) -> "TruthRows":
        """The visits that are scored.

        Raises:
          ColumnError: the log has no such column; OptionError: the condition does not work.
        """
        extra, r = log.loaded.extra, log.rollouts
        for field in self.fields():
            if field.name not in extra.columns:
                flag = "--state" if field.name == "extra:state" else "--where"
                raise ColumnError(
                    f"has no column {field.column}",
                    log.loaded.sources[0].name,
                    f"name another with {flag}",
                )
        truth = extra["extra:state"]
        taken = log.is_visit & truth.is_not_null().to_numpy()[r.row]
        taken &= (np.bincount(r.group, minlength=r.groups) >= self.min_rollouts)[r.row_group()]
        if self.where:
            taken &= self._meets(extra)[r.row]
        at = np.flatnonzero(taken)
        return TruthRows(
            r.row_group()[at],
            log.anchor_key[at],
            r.rollout[at],
            truth.gather(r.row[at]).cast(pl.String).hash().to_numpy(),
        )

    def _meets(self, extra: pl.DataFrame) -> Bools:
        columns = extra.select(pl.col(f"where:{name}").alias(name) for name in self._columns())
        try:
            met = columns.with_columns(pl.sql_expr(self.where).alias(":met"))[":met"]
        except (pl.exceptions.PolarsError, pl.exceptions.SQLInterfaceError) as error:
            raise self._refused(error) from error
        if met.dtype != pl.Boolean:
            raise self._refused(ValueError(f"it gives {met.dtype}, not true or false"))
        flags: Bools = met.fill_null(False).to_numpy()
        return flags


@dataclass(frozen=True)
class TruthRows:
    """Visits with their true state, (n,) each; groups and rollouts count from 0 in each log."""

    group: Ints
    anchor: NDArray[np.uint64]
    rollout: Ints
    truth: NDArray[np.uint64]

    @staticmethod
    def scores(parts: "Sequence[TruthRows]") -> TruthScores:
        """Scores of all logs together."""
        log = np.repeat(np.arange(len(parts)), [len(part.group) for part in parts])
        group, rollout, anchor, truth = (
            np.concatenate([getattr(part, name).view(np.int64) for part in parts])
            for name in ("group", "rollout", "anchor", "truth")
        )
        group = codes(log, group)
        return truth_scores(group, codes(group, anchor), codes(log, rollout), codes(truth))
