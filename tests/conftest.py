"""Running the program: as a process, or inside this one where neither pipes nor signals matter."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crbc_cli.cli.main import main

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "sample_logs" / "golden.jsonl"


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def json(self) -> Any:
        """Stdout as one strict JSON document."""
        return strict_json(self.text)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Stdout as strict JSON lines."""
        return [strict_json(line) for line in self.text.splitlines()]

    @property
    def table(self) -> pa.Table:
        """Stdout as an Arrow stream."""
        return pa.ipc.open_stream(self.stdout).read_all()

    def refused(self) -> str:
        """Asserts one line of error, exit code 2 and nothing on stdout; returns the line."""
        assert self.code == 2, (self.code, self.stderr)
        assert self.stdout == b""
        [line] = self.stderr.splitlines()
        assert line.startswith("crbc: error: ")
        assert "Traceback" not in line
        return line


def strict_json(text: str) -> Any:
    """Parses JSON and fails on the tokens NaN and Infinity."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def crbc(
    *arguments: object,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Ended:
    """The program inside this process."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    kept = sys.argv, sys.stdin, dict(os.environ)
    sys.argv = ["crbc", *map(str, arguments)]
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    os.environ.update(env or {})
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.chdir(cwd or Path.cwd()),
            pytest.raises(SystemExit) as ended,
        ):
            main()
    finally:
        sys.argv, sys.stdin = kept[:2]
        os.environ.clear()
        os.environ.update(kept[2])
    out.flush()
    code = ended.value.code
    assert isinstance(code, int)
    return Ended(code, out.buffer.getvalue(), err.getvalue())


def program(
    *arguments: object,
    stdin: bytes | int = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    python: tuple[str, ...] = (),
) -> Ended:
    """The program as a process of its own; `stdin` may be an open file's descriptor."""
    feed: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    done = subprocess.run(
        [sys.executable, *python, "-m", "crbc_cli", *map(str, arguments)],
        capture_output=True,
        env=os.environ | dict(env or {}),
        cwd=cwd,
        timeout=120,
        check=False,
        **feed,
    )
    return Ended(done.returncode, done.stdout, done.stderr.decode())


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No option from the surrounding shell reaches a test."""
    for name in list(os.environ):
        if name.startswith("CRBC_") or name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")


def golden_rows() -> list[dict[str, Any]]:
    """The golden group as rows."""
    return [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]


def jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as JSON lines."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def credit(*arguments: object, **how: Any) -> pl.DataFrame:
    """The credit table that `annotate` streams for these arguments."""
    ended = crbc("annotate", *arguments, "-o", "-", "--to", "arrow", **how)
    assert ended.code == 0, ended.stderr
    frame = pl.from_arrow(ended.table)
    assert isinstance(frame, pl.DataFrame)
    return frame
