"""The README's commands give what it shows, and its tables are the package's own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import readme_tables
from typer.main import get_group

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[tuple[str, str]]:
    """(command, expected output) of each `$` line; a line ending in a backslash goes on."""
    found = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    return [(command, output) for command, output in found]


def pattern(expected: str) -> str:
    """Expected output as a regular expression; `...` stands for anything."""
    return ".*?".join(re.escape(part) for part in rounded(expected.rstrip()).split("..."))


def rounded(text: str) -> str:
    """Long numbers to 12 digits: the last of 17 is that of the processor's LAPACK."""
    return re.sub(r"-?\d+\.\d{12,}", lambda number: f"{float(number[0]):.12g}", text)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_console_blocks_give_what_the_readme_shows(number: int, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "sample_logs", tmp_path / "sample_logs")
    bin_folder = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "80"}
    for command, expected in commands(BLOCKS[number]):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        shown = "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines())
        if not re.fullmatch(pattern(expected), rounded(shown), re.DOTALL):
            pytest.fail(f"$ {command}\n{shown}\n{done.stderr}", pytrace=False)


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) >= 8
    assert all(commands(block) for block in BLOCKS)


def test_generated_tables_are_current() -> None:
    assert readme_tables.regenerated(TEXT) == TEXT


def test_every_command_is_described() -> None:
    from crbc_cli.cli.main import app

    missing = [name for name in get_group(app).commands if f"crbc {name}" not in TEXT]
    assert not missing


def test_every_function_is_named() -> None:
    import crbc_cli

    assert [
        n for n in crbc_cli.__all__ if f"`{n}`" not in TEXT and f"crbc_cli.{n}" not in TEXT
    ] == ["__version__"]


def test_links_lead_to_sections() -> None:
    headings = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-") for line in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors
