"""`crbc filter`."""

from dataclasses import fields
from typing import Annotated

import typer

from crbc_cli.cli.aliases import ForceOption, outputs
from crbc_cli.cli.options import Run, completing, log_command
from crbc_cli.options import CreditOptions
from crbc_cli.tables import GROUP_STATUSES, REASONS

_EPILOG = "Example: crbc filter logs.parquet -o useful.parquet --drop all_success,all_fail"
_LEAVE_OUT = ("drop", *(f.name for f in fields(CreditOptions)))


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "filter", leave_out=_LEAVE_OUT, epilog=_EPILOG)
    def filter_log(
        run: Run,
        output: Annotated[
            str | None, outputs("NAME.filtered.SUFFIX", ", in the input's format")
        ] = None,
        drop_rows: Annotated[
            str,
            typer.Option(
                "--drop",
                envvar="CRBC_FILTER_DROP",
                show_envvar=False,
                show_default=False,
                autocompletion=completing((*GROUP_STATUSES, *REASONS)),
                metavar="NAME[,NAME]",
                help="Group statuses and reasons whose rows go.",
            ),
        ] = "",
        keep_rows: Annotated[
            str,
            typer.Option(
                "--keep",
                envvar="CRBC_FILTER_KEEP",
                show_envvar=False,
                show_default=False,
                autocompletion=completing((*GROUP_STATUSES, *REASONS)),
                metavar="NAME[,NAME]",
                help="Group statuses and reasons whose rows alone stay.",
            ),
        ] = "",
        force: ForceOption = False,
    ) -> None:
        """Copy a log without the rows of some groups, for instance those of one outcome."""
        from crbc_cli.cli.console import console, finish, tell
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes, counted

        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import filter_log as work
        done = work(
            run.logs,
            output,
            drop=_names(drop_rows),
            keep=_names(keep_rows),
            force=force,
            settings=run.settings,
            clock=clock,
            notes=notes,
        )
        if not run.quiet:
            from crbc_cli.report.filter import filter_table

            console(to_stderr=True).print(filter_table(done))
            of = counted(done.all_rows, "row")
            tell(f"{done.kept_rows} of {of} kept -> {', '.join(done.outputs)}")
        finish(run, notes, clock)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
