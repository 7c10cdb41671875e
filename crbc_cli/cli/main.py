"""The `crbc` program: commands, config file, and how errors end it."""

import io
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from crbc_cli.cli.console import visible
from crbc_cli.cli.given import take_as_given
from crbc_cli.cli.process import signals
from crbc_cli.cli.repeated import join_repeated
from crbc_cli.errors import CrbcError

__all__ = ["app", "main"]

_MODULES = {
    "adapter": "adapter",
    "anchors": "anchors",
    "annotate": "annotate",
    "check": "check",
    "compare": "compare",
    "convert": "convert",
    "coverage": "coverage",
    "explain": "explain",
    "filter": "filter",
    "gate": "gate",
    "inspect": "inspect",
    "methods": "methods",
    "profile": "profile",
    "report": "report",
    "schema": "schema",
    "config": "schema",
    "steps": "steps",
}
"""Command -> its module in `crbc_cli.cli`."""


class _Commands(Mapping[str, Any]):
    """Commands by name, each made when it is asked for: most runs need one."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            alone = typer.Typer()
            import_module(f"crbc_cli.cli.{_MODULES[name]}").register(alone)
            made = get_group(alone).commands
            for command in made.values():
                take_as_given(command)
                join_repeated(command)
            self._made |= made
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


class _Program(TyperGroup):
    def __init__(self, **declared: Any) -> None:
        super().__init__(**declared)
        take_as_given(self)
        self.commands: Any = _Commands()


app = typer.Typer(
    name="crbc",
    cls=_Program,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Per-step credit from groups of LLM-agent rollouts, by Cross-Rollout Bellman Closure.",
    epilog="Every option can also be set as CRBC_OPTION_NAME in the environment, or in crbc.toml.",
)


def _version(asked: bool) -> None:
    if asked:
        from crbc_cli import __version__

        print(f"crbc {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    context: typer.Context,
    config: Annotated[
        str | None,
        typer.Option(
            help="Config file instead of the nearest crbc.toml or \\[tool.crbc].",
            envvar="CRBC_CONFIG",
            show_envvar=False,
            metavar="FILE",
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Show the traceback of an error.",
            envvar="CRBC_DEBUG",
            show_envvar=False,
        ),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    from crbc_cli.cli.config import defaults_by_command

    del version
    if debug:
        os.environ["CRBC_DEBUG"] = "1"
    commands: Any = context.command
    context.default_map = defaults_by_command(config, commands.commands)


def main() -> None:
    """Runs the program and raises SystemExit.

    Exit codes: 0 fine, 1 findings or warnings under --strict, 2 cannot run, 130 interrupted,
    141 the reader of a pipe went away, 128 + N ended by signal N.
    """
    sys.exit(_run())


def _run() -> int:
    _mend_streams()
    odd = next(filter(_is_undecodable, (*sys.argv[1:], *_own_environment())), None)
    if odd is not None:
        return _fail(f"{odd!r} is not UTF-8; rename what it names, or use a UTF-8 locale")
    try:
        if not (sys.argv[1:] or "_CRBC_COMPLETE" in os.environ):
            with redirect_stdout(sys.stderr):
                app(["--help"], prog_name="crbc", standalone_mode=False)
            return 2
        code = app(prog_name="crbc", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BaseException as error:
        # polars takes what a signal raises for an error of its own now and then.
        return 128 + signals[0] if signals else _code_of(error)


def _code_of(error: BaseException) -> int:
    """Exit code of what ended the run, after telling about it."""
    if isinstance(error, SystemExit):
        # rich and typer leave with 1 when a pipe closes.
        if isinstance(error.__context__, BrokenPipeError):
            return _pipe_closed()
        return error.code if isinstance(error.code, int) else 2
    if isinstance(error, BrokenPipeError):
        return _pipe_closed()
    if isinstance(error, CrbcError):
        return _fail(str(error))
    if isinstance(error, OSError):
        return _fail(f"{error.filename or 'stdout'}: {error.strerror or error}")
    if isinstance(error, MemoryError):
        return _fail("not enough memory for this input; split it, or run one file at a time")
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return 130
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return _usage(error)
    if isinstance(error, Exception):
        return _fail(
            f"internal error ({type(error).__name__}: {error}); "
            "run again with --debug and report it"
        )
    if type(error).__name__ != "PanicException":  # polars reports some defects as a Rust panic
        raise error
    return _fail("internal error in the table engine; run again with --debug and report it")


def _own_environment() -> Iterator[str]:
    return (value for name, value in os.environ.items() if name.startswith("CRBC_"))


def _is_undecodable(text: str) -> bool:
    """Whether Python had to keep bytes that are not text in this locale's encoding."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _mend_streams() -> None:
    """A stream that the caller closed (`>&-`) is empty; what stdout cannot encode is escaped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for the whole run
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _pipe_closed() -> int:
    """The reader had enough; what is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _usage(error: Any) -> int:
    """A command line that typer refused."""
    context = getattr(error, "ctx", None)
    path = "crbc" if context is None else context.command_path
    return _fail(f"{error.format_message().strip().rstrip('.')}; see {path} --help")


def _fail(message: str) -> int:
    with suppress(OSError):  # nobody listens
        if os.environ.get("CRBC_DEBUG", "").lower() in ("1", "true", "t", "yes", "y", "on"):
            traceback.print_exc()
        print(f"crbc: error: {visible(' '.join(message.split()))}", file=sys.stderr, flush=True)
    return 2
