"""The command line's manners: streams, colours, widths, help, exit codes, start-up."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer
from conftest import GOLDEN, ROOT, crbc, golden_rows, jsonl, program

import crbc_cli
from crbc_cli.cli.main import app

SOKOBAN = ROOT / "sample_logs" / "sokoban.parquet"
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
REPORTS: list[list[object]] = [
    ["coverage", SOKOBAN],
    ["check", SOKOBAN],
    ["explain", SOKOBAN, "--group", pl.read_parquet(SOKOBAN)["group_id"][0]],
    ["explain", GOLDEN, "--step", "t0:0"],
    ["profile", SOKOBAN],
]
ESCAPE = "\x1b["


def test_version_and_module() -> None:
    """`crbc` and `python -m crbc_cli` are one program."""
    shown = program("--version")
    assert (shown.code, shown.text, shown.stderr) == (0, f"crbc {crbc_cli.__version__}\n", "")
    script = Path(sys.executable).with_name("crbc")
    if script.exists():
        installed = subprocess.run([script, "--version"], capture_output=True, check=True)
        assert installed.stdout == shown.stdout


def test_help_lists_every_command() -> None:
    ended = crbc("--help")
    assert ended.code == 0
    for name in COMMANDS:
        assert re.search(rf"^\W*{name}\s", ended.text, re.MULTILINE), name
    bare = crbc()
    assert bare.code == 2
    assert bare.stdout == b""
    assert "annotate" in bare.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_holds_an_example_that_parses(command: str) -> None:
    """Every word after the example's `crbc` is one the program knows."""
    ended = crbc(command, "-h")
    assert ended.code == 0
    assert all(len(line) <= 80 for line in ended.text.splitlines())
    assert COMMANDS[command].help
    examples = re.findall(r"crbc (\w+)([^;|<>]*)", COMMANDS[command].epilog.split("Example: ")[1])
    assert examples
    for name, words in examples:
        assert name == command
        options = {flag for option in COMMANDS[name].params for flag in option.opts}
        assert set(re.findall(r"(?<=\s)--?[a-z][\w-]*", words)) <= options


def test_every_option_is_explained() -> None:
    for name, command in COMMANDS.items():
        for option in command.params:
            if option.param_type_name == "option":
                assert option.help, (name, option.name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "No such command 'nonsense'; see crbc --help"),
        (["annotate", "--nonsense"], "No such option: --nonsense"),
        (["annotate", GOLDEN, "--depth"], "--depth"),
        (["annotate", GOLDEN, "--depth", "-1"], "depth '-1' is not a whole number or inf"),
        (["annotate", GOLDEN, "--discount", "1.5"], "--discount 1.5 is outside [0, 1]"),
        (["annotate", GOLDEN, "--discount", "much"], "--discount"),
        (["annotate", GOLDEN, "--gate", "all"], "use one of actions, successors, none"),
        (["annotate", GOLDEN, "--ddof", "2"], "--ddof 2 is not 0 or 1"),
        (["annotate", GOLDEN, "--chunk-rows", "0"], "--chunk-rows"),
        (["coverage", GOLDEN, "--depth", "3..1"], "depth range '3..1' is empty"),
        (["coverage", GOLDEN, "--eligible", "some"], "--eligible"),
        (["coverage", GOLDEN, "--unit", "rows"], "--unit"),
    ],
)
def test_usage_errors_are_one_line(arguments: list[object], said: str) -> None:
    assert said in crbc(*arguments).refused()


def test_traceback_only_with_debug() -> None:
    plain = crbc("annotate", "gone.jsonl")
    assert "gone.jsonl: no such file" in plain.refused()
    for arguments, env in (
        (("--debug", "annotate", "gone.jsonl"), {}),
        (("annotate", "gone.jsonl", "--debug"), {}),
        (("annotate", "gone.jsonl"), {"CRBC_DEBUG": "1"}),
    ):
        told = crbc(*arguments, env=env)
        assert told.code == 2
        assert told.stderr.startswith("Traceback")
        assert told.stderr.endswith(plain.stderr)


