"""`crbc adapter`."""

from typing import Annotated

import typer

from crbc_cli.cli.options import completing
from crbc_cli.trainers.adapters import HOOKS, LOADERS

_NAMES = tuple(dict.fromkeys((*LOADERS, *HOOKS)))


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""

    @app.command(
        epilog="Example: crbc adapter verl-agent > crbc_loader.py; "
        "crbc adapter verl-agent --hook > crbc_hook.py"
    )
    def adapter(
        name: Annotated[
            str | None,
            typer.Argument(
                metavar="NAME",
                help="A trainer; without one, all are listed.",
                autocompletion=completing(_NAMES),
            ),
        ] = None,
        hook: Annotated[
            bool, typer.Option("--hook", help="The function that logs steps, not the loader.")
        ] = False,
    ) -> None:
        """Print the code that loads credit into a trainer, or that logs a trainer's steps."""
        from crbc_cli.trainers.adapters import adapter as text_of

        if name is not None:
            print(text_of(name, hook=hook), end="")
            return
        width = max(map(len, _NAMES))
        for one in _NAMES:
            kinds = [k for k, known in (("loader", LOADERS), ("--hook", HOOKS)) if one in known]
            print(f"{one:<{width}}  {', '.join(kinds)}")
