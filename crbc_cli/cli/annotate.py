"""`crbc annotate`."""

import os
from typing import Annotated

import typer

from crbc_cli.cli.aliases import ForceOption, ToOption, outputs
from crbc_cli.cli.options import Run, complete_methods, completing, log_command
from crbc_cli.trainers.targets import TARGETS, TENSORS

_EPILOG = (
    "Example: crbc annotate logs.parquet --depth 3 -o credit.parquet; "
    "crbc annotate - -o - --to arrow < logs.jsonl"
)


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @log_command(app, "annotate", uncertainty=True, epilog=_EPILOG)
    def annotate(
        run: Run,
        output: Annotated[str | None, outputs("NAME.credit.parquet")] = None,
        to: ToOption = None,
        method: Annotated[
            str,
            typer.Option(
                "--method",
                "--methods",
                autocompletion=complete_methods,
                envvar="CRBC_METHOD",
                show_envvar=False,
                metavar="[LABEL=]NAME[:KEY=VALUE…][,…]",
                help="Estimators; see crbc methods.",
            ),
        ] = "crbc",
        columns: Annotated[
            str,
            typer.Option(
                autocompletion=completing(("credit", "all")),
                metavar="credit|all",
                help="Credit columns alone, or after the log's own columns.",
            ),
        ] = "credit",
        prefix: Annotated[
            str,
            typer.Option(
                show_default=False,
                metavar="TEXT",
                help="Put before the names of credit columns.",
            ),
        ] = "",
        anchor_id: Annotated[
            bool,
            typer.Option(
                "--anchor-id",
                help="Add each anchor's 128-bit content digest.",
            ),
        ] = False,
        emit: Annotated[
            str,
            typer.Option(
                show_default=False,
                autocompletion=completing((*TARGETS, *TENSORS)),
                metavar="TRAINER|safetensors|pt",
                help="Key the output as a trainer names its rows; see crbc adapter.",
            ),
        ] = "",
        emit_column: Annotated[
            str,
            typer.Option(
                show_default="advantage",
                metavar="COLUMN",
                help="The number that --emit writes, in float32.",
            ),
        ] = "",
        force: ForceOption = False,
        dry_run: Annotated[
            bool,
            typer.Option(
                "--dry-run",
                help="Say what would be read, grouped and written; write nothing.",
            ),
        ] = False,
        resume: Annotated[
            bool,
            typer.Option(
                "--resume",
                help="Leave outputs alone that were made from the same inputs in the same way.",
            ),
        ] = False,
        keep_going: Annotated[
            bool,
            typer.Option(
                "--keep-going",
                help="Go on with other outputs when one fails; exit 1 if some were made.",
            ),
        ] = False,
        memory: Annotated[
            str,
            typer.Option(
                show_default="a quarter of what is free, 800 MB at most",
                metavar="SIZE",
                help="Memory to aim at, for example 1GB; a group is held whole.",
            ),
        ] = "",
        threads: Annotated[
            int,
            typer.Option(show_default="one per core", metavar="N", min=0, help="Threads to use."),
        ] = 0,
        engine: Annotated[
            str,
            typer.Option(
                autocompletion=completing(("local", "ray")),
                metavar="local|ray",
                help="Where the work is done: here, or on a Ray cluster (extra crbc-cli[ray]).",
            ),
        ] = "local",
        ray_address: Annotated[
            str,
            typer.Option(
                show_default="a cluster of this machine, for this run",
                metavar="ADDRESS",
                help="Cluster of --engine ray; auto for the one this machine belongs to.",
            ),
        ] = "",
        chunk_rows: Annotated[
            int,
            typer.Option(
                metavar="N",
                min=1,
                help="Rows held at a time at most; no number depends on it.",
            ),
        ] = 65_536,
    ) -> None:
        """Write per-step credit columns for logs."""
        from crbc_cli.cli.console import finish, passing, tell
        from crbc_cli.engine.clock import Clock
        from crbc_cli.notes import counted

        if threads:  # polars looks once, when it is imported
            os.environ["POLARS_MAX_THREADS"] = str(threads)
        clock = Clock()
        with clock("import"):
            from crbc_cli.api import annotate as work

        with passing(run.quiet) as progress:
            done = work(
                run.logs,
                output,
                to=to,
                columns=columns,
                method=method,
                prefix=prefix,
                anchor_id=anchor_id,
                emit=emit,
                emit_column=emit_column,
                force=force,
                dry_run=dry_run,
                resume=resume,
                keep_going=keep_going,
                memory=memory,
                threads=threads,
                engine=engine,
                ray_address=ray_address,
                progress=progress,
                chunk_rows=chunk_rows,
                settings=run.settings,
                clock=clock,
            )
        if not run.quiet:
            sizes = (done.rows, "row"), (done.rollouts, "rollout"), (done.groups, "group")
            tell(f"{', '.join(counted(*size) for size in sizes)} -> {done.told}")
            if dry_run:
                for line in done.describe():
                    tell(line)
        for name, reason in done.failed.items():
            tell(f"failed: {name}: {reason}")
        finish(run, done.notes, clock)
        if done.failed:
            raise SystemExit(1 if done.outputs or done.skipped else 2)
