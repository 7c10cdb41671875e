"""`crbc steps`."""

from typing import Annotated

import typer

from crbc_cli.cli.aliases import CsvOption, ForceOption, JsonOption
from crbc_cli.cli.figure import FigureOption, draw_figures, figure_targets
from crbc_cli.cli.options import Run, complete_methods, log_command

_EPILOG = "Example: crbc steps logs.parquet --figure steps.svg"


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "steps", epilog=_EPILOG)
    def steps(
        run: Run,
        method: Annotated[
            str,
            typer.Option(
                "--method",
                "--methods",
                autocompletion=complete_methods,
                envvar="CRBC_METHOD",
                show_envvar=False,
                metavar="NAME[:KEY=VALUE…]",
                help="Estimator; see crbc methods.",
            ),
        ] = "crbc",
        json: JsonOption = False,
        csv: CsvOption = False,
        figure: FigureOption = None,
        force: ForceOption = False,
    ) -> None:
        """Show where in rollouts credit falls: by position, in successes and in failures."""
        from crbc_cli.cli.console import finish, print_csv, print_json, show
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes

        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import steps as work
        targets = figure_targets(figure, force)
        report = work(run.logs, method=method, settings=run.settings, clock=clock, notes=notes)
        if json:
            print_json(report.to_dict() | {"options": run.settings.echo()})
        elif csv:
            print_csv(report.rows())
        else:
            from crbc_cli.report.positions import positions_table

            show(positions_table(report))
        if targets:
            from crbc_cli.report.figures.steps import steps_figure

            draw_figures(targets, steps_figure(report), quiet=run.quiet)
        finish(run, notes, clock)
