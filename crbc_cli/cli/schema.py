"""`crbc schema` and `crbc config`."""

from typing import Annotated

import typer

from crbc_cli.cli.options import completing, settings_of

SCHEMAS = ("step", "credit", "report", "rules")
"""Published under `schemas/` as `NAME.schema.json`."""


def _complete_commands(context: typer.Context, incomplete: str) -> list[str]:
    commands = context.find_root().command.commands  # type: ignore[attr-defined]
    return [name for name in commands if name.startswith(incomplete)]


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""

    @app.command(epilog="Example: crbc schema credit > credit.schema.json")
    def schema(
        table: Annotated[
            str,
            typer.Argument(
                metavar="step|credit|report|rules",
                help="Which schema.",
                autocompletion=completing(SCHEMAS),
            ),
        ] = "credit",
    ) -> None:
        """Print the JSON Schema of the step table, the credit table, the reports or rule files."""
        from crbc_cli.anchors.rulefile import rules_schema
        from crbc_cli.cli.console import print_json
        from crbc_cli.errors import OptionError
        from crbc_cli.report.schema import report_schema
        from crbc_cli.tables import json_schema

        if table not in SCHEMAS:
            raise OptionError(
                f"schema {table!r} is not known", todo=f"use one of {', '.join(SCHEMAS)}"
            )
        if table == "rules":
            print_json(rules_schema())
        else:
            print_json(report_schema() if table == "report" else json_schema(table))

    @app.command(epilog="Example: crbc config annotate --show-origin")
    def config(
        context: typer.Context,
        command: Annotated[
            str,
            typer.Argument(
                metavar="COMMAND",
                help="Command whose options are shown.",
                autocompletion=_complete_commands,
            ),
        ] = "annotate",
        show_origin: Annotated[
            bool, typer.Option("--show-origin", help="Say where each value comes from.")
        ] = False,
    ) -> None:
        """Print the options a command would run with, as its table for crbc.toml."""
        from crbc_cli.cli.config import as_toml
        from crbc_cli.errors import OptionError

        root = context.find_root()
        commands = root.command.commands  # type: ignore[attr-defined]
        if command not in commands:
            raise OptionError(f"{command!r} is no command", todo=f"known: {', '.join(commands)}")
        parsed = commands[command].make_context(command, [], parent=root)
        settings_of(parsed)
        for line in as_toml(parsed, show_origin=show_origin):
            print(line)
