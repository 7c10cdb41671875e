"""Odd but legal shapes work, and numbers nobody can compute with are refused in one line."""

from __future__ import annotations

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, crbc, credit, golden_rows, jsonl, program
from mutations import run_mutation

import crbc_cli
from crbc_cli.engine.clock import Clock
from crbc_cli.engine.coverage import CoverageReport, measure_coverage
from crbc_cli.engine.load import load
from crbc_cli.engine.output import OutputPlan
from crbc_cli.engine.prepare import prepare
from crbc_cli.engine.sink import Shape, table_sinks
from crbc_cli.errors import InputError, OptionError
from crbc_cli.logs.fetch import fetch_text
from crbc_cli.logs.sources import Source, resolve
from crbc_cli.logs.subset import write_subset
from crbc_cli.logs.write import Target
from crbc_cli.notes import Notes
from crbc_cli.options import CreditOptions, Settings

GOLDEN = ROOT / "sample_logs" / "golden.jsonl"


def table(frame: pl.DataFrame, **options: Any) -> pl.DataFrame:
    return pl.DataFrame(crbc_cli.credit(frame.to_arrow(), **options))


@pytest.mark.parametrize(
    "options",
    [
        ("--discount", "nan"),
        ("--w-s", "inf"),
        ("--w-g", "nan"),
        ("--penalty", "nan"),
        ("--floor", "1e-300"),
        ("--floor", "0"),
        ("--eps", "-1"),
        ("--success-reward", "1e300"),
        ("--depth", "10000000000"),
        ("--expected-group-size", "-1"),
        ("--action-tag", "a>(b"),
        ("--mask", "("),
        ("--success-when", "reward >= 1 OR " * 400 + "reward >= 1"),
        ("--success-when", "1"),
        ("--success-when", "sum(reward) > 1"),
        ("--success-when", "reward >= 1; drop"),
    ],
)
def test_values_that_cannot_be_computed_with_are_refused(options: tuple[str, str]) -> None:
    crbc("annotate", GOLDEN, "-o", "-", "--to", "csv", *options).refused()


def test_a_group_of_ten_thousand_rollouts() -> None:
    n = 10_000
    wins = np.arange(n) % 4 == 0
    frame = pl.DataFrame(
        {
            "group_id": ["g"] * n,
            "rollout_id": np.arange(n),
            "step": np.zeros(n, np.int64),
            "observation": ["s"] * n,
            "action": np.where(wins, "a", "b"),
            "success": wins,
        }
    )
    credit = table(frame)
    # V = β/4; Q(a) = β, Q(b) = 0; σ² = β²·(1/4·9/16 + 3/4·1/16), so A_S(a) = √3, A_S(b) = −1/√3
    assert credit["state_value"].to_numpy() == pytest.approx(0.98 / 4, rel=1e-12)
    assert credit["step_credit"][0] == pytest.approx(3**0.5, rel=1e-12)
    assert credit["step_credit"][1] == pytest.approx(-(3**-0.5), rel=1e-12)
    assert credit["reachable_rollouts"].unique().to_list() == [n]


@pytest.mark.parametrize("depth", ["inf", 1])
def test_a_rollout_of_a_hundred_thousand_steps(depth: object) -> None:
    n = 100_000
    frame = pl.DataFrame(
        {
            "group_id": ["g"] * n,
            "rollout_id": ["r"] * n,
            "step": np.arange(n),
            "observation": np.arange(n).astype(str),
            "action": ["on"] * n,
            "success": np.arange(n) == n - 1,
        }
    )
    values = table(frame, discount=0.9999, depth=depth)["state_value"].to_numpy()
    assert values == pytest.approx(0.9999 ** np.arange(n, 0, -1.0), rel=1e-9)


def test_an_anchor_with_fifty_thousand_actions() -> None:
    n = 50_000
    frame = pl.DataFrame(
        {
            "group_id": ["g"] * n,
            "rollout_id": np.arange(n),
            "step": np.zeros(n, np.int64),
            "observation": ["s"] * n,
            "action": np.arange(n).astype(str),
            "success": np.arange(n) < n // 2,
        }
    )
    credit = table(frame)
    assert credit["actions"].unique().to_list() == [n]
    assert np.abs(credit["step_credit"].to_numpy()) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("rule", ["censor", "exclude", "bootstrap"])
