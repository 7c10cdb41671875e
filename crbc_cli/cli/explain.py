"""`crbc explain`."""

from typing import Annotated

import typer

from crbc_cli.cli.aliases import ForceOption, JsonOption
from crbc_cli.cli.options import Run, log_command
from crbc_cli.errors import OptionError

_EPILOG = (
    "Example: crbc explain logs.parquet --group task-7 --step 3:12; "
    "crbc explain logs.parquet --group task-7 -o task-7.html"
)


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "explain", epilog=_EPILOG)
    def explain(
        run: Run,
        group: Annotated[
            str | None,
            typer.Option(
                metavar="ID",
                show_default=False,
                help="Group id; may be left out for a log of one group.",
            ),
        ] = None,
        step: Annotated[
            str | None,
            typer.Option(metavar="ROLLOUT:STEP", help="Explain one step instead of the group."),
        ] = None,
        file: Annotated[
            str | None,
            typer.Option(metavar="NAME", help="Input to look in, where several hold that group."),
        ] = None,
        key_value: Annotated[
            list[str] | None,
            typer.Option(
                metavar="COL=VALUE", help="Value of a --key column, where it tells groups apart."
            ),
        ] = None,
        output: Annotated[
            str | None,
            typer.Option(
                "--output",
                "-o",
                metavar="FILE.html|FILE.svg",
                help="Draw the group: an interactive page, or a picture.",
            ),
        ] = None,
        force: ForceOption = False,
        json: JsonOption = False,
    ) -> None:
        """Show why a group's steps, or one step, got the credit they got."""
        from crbc_cli.cli.console import finish, print_json, show, tell
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes

        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import explain as work
            from crbc_cli.api import group_graph
            from crbc_cli.report.explain import explanation_report, explanation_to_dict
        if output is not None:
            if json:
                raise OptionError("--json and -o are two answers", todo="leave one of them out")
            page = group_graph(
                run.logs,
                output,
                group,
                step=step,
                file=file,
                key_values=key_value or (),
                force=force,
                settings=run.settings,
                clock=clock,
                notes=notes,
            )
            if not run.quiet:
                tell(f"{page.output}: {page.size / 2**10:.0f} KiB")
            finish(run, notes, clock)
            return
        found = work(
            run.logs,
            group,
            step=step,
            file=file,
            key_values=key_value or (),
            settings=run.settings,
            clock=clock,
            notes=notes,
        )
        if json:
            print_json(explanation_to_dict(found))
        else:
            show(*explanation_report(found))
        finish(run, notes, clock)
