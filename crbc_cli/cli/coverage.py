"""`crbc coverage`."""

from typing import Annotated

import typer

from crbc_cli.cli.aliases import CsvOption, ForceOption, JsonOption
from crbc_cli.cli.figure import FigureOption, draw_figures, figure_targets
from crbc_cli.cli.options import Run, completing, log_command, parse_depths

_EPILOG = "Example: crbc coverage logs.parquet --depth 0..inf --json"


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "coverage", leave_out=("depth",), epilog=_EPILOG)
    def coverage(
        run: Run,
        depth: Annotated[
            str,
            typer.Option(
                envvar="CRBC_COVERAGE_DEPTH",
                show_envvar=False,
                metavar="K|K..K|K..inf",
                help="Closure depths; inf runs until nothing changes.",
            ),
        ] = "0..inf",
        eligible: Annotated[
            str,
            typer.Option(
                autocompletion=completing(("actions", "successors", "all")),
                metavar="actions|successors|all",
                help="Anchors that count: two distinct actions (paper), two successors, all.",
            ),
        ] = "actions",
        unit: Annotated[
            str,
            typer.Option(
                autocompletion=completing(("visits", "anchors")),
                metavar="visits|anchors",
                help="What is counted.",
            ),
        ] = "visits",
        json: JsonOption = False,
        csv: CsvOption = False,
        figure: FigureOption = None,
        force: ForceOption = False,
    ) -> None:
        """Count the rollouts whose evidence reaches each visit, per closure depth."""
        from crbc_cli.cli.console import finish, print_csv, print_json, show
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes

        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import coverage as work
        targets = figure_targets(figure, force)
        report = work(
            run.logs,
            depths=parse_depths(depth),
            eligible=eligible,
            unit=unit,
            settings=run.settings,
            clock=clock,
            notes=notes,
        )
        if json:
            print_json(report.to_dict() | {"options": run.settings.echo()})
        elif csv:
            print_csv(report.rows())
        else:
            from crbc_cli.report.text import coverage_summary, coverage_tables

            show(*coverage_tables(report), coverage_summary(report))
        if targets:
            from crbc_cli.report.figures.coverage import coverage_figure

            draw_figures(targets, coverage_figure(report), quiet=run.quiet)
        finish(run, notes, clock)