def test_long_tails_that_lead_nowhere_are_walked_once(rule: str) -> None:
    """A cut rollout of 50,000 new states behind the first: linear, not one sweep a state."""
    n = 50_000
    step = np.append(np.arange(n), 0)
    frame = pl.DataFrame(
        {
            "group_id": ["g"] * (n + 1),
            "rollout_id": ["cut"] * n + ["wins"],
            "step": step,
            "observation": np.append(np.arange(n), 0).astype(str),
            "action": ["on"] * n + ["win"],
            "done": [False] * n + [True],
            "success": [False] * n + [True],
            "next_observation": [str(n - 1)] * (n + 1),
        }
    )
    credit = table(frame, truncated=rule)
    # censor and exclude leave one certain win at the start; the bootstrapped tail is a closed class
    start = 0.98 if rule != "bootstrap" else 0.49
    assert credit["state_value"][n] == pytest.approx(start, rel=1e-12)
    if rule != "bootstrap":
        assert credit["state_value"][:n].null_count() == n


def test_names_used_inside_are_ordinary_columns() -> None:
    names = ("source", "source_row", "reply_key", "anchor_key", "row", "s0u0", "rule:x", "key:x")
    log = pl.read_ndjson(GOLDEN).with_columns(pl.lit(1).alias(name) for name in names)
    plain = table(pl.read_ndjson(GOLDEN))
    assert table(log).equals(plain)
    assert table(log, key=["source", "s0u0"]).drop("anchor").equals(plain.drop("anchor"))


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("annotate", ("--method", "gigpo:w_s=1e200")),
        ("annotate", ("--method", "hgpo:alpha=1e9")),
        ("annotate", ("--group-stride", "99999999999999999999")),
        ("annotate", ("--action-tag", "<action>")),
        ("annotate", ("--map", "observation=" + "a." * 101)),
        ("annotate", ("--success-when", '"sum"(reward) > 1')),
        ("annotate", ("--method", "a=crbc,a_group=grpo")),
        ("gate", ("--at", "99999999999999999999")),
        ("gate", ("--at", "1..99999999")),
        ("gate", ("--at", "1", "--t-max", "99999999999999999999")),
        ("coverage", ("--depth", "0..1000000")),
        ("explain", ("--step", "t0:²")),
        ("explain", ("--step", "t0:--1")),
    ],
)
def test_more_that_is_refused(command: str, options: tuple[str, ...]) -> None:
    output = ("-o", "-", "--to", "csv") if command == "annotate" else ()
    crbc(command, GOLDEN, *output, *options).refused()


@pytest.mark.parametrize(
    "options",
    [
        {"w_s": 10**400},
        {"depth": math.nan},
        {"key": 1},
        {"key": ["group_id", 1]},
        {"map": [1]},
        {"drop": None},
    ],
)
def test_values_that_no_library_user_means(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Settings.from_flat(options)


def test_large_weights_are_weights() -> None:
    assert Settings.from_flat({"w_s": 2_000_000}).credit == CreditOptions(w_s=2_000_000)


def test_tables_that_cannot_be_taken() -> None:
    table = pa.table({"step": [0]})
    for odd in (
        pa.Table.from_arrays([table["step"]] * 2, names=["step", "step"]),
        pa.table({"step": pc.run_end_encode(pa.array([0]))}),
    ):
        with pytest.raises(InputError, match="<table>"):
            crbc_cli.credit(odd)


def test_a_million_backups_stop_where_nothing_changes() -> None:
    """Three anchors without a cycle: three backups reach the fixed point bit for bit."""
    deep = credit(GOLDEN, "--depth", 1_000_000)
    assert deep.equals(credit(GOLDEN, "--depth", 3))
    exact = credit(GOLDEN)
    for name in ("state_value", "action_value"):
        assert deep[name].to_list() == pytest.approx(exact[name].to_list(), rel=1e-14)


def test_rewards_beyond_the_range_of_squares(tmp_path: Path) -> None:
    """Refused where a number depends on them, passed over where none does."""
    rows = [row | {"reward": 1e308 if row["success"] else -1e308} for row in golden_rows()]
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(rows))
    line = crbc("annotate", log, "-o", "-", "--to", "csv", "--reward", "last").refused()
    assert f"{log}:1: column reward" in line
    assert credit(log)["advantage"].to_list() == credit(GOLDEN)["advantage"].to_list()


def test_rewards_whose_squares_are_zero(tmp_path: Path) -> None:
    """No std is left to divide by, and --eps 0 adds none: the term is 0, not infinite."""
    rows = [row | {"reward": 5e-324 * row["success"]} for row in golden_rows()]
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(rows))
    assert set(credit(log, "--reward", "last", "--eps", 0)["group_advantage"]) == {0.0}


