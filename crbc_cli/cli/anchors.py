"""`crbc anchors`."""

from dataclasses import fields
from typing import Annotated

import typer

from crbc_cli.cli.aliases import ForceOption, JsonOption
from crbc_cli.cli.figure import FigureOption, draw_figures, figure_targets
from crbc_cli.cli.options import Run, log_command
from crbc_cli.options import CreditOptions

_EPILOG = (
    "Example: crbc anchors logs.parquet --suggest-rules rules.toml; "
    "crbc anchors logs.parquet --rules rules.toml; crbc anchors --explain-preset alfworld"
)


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "anchors", leave_out=[f.name for f in fields(CreditOptions)], epilog=_EPILOG)
    def anchors(
        run: Run,
        group: Annotated[
            str | None, typer.Option(metavar="ID", help="Look at this group alone.")
        ] = None,
        per_group: Annotated[
            bool, typer.Option("--per-group", help="One line per group instead of per log.")
        ] = False,
        state: Annotated[
            str,
            typer.Option(
                metavar="COL",
                show_default=False,
                help="Column with the true state: score anchors against it.",
            ),
        ] = "",
        where: Annotated[
            str,
            typer.Option(
                metavar="EXPR",
                show_default=False,
                help="SQL condition that scored rows must meet, \"kind = 'action'\" for instance.",
            ),
        ] = "",
        min_rollouts: Annotated[
            int,
            typer.Option(
                metavar="N",
                min=1,
                help="Fewest rollouts of a scored group.",
            ),
        ] = 1,
        compare_rules: Annotated[
            str,
            typer.Option(
                metavar="RULES[,RULES]",
                show_default=False,
                help="Rank rule sets: presets, rule files, auto, or exact (content as logged).",
            ),
        ] = "",
        suggest_rules: Annotated[
            str | None,
            typer.Option(metavar="OUT.toml", help="Write the suggested rules as a rule file."),
        ] = None,
        no_suggestions: Annotated[
            bool, typer.Option("--no-suggestions", help="Do not look for better rules.")
        ] = False,
        explain_preset: Annotated[
            bool,
            typer.Option(
                "--explain-preset",
                help="Print what the presets named in place of logs do, or list them, and end.",
            ),
        ] = False,
        force: ForceOption = False,
        json: JsonOption = False,
        csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row per group.")] = False,
        figure: FigureOption = None,
    ) -> None:
        """Measure the anchors of logs, and suggest rules that make them better."""
        from crbc_cli.cli.console import finish, print_csv, print_json, show, tell
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes

        if explain_preset:
            _explain(run.logs, json)
            return
        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import anchor_report as work
            from crbc_cli.logs.write import Target
            from crbc_cli.report.anchors import Verbatim, anchor_parts

        target = None if suggest_rules is None else Target(suggest_rules, "toml", force)
        if target is not None:
            target.check()
        targets = figure_targets(figure, force)
        report = work(
            run.logs,
            group=group,
            state=state,
            where=where,
            min_rollouts=min_rollouts,
            compare_rules=[name.strip() for name in compare_rules.split(",") if name.strip()],
            suggestions=not no_suggestions,
            settings=run.settings,
            clock=clock,
            notes=notes,
        )
        if json:
            print_json(report.to_dict() | {"options": run.settings.echo()})
        elif csv:
            print_csv(report.rows())
        else:
            for part in anchor_parts(report, per_group):
                print(part) if isinstance(part, Verbatim) else show(part)
        if target is not None:
            if report.suggested is None:
                tell(f"no rule to suggest: {suggest_rules} is not written")
            else:
                with target.open() as stream:
                    stream.write(report.suggested_toml.encode())
                tell(f"{len(report.suggestions)} suggestions -> {suggest_rules}")
        if targets:
            from crbc_cli.report.figures.anchors import anchors_figure

            draw_figures(targets, anchors_figure(report), quiet=run.quiet)
        finish(run, notes, clock)


def _explain(names: list[str], json: bool) -> None:
    """Pages of presets, or the list of them without names."""
    from crbc_cli.cli.console import print_json, show
    from crbc_cli.report.presets import preset_page, preset_rows, preset_table

    if json:
        print_json({"presets": preset_rows(names)})
    elif not names:
        show(preset_table())
    for name in names if not json else ():
        show(*preset_page(name))
