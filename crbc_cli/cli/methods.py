"""`crbc methods`."""

from typing import Annotated

import typer

from crbc_cli.cli.aliases import JsonOption
from crbc_cli.cli.options import complete_methods


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @app.command(epilog="Example: crbc methods gigpo")
    def methods(
        name: Annotated[
            str | None,
            typer.Argument(
                metavar="NAME",
                help="One method, with its options.",
                autocompletion=complete_methods,
            ),
        ] = None,
        json: JsonOption = False,
    ) -> None:
        """List the estimators, or one with its options, defaults and source."""
        from crbc_cli.cli.console import print_json, show
        from crbc_cli.errors import OptionError
        from crbc_cli.methods.registry import METHODS, describe
        from crbc_cli.report.methods import method_page, method_table
        from crbc_cli.tables import REPORT_SCHEMA_VERSION

        described = describe()
        if name is not None:
            described = [m for m in described if m["name"] == name.replace("_", "-")]
            if not described:
                raise OptionError(
                    f"method {name!r} is not known", todo=f"use one of {', '.join(METHODS)}"
                )
        if json:
            print_json(
                {
                    "schema_version": REPORT_SCHEMA_VERSION,
                    "report": "methods",
                    "methods": described,
                }
            )
        elif name is None:
            show(method_table(described))
        else:
            show(*method_page(described[0]))