# --- shapes ---------------------------------------------------------------------------------------


def test_coverage_of_many_rollouts_at_one_anchor() -> None:
    """30,000 rollouts: a square table of them would need 7 GB."""
    n = 30_000
    rows = pl.DataFrame({"rollout_id": np.arange(n)}).with_columns(
        pl.lit("g").alias("group_id"),
        pl.lit(0).alias("step"),
        pl.lit("s").alias("observation"),
        (pl.col("rollout_id") % 2).alias("action"),
        (pl.col("rollout_id") % 2 == 0).alias("success"),
    )
    report = coverage_of(rows)
    assert report.paired == {(n, n): n}
    assert report.means().tolist() == [n, n]


def test_coverage_of_a_long_way() -> None:
    """B stands at the last of A's n anchors: at depth K the last K + 1 of them reach both."""
    n = 3000
    rows = pl.DataFrame({"step": [*range(n), 0], "rollout_id": ["A"] * n + ["B"]}).with_columns(
        pl.lit("g").alias("group_id"),
        pl.lit("on").alias("action"),
        pl.lit(True).alias("success"),
        pl.Series("observation", [*range(n), n - 1]).cast(pl.String),
    )
    report = coverage_of(rows)
    assert report.settled == n - 1
    assert report.full.tolist() == [k + 2 for k in range(n)] + [n + 1]
    assert report.paired == {(1, 2): n - 1, (2, 2): 2}


def coverage_of(rows: pl.DataFrame) -> CoverageReport:
    settings = Settings()
    source = Source("<table>", Path(), "memory", frame=rows)
    log = prepare(load([source], settings, Clock(), Notes()), settings, Clock())
    return measure_coverage([log], Clock(), eligible="all")


def test_an_empty_rollout_id_can_be_explained(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = golden_rows()
    log.write_bytes(jsonl([row | {"rollout_id": row["rollout_id"].strip("t0")} for row in rows]))
    shown = crbc("explain", log, "--step", ":1", "--json")
    assert shown.code == 0, shown.stderr
    assert shown.json["observation"] == "M"


# --- names ----------------------------------------------------------------------------------------

ODD_NAMES = ['"', 'a"b', "back\\slash", "a\nb", "*", "^.*$", "^s.*$", "é😀", "a b", "x" * 3000]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", ODD_NAMES)
def test_columns_of_any_name(name: str, suffix: str, tmp_path: Path) -> None:
    log = tmp_path / f"log.{suffix}"
    frame = pl.DataFrame(golden_rows()).with_columns(pl.col("observation").alias(name))
    frame.write_parquet(log) if suffix == "parquet" else frame.write_ndjson(log)
    plain = credit(GOLDEN).drop("source_file")
    assert credit(log, "--map", f"observation={name}").drop("source_file").equals(plain)
    assert credit(log, "--key", name)["visits"].to_list() == [4, 3, 4, 3, 4, 2, 3, 4, 2]


def test_a_column_named_twice_counts_once() -> None:
    once = credit(GOLDEN, "--key", "observation")
    assert credit(GOLDEN, "--key", "observation,observation").equals(once)
    grouped = credit(GOLDEN, "--group-by", "action,action", "--allow-uneven")
    assert grouped.equals(credit(GOLDEN, "--group-by", "action", "--allow-uneven"))


def test_a_prefix_with_a_quote_is_seen_to_clash(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl([row | {'a"banchor': 1} for row in golden_rows()]))
    arguments = ("annotate", log, "-o", tmp_path / "out.jsonl", "--columns", "all", "--prefix")
    assert "has a column" in crbc(*arguments, 'a"b').refused()
    assert sorted(tmp_path.iterdir()) == [log]
    assert crbc(*arguments, 'c"').code == 0


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        pl.Series([1] * 9).cast(pl.Duration),
        pl.Series([[b"\xff"]] * 9),
        pl.Series([{"bytes": b"\xff"}] * 9),
        pl.Series([b"\xff"] * 9),
    ],
    ids=lambda values: str(values.dtype),
)
def test_labels_that_are_not_text(values: pl.Series, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    pl.DataFrame(golden_rows()).with_columns(values.alias("label")).write_parquet(log)
    line = crbc("annotate", log, "-o", "-", "--to", "csv", "--group-by", "label").refused()
    assert f"{log} row 0: column label has type" in line
    assert crbc("check", log).code == 0


def test_numbers_that_no_column_type_holds_are_passed_on_as_text(tmp_path: Path) -> None:
    log, output = tmp_path / "log.jsonl", tmp_path / "out.csv"
    cells = ["1e400", "9" * 40, "1.5"] * 3
    lines = jsonl(golden_rows()).splitlines()
    log.write_bytes(
        b"".join(
            b'{"x":%s,' % c.encode() + line[1:] + b"\n"
            for c, line in zip(cells, lines, strict=True)
        )
    )
    assert crbc("annotate", log, "-o", output, "--columns", "all").code == 0
    assert pl.read_csv(output, infer_schema=False)["x"].to_list() == cells


def test_whole_numbers_of_128_bits(tmp_path: Path) -> None:
    """Arrow has no such type; JSON does not mind."""
    log = tmp_path / "log.parquet"
    wide = pl.Series("wide", [2**100] * 9, pl.Int128)
    pl.DataFrame(golden_rows()).with_columns(wide).write_parquet(log)
    for suffix in ("arrow", "parquet"):
        output = tmp_path / f"out.{suffix}"
        line = crbc("annotate", log, "-o", output, "--columns", "all").refused()
        assert "column wide" in line
        assert "--to jsonl" in line
        assert not output.exists()
    output = tmp_path / "out.jsonl"
    assert crbc("annotate", log, "-o", output, "--columns", "all").code == 0
    assert json.loads(output.read_text().splitlines()[0])["wide"] == 2**100
    line = crbc("filter", log, "--drop", "all_fail", "-o", tmp_path / "kept.parquet").refused()
    assert str(log) in line


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(gzip.compress(GOLDEN.read_bytes())), "compressed twice"),
        (b"PARE" + bytes(20) + b"PARE", "encrypted Parquet"),
    ],
)
def test_what_else_a_file_may_be(content: bytes, told: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)
    assert told in crbc("check", log).refused()


