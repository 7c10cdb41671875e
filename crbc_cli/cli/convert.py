"""`crbc convert`."""

import os
from dataclasses import fields
from typing import Annotated

import typer

from crbc_cli.cli.aliases import ForceOption, ToOption, outputs
from crbc_cli.cli.options import Run, log_command
from crbc_cli.options import option_groups

_EPILOG = "Example: crbc convert episodes/train_step_3_epoch_0 -o steps.parquet"
_TAKEN = ("from_", "map", "group_by", "group_stride", "skip_bad_lines")
LEAVE_OUT = tuple(
    f.name for kind in option_groups().values() for f in fields(kind) if f.name not in _TAKEN
)


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "convert", leave_out=LEAVE_OUT, epilog=_EPILOG)
    def convert(
        run: Run,
        output: Annotated[str | None, outputs("stdout, where it is piped")] = None,
        to: ToOption = None,
        force: ForceOption = False,
    ) -> None:
        """Write the step table of logs, whatever program wrote them."""
        from crbc_cli.cli.console import finish, tell
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes, counted

        # It solves nothing, and threads that wait for linear algebra keep the cores busy.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import convert as work
        done = work(
            run.logs,
            output,
            to=to,
            force=force,
            settings=run.settings,
            clock=clock,
            notes=notes,
        )
        if not run.quiet:
            tell(f"{counted(done.rows, 'row')} -> {', '.join(done.outputs)}")
        finish(run, notes, clock)
