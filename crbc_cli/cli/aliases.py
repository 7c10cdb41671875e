"""Options that several commands declare alike."""

from typing import Annotated, Any

import typer

from crbc_cli.cli.options import completing

__all__ = ["CsvOption", "ForceOption", "JsonOption", "ToOption", "outputs"]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
ToOption = Annotated[
    str | None,
    typer.Option(
        show_default="by suffix",
        autocompletion=completing(("parquet", "jsonl", "arrow", "csv")),
        metavar="parquet|jsonl|arrow|csv",
        help="Output format.",
    ),
]


def outputs(default: str, more: str = "") -> Any:
    """`--output` of commands that write one file per input, or one for all.

    Args:
      default: what is written without it.
      more: said behind what it can be.
    """
    return typer.Option(
        "--output",
        "-o",
        show_default=default,
        metavar="FILE|DIR|-",
        help=f"File, folder (one output per input) or - (stdout){more}.",
    )