@pytest.mark.parametrize("arguments", REPORTS, ids=lambda words: " ".join(map(str, words[::2])))
def test_reports_for_people(arguments: list[object]) -> None:
    """On stdout alone, plain in a pipe, coloured when forced, no wider than COLUMNS."""
    ended = crbc(*arguments)
    assert ended.code in (0, 1)
    assert ended.text
    assert ESCAPE not in ended.text + ended.stderr
    assert max(len(line) for line in ended.text.splitlines()) <= 80
    forced = crbc(*arguments, env={"FORCE_COLOR": "1"})
    assert ESCAPE in forced.text
    neither = crbc(*arguments, env={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert ESCAPE not in neither.text
    assert not any(line.endswith(" ") for line in ended.text.splitlines())
    unset = crbc(*arguments, env={"COLUMNS": ""})
    assert max(len(line) for line in unset.text.splitlines()) <= 80
    narrow = crbc(*arguments, env={"COLUMNS": "60"})
    assert max(len(line) for line in narrow.text.splitlines()) <= 60
    quiet = crbc(*arguments, "-q")
    assert quiet.stderr == ""


def test_data_on_stdout_everything_else_on_stderr(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(golden_rows()) + b'{"torn')
    piped = crbc("annotate", log, "-o", "-", "--to", "jsonl", "--profile")
    assert len(piped.rows) == 9
    assert piped.stderr.splitlines()[0] == "9 rows, 4 rollouts, 1 group -> -"
    assert f"warning: {log}:10: last line is torn and left out" in piped.stderr
    for stage in ("import", "read", "arrange", "build", "solve", "coverage", "combine", "write"):
        assert re.search(rf"^ {stage} +\d+\.\d+ +\d+\.\d %", piped.stderr, re.MULTILINE), stage
    filed = crbc("annotate", log, "-o", tmp_path / "x.csv")
    assert filed.stdout == b""
    assert filed.stderr.splitlines()[0] == f"9 rows, 4 rollouts, 1 group -> {tmp_path}/x.csv"
    quiet = crbc("annotate", log, "-o", tmp_path / "y.csv", "--quiet")
    assert (quiet.code, quiet.stdout, quiet.stderr) == (0, b"", "")
    strict = crbc("coverage", log, "--json", "--strict")
    assert (strict.code, strict.json["eligible_units"]) == (1, 9)


def test_coverage_for_machines() -> None:
    """CSV and JSON say the same; on the golden group, algorithms section 2.10: V at depth 0 sees
    its own visits, and everything settles at depth 1 with 4 rollouts at S and N, 3 at M."""
    report = crbc("coverage", GOLDEN, "--json", "--depth", "0..inf").json
    assert (report["eligible_units"], report["settled_at_depth"]) == (9, 1)
    distributions = {
        entry["depth"]: {d["rollouts"]: d["count"] for d in entry["distribution"] if d["count"]}
        for entry in report["depths"]
    }
    # S is visited by four rollouts, M by three, N by two: 4, 3 and 2 visits.
    assert distributions[0] == {4: 4, 3: 3, 2: 2}
    assert distributions["inf"] == {4: 6, 3: 3}
    lines = crbc("coverage", GOLDEN, "--csv").text.splitlines()
    assert lines[0] == "depth,rollouts,count,share"
    rows = [line.split(",") for line in lines[1:]]
    assert {(d, int(r)): int(n) for d, r, n, _ in rows if n != "0"} == {
        (str(depth), rollouts): count
        for depth, counts in distributions.items()
        for rollouts, count in counts.items()
    }


def test_start_up_imports_nothing_heavy() -> None:
    """Help, version and completion answer without polars, numpy and the rest."""
    heavy = ("polars", "numpy", "scipy", "pyarrow", "pandas", "torch", "crbc_cli.api")
    code = (
        "import sys\n"
        "from crbc_cli.cli.main import app\n"
        "for words in (['--help'], ['annotate', '--help'], ['--version'], ['config']):\n"
        "    app(words, prog_name='crbc', standalone_mode=False)\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stderr.strip() == "[]"
    ran = f"{code}app(['coverage', {str(GOLDEN)!r}], prog_name='crbc', standalone_mode=False)\n"
    shows = "print('pydantic' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", ran + shows], capture_output=True, check=True)
    assert done.stderr.split()[-1] == b"False"
    imported = "import sys, crbc_cli; print('polars' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", imported], capture_output=True, check=True)
    assert shown.stdout.strip() == b"False"


@pytest.mark.parametrize("command", COMMANDS)
def test_values_are_those_that_typer_makes(command: str) -> None:
    """What is taken as given, without typer's conversion, is what that would have given."""
    made = COMMANDS[command]
    context = made.context_class(made, info_name=command)
    values = [None, "", "x", "3", "1.5", "yes", 0, 3, -1, 1.5, True, (), ["a"], ("a", "b"), [1]]
    taken = 0
    for parameter in made.get_params(context):
        if parameter.name == "help":
            continue  # it prints, and ends the program
        convert = parameter.process_value.args[1]
        for value in values:
            found = outcome(parameter.process_value, context, value)
            assert found == outcome(convert, context, value), (parameter.name, value)
            taken += found == repr(value)
    assert taken > 5


