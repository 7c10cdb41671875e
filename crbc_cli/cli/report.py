"""`crbc report`."""

from typing import Annotated

import typer

from crbc_cli.cli.aliases import ForceOption
from crbc_cli.cli.options import Run, complete_methods, log_command

_EPILOG = "Example: crbc report logs.parquet -o report.html; crbc report RUN_DIR/ -o run.html"


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "report", epilog=_EPILOG)
    def report(
        run: Run,
        output: Annotated[
            str,
            typer.Option("--output", "-o", metavar="FILE.html", help="The page, or - for stdout."),
        ],
        methods: Annotated[
            str | None,
            typer.Option(
                "--methods",
                "--method",
                metavar="[LABEL=]NAME[:KEY=VALUE…][,…]",
                autocompletion=complete_methods,
                show_default=False,
                help="Estimators set side by side, as in crbc compare; others against the last.",
            ),
        ] = None,
        detail: Annotated[
            int,
            typer.Option(
                metavar="N", help="Groups with graph and rollouts, the most interesting first."
            ),
        ] = 200,
        force: ForceOption = False,
    ) -> None:
        """Write everything about logs into one HTML page that needs no network."""
        from crbc_cli.cli.console import finish, tell
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes, counted

        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import COMPARED
            from crbc_cli.api import report_page as work
        page = work(
            run.logs,
            output,
            methods=methods or COMPARED,
            detail=detail,
            force=force,
            settings=run.settings,
            clock=clock,
            notes=notes,
        )
        if not run.quiet:
            drawn = "" if page.detailed == page.groups else f", {page.detailed} of them drawn"
            tell(
                f"{page.output}: {counted(page.groups, 'group')}{drawn}, "
                f"{page.size / 2**20:.1f} MiB"
            )
        finish(run, notes, clock)
