"""`crbc profile`."""

from typing import Annotated

import typer

from crbc_cli.cli.aliases import ForceOption, JsonOption
from crbc_cli.cli.figure import FigureOption, draw_figures, figure_targets
from crbc_cli.cli.options import Run, log_command

_EPILOG = "Example: crbc profile logs.parquet --json"


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "profile", epilog=_EPILOG)
    def profile(
        run: Run,
        timings: Annotated[
            str | None,
            typer.Option(
                metavar="FILE",
                help="Metrics file with timing_s/… per training update, if not in the log.",
            ),
        ] = None,
        json: JsonOption = False,
        figure: FigureOption = None,
        force: ForceOption = False,
    ) -> None:
        """Time each stage of annotate, beside the training run's own timings."""
        from crbc_cli.cli.console import finish, print_json, show
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes

        clock, notes = Clock(), Notes()
        with clock("import"):
            from crbc_cli.api import profile as work
        targets = figure_targets(figure, force)
        report = work(run.logs, timings=timings, settings=run.settings, clock=clock, notes=notes)
        if json:
            print_json(report.to_dict() | {"options": run.settings.echo()})
        else:
            from crbc_cli.report.text import stage_table, update_table

            show(stage_table(clock), *update_table(report))
        if targets:
            from crbc_cli.report.figures.runtime import runtime_figure

            draw_figures(targets, runtime_figure(report), quiet=run.quiet)
        finish(run, notes, clock)
