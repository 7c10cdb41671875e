"""How sure a run's numbers are, as columns of the credit table."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crbc_cli.engine.clock import Clock
from crbc_cli.engine.prepare import Chunk, Prepared
from crbc_cli.errors import OptionError
from crbc_cli.methods.registry import Chosen
from crbc_cli.methods.uncertainty import uncertainty
from crbc_cli.process.closure import Values
from crbc_cli.tables import UNCERTAINTY_COLUMNS

__all__ = ["UncertaintyColumns"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class UncertaintyColumns:
    """Columns under construction; none where the run does not ask for them.

    Attributes:
      columns: by name, float64 (n,) in canonical row order, NaN is null.

    Raises:
      OptionError: uncertainty of anything but `crbc` alone.
    """

    def __init__(self, prepared: Prepared, methods: Sequence[Chosen]) -> None:
        self._settings = prepared.settings
        self._credit = methods[0].options
        self.columns: dict[str, Floats] = {}
        if self._settings.uncertainty.uncertainty:
            if [chosen.method.name for chosen in methods] != ["crbc"]:
                raise OptionError(
                    "--uncertainty is that of crbc's values", todo="use it with --method crbc alone"
                )
            rows = len(prepared.rollouts.row)
            self.columns = {c.name: np.full(rows, np.nan) for c in UNCERTAINTY_COLUMNS}

    def fill(self, chunk: Chunk, state_value: Floats, action_value: Floats, clock: Clock) -> None:
        """Computes those of a chunk's visits; the stage "uncertainty" is added to the clock.

        Args:
          chunk: the chunk.
          state_value, action_value: float64 (n,), V and Q, known at the chunk's visits.
          clock: of the run.
        """
        if not self.columns:
            return
        with clock("uncertainty"):
            censored = self._settings.outcome.truncated == "censor"
            options, process = self._settings.uncertainty, chunk.process
            values = Values(np.empty(process.states), np.empty(process.pairs))
            values.state[process.state] = state_value[chunk.position]
            values.pair[process.pair] = action_value[chunk.position]
            found = uncertainty(process, values, self._credit, options, censored=censored)
            for name, column in self.columns.items():
                column[chunk.position] = getattr(found, name)

    def hide(self, thought: Bools, singleton: Bools) -> None:
        """Takes away what belongs to numbers that the run's options set to 0 or null.

        Args:
          thought, singleton: bool (n,), rows that are thoughts, or in groups of one rollout.
        """
        zeroed = thought & (self._settings.anchor.thoughts == "zero")
        dropped = singleton & (self._settings.group_advantage.singleton == "drop")
        for name, column in self.columns.items():
            column[dropped | (zeroed & name.startswith(("credit", "sign")))] = np.nan
