"""`crbc check`."""

from dataclasses import fields
from typing import Annotated

import typer

from crbc_cli.cli.aliases import JsonOption
from crbc_cli.cli.options import Run, log_command
from crbc_cli.options import CreditOptions, GroupAdvantageOptions

_EPILOG = (
    "Exit code 0: no problem; 1: problems (with --strict also notes); 2: the log cannot be read. "
    "Example: crbc check logs/*.parquet --expected-group-size 8"
)
_UNUSED = [
    f.name
    for f in (*fields(GroupAdvantageOptions), *fields(CreditOptions))
    if f.name not in ("reward", "success_reward")
]


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "check", leave_out=_UNUSED, epilog=_EPILOG)
    def check(
        run: Run,
        listed: Annotated[
            bool, typer.Option("--list", help="Print every finding there can be, and end.")
        ] = False,
        exit_zero: Annotated[
            bool,
            typer.Option(
                "--exit-zero",
                help="Exit 0 whatever is found.",
            ),
        ] = False,
        json: JsonOption = False,
    ) -> None:
        """Report everything suspicious about logs, counted and located."""
        from crbc_cli import api
        from crbc_cli.cli.console import finish, print_json, show
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes
        from crbc_cli.report.check import check_parts, code_rows, code_table

        if listed:
            print_json({"findings": code_rows()}) if json else show(code_table())
            return
        notes, clock = Notes(), Clock()
        report = api.check(run.logs, settings=run.settings, clock=clock, notes=notes)
        if json:
            print_json(report.to_dict())
        else:
            show(*check_parts(report))
        strict, run.strict = run.strict, False
        finish(run, Notes([n for n in notes.items if n.code not in report.told]), clock)
        if not exit_zero and (report.problems or (strict and report.findings)):
            raise SystemExit(1)
