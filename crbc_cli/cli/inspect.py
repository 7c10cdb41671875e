"""`crbc inspect`."""

from typing import Annotated

import typer

from crbc_cli.cli.aliases import JsonOption
from crbc_cli.cli.convert import LEAVE_OUT
from crbc_cli.cli.options import Run, log_command

_EPILOG = "Example: crbc inspect rollouts.jsonl; crbc inspect --formats"


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "inspect", leave_out=LEAVE_OUT, epilog=_EPILOG)
    def inspect_log(
        run: Run,
        rows: Annotated[
            int,
            typer.Option(
                metavar="N",
                min=0,
                max=100,
                help="First rows to show.",
            ),
        ] = 2,
        formats: Annotated[
            bool,
            typer.Option(
                "--formats",
                help="List the known formats and what --from calls them.",
            ),
        ] = False,
        json: JsonOption = False,
    ) -> None:
        """Tell what a log is: its format, columns, groups, sizes and first rows."""
        from crbc_cli.cli.console import finish, print_json, show
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes
        from crbc_cli.report.inspect import formats_table, inspect_parts

        if formats:
            from crbc_cli.logs.formats.registry import FORMATS

            show(formats_table(FORMATS))
            return
        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import inspect_logs as work
        report = work(run.logs, rows=rows, settings=run.settings, clock=clock, notes=notes)
        if json:
            print_json(report.to_dict() | {"options": run.settings.echo()})
        else:
            for one in report.inputs:
                show(*inspect_parts(one))
        finish(run, notes, clock)