def test_names_that_are_no_names(tmp_path: Path) -> None:
    assert "empty name" in crbc("check", "").refused()
    folder = os.fsencode(tmp_path)
    try:
        Path(os.fsdecode(folder + b"/\xff.jsonl")).write_bytes(GOLDEN.read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names alone")
    assert "not UTF-8" in program("check", tmp_path).refused()
    assert "not UTF-8" in program("check", os.fsdecode(folder + b"/\xff.jsonl")).refused()
    assert "not UTF-8" in program("check", GOLDEN, env={"CRBC_MASK": "\udcff"}).refused()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_may_not_be_listed(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "log.jsonl").write_bytes(GOLDEN.read_bytes())
    inner.chmod(0)
    try:
        assert "cannot be listed" in crbc("check", tmp_path).refused()
    finally:
        inner.chmod(0o700)


def test_an_output_that_links_to_itself(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    crbc("annotate", GOLDEN, "-o", loop / "out.csv").refused()
    assert crbc("annotate", GOLDEN, "-o", loop, "--to", "csv", "--force").code == 0
    assert pl.read_csv(loop).height == 9


def test_an_input_that_changes_between_two_readings(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(golden_rows()))
    [source] = resolve([str(log)])
    with pytest.raises(InputError, match="changed while it was read"):
        fetch_text(source, [0, 9], {"o": "observation"}, skip_bad_lines=False)
    for size in (8, 10):
        target = Target(str(tmp_path / f"{size}.jsonl"), "jsonl")
        with pytest.raises(InputError, match="changed while it was read"):
            write_subset([source], [pl.Series([True] * size)], target, {}, skip_bad_lines=False)
    log = tmp_path / "log.parquet"
    pl.DataFrame(golden_rows()).write_parquet(log)
    [source] = resolve([str(log)])
    target = Target(str(tmp_path / "kept.parquet"), "parquet")
    with pytest.raises(InputError, match="changed while it was read"):
        write_subset([source], [pl.Series([True] * 8)], target, {}, skip_bad_lines=False)
    plan = OutputPlan(Target(str(tmp_path / "out.parquet"), "parquet"), [source])

    def write(rows: pl.DataFrame) -> None:
        with table_sinks(Shape(all_columns=True, prefix="p_"))(plan, None) as sink:
            sink.write(source, rows)
            sink.finish({})

    for rows in (credit(log).head(8), pl.concat([credit(log)] * 2)):
        with pytest.raises(InputError, match="changed while it was read"):
            write(rows)
    assert {path.name for path in tmp_path.iterdir()} == {"log.jsonl", "log.parquet"}


def test_parquet_inputs_of_other_columns_are_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    frame = pl.DataFrame(golden_rows())
    frame.write_parquet(tmp_path / "a.parquet")
    frame.drop("reward").write_parquet(tmp_path / "b.parquet")
    logs = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    assert "columns differ" in crbc("filter", *logs, "--drop", "unscored", "-o", "-").refused()


def test_a_damaged_page_is_found_before_anything_is_written(tmp_path: Path) -> None:
    """In a column that no number depends on, so that only copying the rows comes upon it."""
    log = tmp_path / "log.parquet"
    frame = pl.DataFrame(golden_rows()).with_columns(blob=pl.Series(range(9)))
    frame.write_parquet(log, compression="uncompressed")
    group = pq.read_metadata(log).row_group(0)
    chunk = group.column(group.num_columns - 1)
    data = bytearray(log.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    log.write_bytes(data)
    assert crbc("check", log).code == 0
    for output in ("-", tmp_path / "kept.parquet"):
        line = crbc("filter", log, "--drop", "all_fail", "-o", output).refused()
        assert f"{log}: cannot be read as Parquet" in line
    assert list(tmp_path.iterdir()) == [log]


# --- surroundings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", ["1", "0", "-3", "20000"])
def test_terminals_of_any_width(width: str) -> None:
    for command in (["gate", "--at", "1"], ["coverage"], ["compare"], ["explain"], ["check"]):
        ended = crbc(command[0], GOLDEN, *command[1:], env={"COLUMNS": width})
        assert ended.code == 0, ended.stderr


def test_a_terminal_obeys_nothing_that_a_log_says(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    odd = "\x1b[2J\x1b]0;x\x07\x9b1m\u202e"
    names = ("group_id", "rollout_id", "observation", "action")
    log.write_bytes(jsonl([row | {n: row[n] + odd for n in names} for row in golden_rows()]))
    commands = [["check"], ["explain"], ["explain", "--step", f"t0{odd}:1"], ["anchors"]]
    commands += [["gate", "--at", "1", "--per-group"], ["compare"], ["explain", "--group", "x"]]
    for command in commands:
        ended = crbc(command[0], log, *command[1:], env={"NO_COLOR": "1"})
        shown = ended.text + ended.stderr
        assert shown
        assert not set("\x1b\x07\x9b\u202e") & set(shown), command


def test_debug_that_is_off_shows_no_traceback() -> None:
    for off in ("0", "false", "no"):
        crbc("check", "nope", env={"CRBC_DEBUG": off}).refused()
    assert "Traceback" in crbc("check", "nope", env={"CRBC_DEBUG": "1"}).stderr


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd {gone}; rmdir {gone}; exec "$@"'
    command = [sys.executable, "-m", "crbc_cli", "check", str(GOLDEN)]
    done = subprocess.run(["sh", "-c", script, "sh", *command], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_an_error_that_nobody_can_read_is_still_exit_code_2() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "crbc_cli", "check", "nope"]
        assert subprocess.run(command, stderr=full, check=False).returncode == 2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_leaves_no_temporary_file(name: str, tmp_path: Path) -> None:
    """Sent while the output is being written; if the run was faster, its output is whole."""
    log = tmp_path / "log.jsonl"
    rows = golden_rows()
    with log.open("wb") as file:
        for group in range(8000):
            file.write(jsonl([row | {"group_id": group} for row in rows]))
    command = [
        sys.executable,
        "-m",
        "crbc_cli",
        "annotate",
        str(log),
        "-o",
        str(tmp_path / "o.csv"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob(".*.tmp")):
        time.sleep(0.002)
    process.send_signal(getattr(signal, name))
    code = process.wait(60)
    assert code in (0, 130 if name == "SIGINT" else 128 + getattr(signal, name))
    assert not list(tmp_path.glob(".*"))
    assert (tmp_path / "o.csv").exists() == (tmp_path / "o.csv.meta.json").exists()


def test_a_second_signal_ends_the_program_at_once(tmp_path: Path) -> None:
    """Nothing is left even then, whatever the first one was waiting for."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(golden_rows()) * 20_000)
    command = [
        sys.executable,
        "-m",
        "crbc_cli",
        "convert",
        str(log),
        "-o",
        str(tmp_path / "o.parquet"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while process.poll() is None and not list(tmp_path.glob(".*.tmp")):
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode in (0, 128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert b"Traceback" not in told
    assert not list(tmp_path.glob(".*"))


# --- mutations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(150))
def test_mutated_logs_end_in_success_or_one_line(seed: int, tmp_path: Path) -> None:
    run_mutation(seed, tmp_path)
