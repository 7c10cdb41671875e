"""`python -m crbc_cli` is the same program as `crbc`."""

from crbc_cli.cli.process import program

if __name__ == "__main__":
    program()
