"""Small logs with one defect each, and the table that says what the commands make of them.

Every file is the golden group (module `golden`) with one thing wrong. Needs pyarrow==26.0.1, numpy
and scipy. Write the folder, from the root of the repository:

    python -m sample_logs.generators.broken --out sample_logs/broken
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .golden import golden_rows
from .truth_log import Row

NESTING_LEVELS = 3000
RANDOM_BYTES = 2048


@dataclass(frozen=True)
class BrokenFile:
    """One file of the folder.

    Attributes:
      name: file name.
      defect: what is wrong.
      reader: what annotate and coverage do with it.
      check: exit code and findings of check, or "refuse" where it cannot run.
      content: the bytes.
    """

    name: str
    defect: str
    reader: str
    check: str
    content: bytes


def encoded(rows: list[Row]) -> bytes:
    """The rows as JSON lines."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def changed(where: Callable[[Row], bool], **values: object) -> list[Row]:
    """The golden rows with `values` written into every row where the condition holds."""
    return [row | values if where(row) else row for row in golden_rows()]


def without(column: str) -> list[Row]:
    """The golden rows without one column."""
    return [{name: row[name] for name in row if name != column} for row in golden_rows()]


def visit(rollout_id: str, step: int) -> Callable[[Row], bool]:
    """Condition that picks one row."""
    return lambda row: (row["rollout_id"], row["step"]) == (rollout_id, step)


def with_line(number: int, line: bytes) -> bytes:
    """The golden log with `line` in place of line `number`, counted from 1."""
    lines = encoded(golden_rows()).splitlines(keepends=True)
    lines[number - 1] = line
    return b"".join(lines)


