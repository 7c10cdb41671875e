"""Structured mutations of a small log, and what every command may make of them."""

import math
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import polars.selectors as cs
from conftest import crbc, golden_rows, jsonl, strict_json
from helpers import Rows

__all__ = ["run_mutation"]

VALUES: list[Any] = [
    None,
    "",
    0,
    -1,
    2**63,
    10**40,
    1.5,
    -0.0,
    1e308,
    math.nan,
    math.inf,
    True,
    "true",
    "\0",
]
NESTED: list[Any] = [
    "😀",
    "\ud800",
    [],
    [1],
    ["a", ["b"]],
    {},
    {"a": 1},
    {"a": {"b": [1, None]}},
    '{"a":1}',
]
COMMANDS = [
    ["annotate", "-o", "OUT.parquet"],
    ["annotate", "-o", "OUT.csv", "--columns", "all", "--prefix", "p_"],
    ["annotate", "-o", "OUT.jsonl", "--method", "crbc,gigpo,rtmc,graphgpo"],
    ["annotate", "-o", "OUT.jsonl", "--chunk-rows", "1", "--unscored", "fail"],
    ["annotate", "-o", "OUT.parquet", "--success-when", "reward >= 1", "--reward", "sum"],
    ["annotate", "-o", "OUT.arrow", "--columns", "all", "--prefix", "p_", "--anchor-id"],
    ["check", "--json"],
    ["coverage", "--json"],
    ["explain", "--json"],
    ["gate", "--at", "1", "--json"],
    ["compare", "--json"],
    ["filter", "--drop", "all_fail", "-o", "OUT.jsonl"],
]


def mutated_rows(random: Random) -> Rows:
    rows = golden_rows()
    for _ in range(random.choice([1, 1, 2, 4])):
        row = random.choice(rows)
        name = random.choice([*row, "observation", "other"])
        value = random.choice(VALUES + NESTED)
        match random.randrange(6):
            case 0:
                row[name] = value
            case 1:
                row.pop(name, None)
            case 2:
                for each in rows:
                    each.pop(name, None)
            case 3:
                for each in rows:
                    each[name] = value
            case 4:
                rows.append(dict(row))
            case _:
                random.shuffle(rows)
    return rows


def mutated_bytes(random: Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(random.choice([1, 2, 10])):
        at = random.randrange(len(data) - 20)
        match random.randrange(4):
            case 0:
                data[at] ^= 1 << random.randrange(8)
            case 1:
                del data[at : at + random.choice([1, 10])]
            case 2:
                data[at:at] = random.randbytes(random.choice([1, 8]))
            case _:
                data[at:at] = data[at // 2 : at // 2 + 15]
    return bytes(data[: random.choice([len(data), len(data), len(data) // 2])])


def run_mutation(seed: int, tmp_path: Path) -> int:
    """Runs a command on a mutated log: success, or one line and nothing written; the exit code."""
    random = Random(seed)
    log = tmp_path / random.choice(["log.jsonl", "log.jsonl", "log.parquet"])
    rows = mutated_rows(random) if seed % 3 else golden_rows()
    log.write_bytes(jsonl(rows))
    if log.suffix == ".parquet":
        try:
            pl.DataFrame(rows, infer_schema_length=None, strict=False).write_parquet(log)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
            log.write_bytes(jsonl(rows))
    if seed % 3 == 0:
        log.write_bytes(mutated_bytes(random, log.read_bytes()))
    before = log.read_bytes()
    command, *options = random.choice(COMMANDS)
    output = tmp_path / "out"
    output.mkdir()
    options = [option.replace("OUT", str(output / "o")) for option in options]
    ended = crbc(command, log, *options)
    assert log.read_bytes() == before
    if ended.code == 2:
        ended.refused()
        assert not list(output.iterdir())
        return ended.code
    assert ended.code in (0, 1), ended.stderr
    if "--json" in options:
        assert ended.json["schema_version"]
    for path in output.glob("o.*"):
        if path.suffix == ".jsonl":
            for line in path.read_text("utf-8").split("\n")[:-1]:
                strict_json(line)
        elif path.suffix in (".parquet", ".csv"):
            frame = (
                pl.read_parquet(path)
                if path.suffix == ".parquet"
                else pl.read_csv(path, ignore_errors=True)  # a logged 10**40
            )
            logged = cs.by_name(*golden_rows()[0], "other", require_all=False)
            numbers = frame.select(cs.float() - logged)
            assert all(column.drop_nulls().is_finite().all() for column in numbers)
    return ended.code
