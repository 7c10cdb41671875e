"""`crbc schema` and `crbc config`."""

from typing import Annotated

import typer

SCHEMAS = ("step", "credit", "report")
"""Published under `schemas/` as `NAME.schema.json`."""


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""

    @app.command(epilog="Example: crbc schema credit > credit.schema.json")
    def schema(
        table: Annotated[
            str, typer.Argument(metavar="step|credit|report", help="Which schema.")
        ] = "credit",
    ) -> None:
        """Print the JSON Schema of the step table, the credit table or the reports."""
        from crbc_cli.cli.console import print_json
        from crbc_cli.errors import OptionError
        from crbc_cli.report.schema import report_schema
        from crbc_cli.tables import json_schema

        if table not in SCHEMAS:
            raise OptionError(
                f"schema {table!r} is not known", todo=f"use one of {', '.join(SCHEMAS)}"
            )
        print_json(report_schema() if table == "report" else json_schema(table))

    @app.command(epilog="Example: crbc config annotate --show-origin")
    def config(
        context: typer.Context,
        command: Annotated[
            str, typer.Argument(metavar="COMMAND", help="Command whose options are shown.")
        ] = "annotate",
        show_origin: Annotated[
            bool, typer.Option("--show-origin", help="Say where each value comes from.")
        ] = False,
    ) -> None:
        """Print the options a command would run with, one per line."""
        from crbc_cli.cli.config import effective_options
        from crbc_cli.errors import OptionError

        root = context.find_root()
        commands = root.command.commands  # type: ignore[attr-defined]
        if command not in commands:
            raise OptionError(f"{command!r} is no command", todo=f"known: {', '.join(commands)}")
        defaults = (root.default_map or {}).get(command, {})
        for name, value, origin in effective_options(commands[command], defaults):
            print(f"{name} = {value}" + (f"\t# {origin}" if show_origin else ""))