def parquet_bytes(rows: list[Row], schema: pa.Schema | None = None) -> bytes:
    """The rows as an uncompressed Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, compression="none")
    return bytes(sink.getvalue())


def broken_files() -> list[BrokenFile]:
    """All files, in the order of the table."""
    golden = encoded(golden_rows())
    last_row = golden_rows()[-1]
    return [*broken_text(golden), *broken_values(last_row), *broken_containers(golden)]


def broken_text(golden: bytes) -> list[BrokenFile]:
    """Files whose lines cannot all be read as JSON objects in UTF-8."""
    lines = golden.splitlines(keepends=True)
    deep = b"[" * NESTING_LEVELS + b"]" * NESTING_LEVELS
    return [
        BrokenFile(
            "torn-last-line.jsonl",
            "line 9 ends in the middle of a value",
            "warn at line 9; 8 rows, rollout t3 is left without its end (`done` false)",
            "1: `torn_line`, `unterminated`",
            golden[:-60],
        ),
        BrokenFile(
            "bad-inner-line.jsonl",
            "line 4 is not JSON",
            "refuse at line 4; with --skip-bad-lines 8 rows, and one skipped line is reported",
            "refuse",
            with_line(4, b'{"group_id": "golden", "rollout_id": "t1", "step": 1,\n'),
        ),
        BrokenFile(
            "line-not-an-object.jsonl",
            "line 4 is a JSON array",
            "refuse at line 4",
            "refuse",
            with_line(4, b'["golden", "t1", 1, "M", "q"]\n'),
        ),
        BrokenFile(
            "json-array.jsonl",
            "the whole file is one JSON array",
            "accept its elements as rows; the golden numbers",
            "0",
            b"[" + b", ".join(line.rstrip() for line in lines) + b"]\n",
        ),
        BrokenFile(
            "two-objects-on-a-line.jsonl",
            "line 1 holds two objects",
            "refuse at line 1; the second object is never dropped silently",
            "refuse",
            lines[0].rstrip() + golden[len(lines[0]) :],
        ),
        BrokenFile(
            "repeated-json-key.jsonl",
            "line 4 names `action` twice, `x` then `q`",
            "accept with the last value, as JSON readers do; the golden numbers",
            "0",
            with_line(4, lines[3].replace(b'"action"', b'"action": "x", "action"')),
        ),
        BrokenFile(
            "deep-nesting.jsonl",
            f"line 4 has {NESTING_LEVELS} nested arrays in the unneeded column `info`",
            "refuse at line 4 (accept, where Python recurses that deep); no recursion error",
            "refuse",
            with_line(4, lines[3].rstrip()[:-1] + b', "info": ' + deep + b"}\n"),
        ),
        BrokenFile(
            "invalid-utf8.jsonl",
            "the observation on line 4 holds the bytes FF FE",
            "refuse at line 4",
            "refuse",
            with_line(4, lines[3].replace(b'"M"', b'"M\xff\xfe"')),
        ),
        BrokenFile(
            "lone-surrogate.jsonl",
            "the observation on line 4 holds the escape \\ud800 alone",
            "warn: the character is replaced by U+FFFD; 9 rows",
            "0: `surrogates`, `aliased_anchors`",
            with_line(4, lines[3].replace(b'"M"', b'"M\\ud800"')),
        ),
        BrokenFile(
            "byte-order-mark.jsonl",
            "starts with a UTF-8 byte order mark",
            "accept; the golden numbers",
            "0",
            b"\xef\xbb\xbf" + golden,
        ),
        BrokenFile(
            "crlf.jsonl",
            "none: lines end in CR LF",
            "accept; the golden numbers",
            "0",
            golden.replace(b"\n", b"\r\n"),
        ),
        BrokenFile(
            "empty.jsonl",
            "0 bytes",
            "warn: no rows, an empty table",
            "refuse",
            b"",
        ),
        BrokenFile(
            "blank-lines.jsonl",
            "only blank lines",
            "warn: no rows, an empty table",
            "refuse",
            b"\n  \n\n",
        ),
    ]


def broken_values(last_row: Row) -> list[BrokenFile]:
    """JSON lines whose columns or values break the rules of a log."""
    unscored: dict[object, Row] = {
        ("t1", 1): {"reward": float("nan"), "success": None},
        ("t3", 1): {"reward": float("inf"), "success": None},
    }
    return [
        BrokenFile(
            "unscored.jsonl",
            "t1 ends with reward NaN, t3 with reward Infinity, both with `success` null",
            "warn at line 4: t1 and t3 are unscored, their rows get null; output stays strict JSON",
            "1: `unscored`, `constant_groups`",
            encoded(
                [row | unscored.get((row["rollout_id"], row["step"]), {}) for row in golden_rows()]
            ),
        ),
        BrokenFile(
            "no-outcome-column.jsonl",
            "no column `success`",
            "refuse, naming the column `success`, unless told what a success is (`reward >= 1`)",
            "refuse",
            encoded(without("success")),
        ),
        BrokenFile(
            "no-action-column.jsonl",
            "no column `action`",
            "refuse, naming the column `action`",
            "refuse",
            encoded(without("action")),
        ),
        BrokenFile(
            "null-group-id.jsonl",
            "`group_id` is null on line 4",
            "refuse at line 4, naming the column `group_id`",
            "refuse",
            encoded(changed(visit("t1", 1), group_id=None)),
        ),
        BrokenFile(
            "mixed-group-ids.jsonl",
            'the group is the number 7 in t0 and t1, the text "7" in t2 and t3',
            "refuse at line 5, naming the column `group_id`; the two are never pooled",
            "refuse",
            encoded(
                [
                    row | {"group_id": 7 if row["rollout_id"] in {"t0", "t1"} else "7"}
                    for row in golden_rows()
                ]
            ),
        ),
        BrokenFile(
            "huge-group-ids.jsonl",
            "groups 2^64 + 1 (t0, t1) and 2^64 + 2 (t2, t3), equal as floating-point numbers",
            "refuse at line 1, naming the column `group_id`; never one group",
            "refuse",
            encoded(
                [
                    row | {"group_id": 2**64 + (1 if row["rollout_id"] in {"t0", "t1"} else 2)}
                    for row in golden_rows()
                ]
            ),
        ),
        BrokenFile(
            "fractional-step.jsonl",
            "`step` is 1.5 on line 4",
            "refuse at line 4, naming the column `step`; never rounded",
            "refuse",
            encoded(changed(visit("t1", 1), step=1.5)),
        ),
        BrokenFile(
            "negative-step.jsonl",
            "the steps of t3 are -1 and 0",
            "accept, ordered by value; the golden numbers",
            "1: `negative_steps`",
            encoded(
                [
                    row | {"step": int(str(row["step"])) - 1} if row["rollout_id"] == "t3" else row
                    for row in golden_rows()
                ]
            ),
        ),
        BrokenFile(
            "gap-in-steps.jsonl",
            "the steps of t3 are 0 and 2",
            "accept, ordered by value; the golden numbers",
            "1: `step_gaps`",
            encoded(changed(visit("t3", 1), step=2)),
        ),
        BrokenFile(
            "conflicting-duplicate.jsonl",
            "line 10 repeats the ids of line 9 with another action",
            "refuse at lines 9 and 10",
            "1: `conflicting_rows`",
            encoded([*golden_rows(), last_row | {"action": "e"}]),
        ),
        BrokenFile(
            "identical-duplicate.jsonl",
            "line 10 repeats line 9",
            "accept with a note; the copy counts once, so the golden numbers",
            "0: `duplicate_rows`",
            encoded([*golden_rows(), last_row]),
        ),
        BrokenFile(
            "done-before-the-end.jsonl",
            "t2 says `done` at step 1 of 3",
            "accept; the golden numbers",
            "1: `done_before_last`",
            encoded(changed(visit("t2", 1), done=True)),
        ),
        BrokenFile(
            "success-as-text.jsonl",
            '`success` is "yes" or "no"',
            "refuse at line 1, naming the column `success` and the value; text is never true",
            "refuse",
            encoded(
                [row | {"success": "yes" if row["success"] else "no"} for row in golden_rows()]
            ),
        ),
    ]


def broken_containers(golden: bytes) -> list[BrokenFile]:
    """Files whose outer format is wrong."""
    table = parquet_bytes(golden_rows())
    empty = parquet_bytes([], pa.Table.from_pylist(golden_rows()).schema)
    text_steps: list[Row] = [row | {"step": str(row["step"])} for row in golden_rows()]
    groups = b"".join(encoded(golden_rows(f"golden-{number}")) for number in range(40))
    compressed = gzip.compress(groups, mtime=0)
    return [
        BrokenFile(
            "no-footer.parquet",
            "cut before the footer",
            "refuse, naming the file",
            "refuse",
            table[: len(table) // 2],
        ),
        BrokenFile(
            "no-rows.parquet",
            "all columns, no rows",
            "warn: no rows, an empty table",
            "refuse",
            empty,
        ),
        BrokenFile(
            "text-step.parquet",
            "the column `step` holds text",
            "refuse, naming the column `step` and its type",
            "refuse",
            parquet_bytes(text_steps),
        ),
        BrokenFile(
            "cut.jsonl.gz",
            "40 golden groups, the gzip stream cut in the middle",
            "refuse, naming the file; the readable half is never taken for the whole",
            "refuse",
            compressed[: len(compressed) // 2],
        ),
        BrokenFile(
            "binary.jsonl",
            f"{RANDOM_BYTES} random bytes",
            "refuse at line 1",
            "refuse",
            np.random.default_rng(0).bytes(RANDOM_BYTES),
        ),
        BrokenFile(
            "plain-text.parquet",
            "JSON lines under the name of a Parquet file",
            "accept: the content decides, not the suffix; the golden numbers",
            "0",
            golden,
        ),
    ]


def table_text(files: list[BrokenFile]) -> str:
    """The README of the folder."""
    lines = [
        "# Broken logs",
        "",
        "Each file is `../golden.jsonl` with one defect. `../generators/broken.py` makes them and",
        "writes this table; `tests/test_broken.py` holds the commands to it. *Refuse* means one",
        "line that names the place, no output and exit code 2; *warn* means that the rest is used,",
        "the defect is reported and the exit code is 0 (1 with `--strict`); *accept* means that no",
        "complaint is due.",
        "",
        "| file | defect | annotate and coverage | check: exit code and findings |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{f.name}` | {f.defect} | {f.reader} | {f.check} |" for f in files]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    files = broken_files()
    for file in files:
        (folder / file.name).write_bytes(file.content)
    (folder / "README.md").write_text(table_text(files), encoding="utf-8")


if __name__ == "__main__":
    main()
