"""`crbc compare`."""

import re
from pathlib import Path
from typing import Annotated

import typer

from crbc_cli.cli.aliases import CsvOption, ForceOption, JsonOption
from crbc_cli.cli.figure import FigureOption, draw_figures, figure_targets
from crbc_cli.cli.options import Run, complete_methods, log_command
from crbc_cli.errors import OptionError

_EPILOG = (
    "Example: crbc compare logs.parquet --truth true_advantage --sweep depth=0,1,2,3,inf; "
    "crbc compare logs.jsonl --audit advantage --like trl"
)
_SWEPT = re.compile(r"[\w.-]+=.+")


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "compare", epilog=_EPILOG)
    def compare(
        run: Run,
        methods: Annotated[
            str,
            typer.Option(
                "--methods",
                "--method",
                autocompletion=complete_methods,
                show_default="grpo,gigpo,graphgpo,g2po,gated-bepo,crbc",
                metavar="[LABEL=]NAME[:KEY=VALUE…][,…]",
                help="Estimators; see crbc methods.",
            ),
        ] = "",
        score: Annotated[
            str | None,
            typer.Option(
                show_default="step_credit, advantage of trajectory methods and audits",
                metavar="credit|step_credit|advantage",
                help="The number that is compared.",
            ),
        ] = None,
        truth: Annotated[
            str | None,
            typer.Option(
                metavar="COL",
                help="Column of the true advantage: measure fidelity to it.",
            ),
        ] = None,
        state: Annotated[
            str | None,
            typer.Option(
                show_default="true_state, else the anchor",
                metavar="COL",
                help="Column of the true state, for cells (state, action).",
            ),
        ] = None,
        task: Annotated[
            str | None,
            typer.Option(
                show_default="task_id, else the group",
                metavar="COL",
                help="Column of the task: intervals are clustered by it, cuts stay inside it.",
            ),
        ] = None,
        sweep: Annotated[
            list[str] | None,
            typer.Option(
                metavar="KEY=V,V …",
                help="Values of a run option (depth=0,1,inf) or of a method's (gigpo.gamma=.9,1); "
                "more KEY=V,V may follow.",
            ),
        ] = None,
        group_size: Annotated[
            str,
            typer.Option(
                show_default="groups as logged",
                metavar="N[,N]",
                help="Cut the rollouts of each task into groups of N.",
            ),
        ] = "",
        cuts: Annotated[
            int,
            typer.Option(
                metavar="N",
                help="Random cuts to average over; 0 cuts once, in the order of the log.",
            ),
        ] = 0,
        seed: Annotated[int, typer.Option(help="Of the random cuts.")] = 0,
        against: Annotated[
            str | None,
            typer.Option(
                show_default="greatest cosine, else the last",
                metavar="ROW",
                help="Row that the others are set against.",
            ),
        ] = None,
        disagreements: Annotated[
            int,
            typer.Option(
                metavar="N",
                help="Steps to list per pair of methods.",
            ),
        ] = 3,
        audit: Annotated[
            str | None,
            typer.Option(
                metavar="COL",
                help="Recompute this logged advantage instead; exit 1 beyond --tolerance.",
            ),
        ] = None,
        tolerance: Annotated[
            float,
            typer.Option(
                metavar="X",
                help="Largest difference that passes an audit.",
            ),
        ] = 5e-5,
        runs: Annotated[
            bool,
            typer.Option(
                "--runs",
                help="Each log or folder is a training run: set runs side by side, not estimators.",
            ),
        ] = False,
        json: JsonOption = False,
        csv: CsvOption = False,
        figure: FigureOption = None,
        force: ForceOption = False,
    ) -> None:
        """Set estimators side by side, against a known truth or a logged advantage; or runs."""
        from crbc_cli.cli.console import finish, print_csv, print_json, show
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes

        if audit is not None:
            if truth is not None or sweep or group_size or figure:
                raise OptionError("--audit takes no --truth, --sweep, --group-size or --figure")
            _audit(run, audit, methods, score or "advantage", tolerance, json=json, csv=csv)
            return
        if runs:
            if methods or truth is not None or sweep or group_size or figure:
                raise OptionError(
                    "--runs takes no --methods, --truth, --sweep, --group-size or --figure"
                )
            _runs(run, json=json, csv=csv)
            return
        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import COMPARED
            from crbc_cli.api import compare as work
        targets = figure_targets(figure, force)
        logs, swept = _split(run.logs, sweep or [])
        report = work(
            logs,
            methods or COMPARED,
            sweep=swept,
            score=score,
            settings=run.settings,
            clock=clock,
            notes=notes,
            truth=truth,
            state=state,
            task=task,
            group_sizes=_sizes(group_size),
            cuts=cuts,
            seed=seed,
            disagreements=disagreements,
        )
        if json:
            print_json(report.to_dict())
        elif csv:
            print_csv(report.rows_of_results())
        else:
            from crbc_cli.report.compare import compare_report

            show(*compare_report(report, against))
        if targets:
            from crbc_cli.report.figures.compare import compare_figure

            draw_figures(targets, compare_figure(report), quiet=run.quiet)
        finish(run, notes, clock)


def _runs(run: Run, *, json: bool, csv: bool) -> None:
    """Runs side by side."""
    from crbc_cli.cli.console import finish, print_csv, print_json, show
    from crbc_cli.engine.clock import Clock
    from crbc_cli.notes import Notes

    notes, clock = Notes(), Clock()
    with clock("import"):
        from crbc_cli.api import compare_runs as work
    report = work(run.logs, settings=run.settings, clock=clock, notes=notes)
    if json:
        print_json(report.to_dict())
    elif csv:
        print_csv(report.rows_of_results())
    else:
        from crbc_cli.report.compare import runs_report

        show(*runs_report(report))
    finish(run, notes, clock)


def _audit(
    run: Run, column: str, methods: str, score: str, tolerance: float, *, json: bool, csv: bool
) -> None:
    """Recomputes a logged column and ends with 1 beyond the tolerance."""
    from crbc_cli.cli.console import finish, print_csv, print_json, show
    from crbc_cli.engine.clock import Clock
    from crbc_cli.notes import Notes

    notes, clock = Notes(), Clock()
    with clock("import"):
        from crbc_cli.api import audit as work
    done = work(
        run.logs,
        column,
        method=methods,
        score=score,
        tolerance=tolerance,
        settings=run.settings,
        clock=clock,
        notes=notes,
    )
    if json:
        print_json(done.to_dict())
    elif csv:
        print_csv([done.row()])
    else:
        from crbc_cli.report.compare import audit_lines

        show(*audit_lines(done))
    finish(run, notes, clock)
    if not done.passed:
        raise SystemExit(1)


def _split(words: list[str], sweep: list[str]) -> tuple[list[str], list[str]]:
    """Logs, and the sweep with what follows it as words of its own: `--sweep a=1,2 b=3,4 LOG`."""
    if not sweep:
        return words, sweep
    swept = [w for w in words if _SWEPT.fullmatch(w) and not Path(w).exists()]
    return [w for w in words if w not in swept], [*sweep, *swept]


def _sizes(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them.

    Raises:
      OptionError: not a whole number.
    """
    try:
        return tuple(dict.fromkeys(int(part) for part in filter(None, text.split(","))))
    except ValueError as error:
        raise OptionError(
            f"--group-size {text!r} is no number of rollouts", todo="for example --group-size 4,8"
        ) from error
