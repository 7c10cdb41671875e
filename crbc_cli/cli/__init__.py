"""The command line: typer only, one module per command, parse -> one library call -> render."""
