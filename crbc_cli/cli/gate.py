"""`crbc gate`."""

from dataclasses import fields
from typing import Annotated

import typer

from crbc_cli.cli.aliases import CsvOption, ForceOption, JsonOption
from crbc_cli.cli.figure import FigureOption, draw_figures, figure_targets
from crbc_cli.cli.options import Run, completing, log_command, refuse_long
from crbc_cli.errors import OptionError
from crbc_cli.options import CreditOptions, GroupAdvantageOptions

_EPILOG = (
    "Example: crbc gate logs.parquet --at 5..20 --select; "
    "crbc gate logs.parquet --at 10 --threshold 0.05,0.12 --or-terminated 0.9"
)
SIGNAL_NAMES = (
    "distance",
    "unique_action",
    "entropy",
    "unique_prefix",
    "bigram_jaccard",
    "unique_observation",
    "terminated",
)
_LEFT_OUT = (
    *(f.name for f in fields(CreditOptions)),
    *(f.name for f in fields(GroupAdvantageOptions) if f.name != "reward"),
    "boundary",
)


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "gate", leave_out=_LEFT_OUT, epilog=_EPILOG)
    def gate(
        run: Run,
        at: Annotated[
            str,
            typer.Option(
                show_default="10",
                metavar="K[,K]|K..K",
                help="Steps after which the gate looks.",
            ),
        ] = "",
        threshold: Annotated[
            str,
            typer.Option(
                show_default="0.12 for distance",
                metavar="D[,D]",
                help="Cut groups whose signal is below D (terminated: D or more).",
            ),
        ] = "",
        signal: Annotated[
            str,
            typer.Option(
                autocompletion=completing(SIGNAL_NAMES),
                metavar="NAME",
                help=f"{', '.join(SIGNAL_NAMES[:-1])} or {SIGNAL_NAMES[-1]}.",
            ),
        ] = "distance",
        pad: Annotated[
            bool,
            typer.Option(
                "--pad/--no-pad",
                envvar="CRBC_PAD",
                show_envvar=False,
                help="Pad the actions of rollouts that ended before K with an END token.",
            ),
        ] = True,
        or_terminated: Annotated[
            float | None,
            typer.Option(
                metavar="T",
                help="Also cut groups in which this share of rollouts ended before K.",
            ),
        ] = None,
        t_max: Annotated[
            int,
            typer.Option(
                show_default="longest rollout",
                metavar="N",
                help="Step limit of rollouts, for the nominal savings.",
            ),
        ] = 0,
        select: Annotated[
            bool,
            typer.Option(
                "--select",
                help="Choose the threshold by the paper's rule and cross-validate it over groups.",
            ),
        ] = False,
        min_precision: Annotated[
            float,
            typer.Option(
                metavar="X",
                help="Least precision of a chosen threshold.",
            ),
        ] = 0.80,
        folds: Annotated[int, typer.Option(help="Folds of --select.")] = 5,
        seed: Annotated[
            int,
            typer.Option(help="Shuffle of the folds."),
        ] = 0,
        features: Annotated[
            str | None,
            typer.Option(
                metavar="FILE.csv|-",
                help="Read measured groups (as --per-group --csv writes them) instead of logs.",
            ),
        ] = None,
        per_group: Annotated[
            bool, typer.Option("--per-group", help="List the groups; alone in CSV.")
        ] = False,
        json: JsonOption = False,
        csv: CsvOption = False,
        figure: FigureOption = None,
        force: ForceOption = False,
    ) -> None:
        """Find groups that could have stopped early (Selective Rollout), and what that costs."""
        from crbc_cli.cli.console import finish, print_csv, print_json, show
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import Notes

        notes, clock = Notes(), Clock()
        with clock("import"):
            from crbc_cli.api import gate as work
        targets = figure_targets(figure, force)
        report = work(
            run.logs,
            features=features,
            at=_steps(at),
            t_max=t_max,
            settings=run.settings,
            clock=clock,
            notes=notes,
            signal=signal,
            thresholds=_numbers(threshold),
            or_terminated=or_terminated,
            pad=pad,
            select=select,
            min_precision=min_precision,
            folds=folds,
            seed=seed,
            per_group=per_group,
        )
        if json:
            print_json(report.to_dict())
        elif csv:
            print_csv(report.per_group().to_dicts() if per_group else report.rows())
        else:
            from crbc_cli.report.gate import gate_report

            show(*gate_report(report))
        if targets:
            from crbc_cli.report.figures.gate import gate_figure

            draw_figures(targets, gate_figure(report), quiet=run.quiet)
        finish(run, notes, clock)


def _steps(text: str) -> list[int]:
    """`10`, `5,10,20`, `5..20` or a mixture.

    Raises:
      OptionError: not whole numbers, or a range that runs backwards.
    """
    steps: list[int] = []
    for part in filter(None, text.split(",")):
        first, dots, last = part.partition("..")
        try:
            low = int(first)
            high = int(last) if dots else low
        except ValueError:
            low, high = 1, 0
        if low > high:
            raise OptionError(f"--at {text!r} is no step count", todo="for example --at 5..20")
        refuse_long("--at", low, high)
        steps += range(low, high + 1)
    return steps


def _numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them.

    Raises:
      OptionError: not a number.
    """
    try:
        return tuple(float(part) for part in filter(None, text.split(",")))
    except ValueError as error:
        raise OptionError(
            f"--threshold {text!r} is no number", todo="for example --threshold 0.05,0.12"
        ) from error