SEVERAL = [
    (command, option.name, max(option.opts, key=len))
    for command, made in COMMANDS.items()
    for option in made.params
    if "[," in (getattr(option, "metavar", None) or "")
]


@pytest.mark.parametrize(("command", "name", "flag"), SEVERAL)
def test_what_takes_several_may_be_repeated(command: str, name: str, flag: str) -> None:
    """`--drop a --drop b` is `--drop a,b`; of other options the last one counts, as everywhere."""
    made = COMMANDS[command]
    for words in ([flag, "1", f"{flag}=2", "x", flag, "3"], ["x", flag, "1,2,3"]):
        context = made.make_context(command, [*words, "--", "--method"], resilient_parsing=True)
        assert context.params[name] == "1,2,3"
        assert "--method" in str(context.params) + str(context.args)
    assert len(SEVERAL) > 20


def test_of_a_repeated_number_the_last_one_counts() -> None:
    context = COMMANDS["annotate"].make_context("annotate", ["--depth", "3", "--depth=5", "x"])
    assert context.params["depth"] == "5"


def outcome(process: Callable[..., Any], context: Any, value: Any) -> str:
    """What becomes of a value, or the error."""
    try:
        return repr(process(context, value))
    except typer.BadParameter as error:
        return str(error)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("annotate --anchor", "--anchor-id"),
        ("annotate --singleton r", "raw"),
        ("annotate --normalize strip,c", "strip,case"),
        ("annotate --to ar", "arrow"),
        ("annotate --preset sok", "sokoban"),
        ("annotate --method gi", "gigpo"),
        ("coverage --unit a", "anchors"),
        ("filter --drop ok,all_f", "ok,all_fail"),
        ("gate --signal uni", "unique_action"),
        ("methods rew", "rewardflow"),
        ("schema r", "report"),
        ("config fil", "filter"),
    ],
)
def test_completion(typed: str, offered: str) -> None:
    """Of options, and of values where the known ones are few."""
    words = f"crbc {typed}"
    completed = subprocess.run(
        [sys.executable, "-m", "crbc_cli"],
        env={
            "_CRBC_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
        capture_output=True,
        check=False,
        text=True,
    )
    assert offered in completed.stdout.split()


def test_closed_streams_and_narrow_encodings(tmp_path: Path) -> None:
    """`>&-` and `<&-` are no reason to fail, nor is a terminal that knows only ASCII."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(row | {"group_id": "g\u00f6lden"} for row in golden_rows()))
    words = f"{sys.executable} -m crbc_cli annotate {log} -o {tmp_path}/x.csv"
    done = subprocess.run(
        ["sh", "-c", f"{words} <&- >&-"], capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stderr[:6]) == (0, "9 rows")
    assert "g\u00f6lden" in (tmp_path / "x.csv").read_text("utf-8")
    for command in ("annotate", "convert"):
        words = f"{sys.executable} -m crbc_cli {command} {log} -o -"
        done = subprocess.run(["sh", "-c", f"{words} >&-"], capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr == "crbc: error: stdout is closed; name a file with -o\n"
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    shown = program("explain", log, env=ascii_only)
    assert shown.code == 0
    assert "group g\\xf6lden: ok" in shown.text
    assert program("explain", log, "--json", env=ascii_only).json["group_id"] == "g\u00f6lden"


def test_method_and_methods_are_one_option_wherever_either_is_taken() -> None:
    found = {
        name: {*option.opts}
        for name, command in COMMANDS.items()
        for option in command.params
        if {"--method", "--methods"} & {*option.opts}
    }
    assert found.keys() == {"annotate", "compare", "report", "steps"}
    assert all(flags == {"--method", "--methods"} for flags in found.values())


def test_a_misspelt_variable_is_told() -> None:
    variables = {"CRBC_DEPHT": "1", "CRBC_HOME": "x", "CRBC_LOG": "y", "CRBC_DISCOUNT": "0.9"}
    shown = program("coverage", GOLDEN, env=variables)
    assert program("coverage", GOLDEN, "--quiet", env=variables).stderr == ""
    told = [line for line in shown.stderr.splitlines() if "variable" in line]
    assert told == [
        "warning: environment variable CRBC_DEPHT is no option; did you mean CRBC_DEPTH?"
    ]
