"""Where an option's value comes from: flag > environment > file > default."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import GOLDEN, crbc, credit

from crbc_cli.cli.main import app
from crbc_cli.options import Settings

LOG_COMMANDS = ("annotate", "check", "coverage", "explain", "filter", "profile")


def effective(command: str = "annotate", **how: Any) -> dict[str, tuple[str, str]]:
    """Option -> (value, origin) as `crbc config` shows them."""
    ended = crbc("config", command, "--show-origin", **how)
    assert ended.code == 0, ended.stderr
    header, *lines = ended.text.splitlines()
    assert header == f"[{command}]"
    shown = {}
    for line in lines:
        name, _, rest = line.removeprefix("# ").partition(" = ")
        value, _, origin = rest.partition("  # ")
        assert line.startswith("# ") == (origin == "default"), line
        shown[name] = (value, origin)
    return shown


def resolved(*arguments: object, **how: Any) -> dict[str, Any]:
    """Options that a run really used, as its report echoes them."""
    ended = crbc(*arguments, "coverage", GOLDEN, "--json", **how)
    assert ended.code == 0, ended.stderr
    options: dict[str, Any] = ended.json["options"]
    return options


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    (tmp_path / "crbc.toml").write_text("discount = 0.5\ngate = 'none'\nw-s = 2\n")
    env = {"CRBC_DISCOUNT": "0.7", "CRBC_GATE": "successors"}

    def options(*flags: str, env: dict[str, str] | None = None) -> list[Any]:
        output = tmp_path / "x.parquet"
        how: dict[str, Any] = {"cwd": tmp_path, "env": env}
        ended = crbc("annotate", GOLDEN, "-o", output, "--to", "csv", "--force", *flags, **how)
        assert ended.code == 0, ended.stderr
        made = json.loads(Path(f"{output}.meta.json").read_text())["options"]
        return [made[name] for name in ("discount", "gate", "w_s", "w_g")]

    assert options() == [0.5, "none", 2.0, 1.0]
    assert options(env=env) == [0.7, "successors", 2.0, 1.0]
    assert options("--discount", "0.9", env=env) == [0.9, "successors", 2.0, 1.0]
    shown = effective(cwd=tmp_path, env=env)
    assert shown["discount"] == ("0.7", "environment CRBC_DISCOUNT")
    assert shown["w_s"] == ("2.0", "config file")
    assert shown["w_g"] == ("1.0", "default")


def test_nearest_file_and_named_file(tmp_path: Path) -> None:
    """Upwards from here: crbc.toml, or a pyproject.toml that has [tool.crbc]; --config wins."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.crbc]\ndiscount = 0.1\n")
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert resolved(cwd=inner)["discount"] == 0.1
    (tmp_path / "a" / "crbc.toml").write_text("discount = 0.2\n")
    assert resolved(cwd=inner)["discount"] == 0.2
    named = tmp_path / "other.toml"
    named.write_text("discount = 0.3\n")
    assert resolved("--config", named, cwd=inner)["discount"] == 0.3
    assert resolved(cwd=inner, env={"CRBC_CONFIG": str(named)})["discount"] == 0.3
    assert resolved(cwd=tmp_path.parent)["discount"] == 0.98


def test_values_in_a_file(tmp_path: Path) -> None:
    """Lists, booleans, repeated options; a command's own table wins over the keys for all."""
    (tmp_path / "crbc.toml").write_text(
        "anchor = ['observation', 'action']\n"
        "map = ['success=done', 'reward=reward']\n"
        "expected-group-size = 4\n"
        "spanning_groups = true\n"
        "depth = 2\n"
        "[coverage]\ndepth = '0..1'\neligible = 'all'\n"
    )
    ended = crbc("coverage", GOLDEN, "--json", cwd=tmp_path)
    report = ended.json
    assert [entry["depth"] for entry in report["depths"]] == [0, 1]
    assert report["eligible"] == "all"
    expected = {"anchor": ["observation", "action"], "map": ["success=done", "reward=reward"]}
    expected |= {"expected_group_size": 4, "spanning_groups": True}
    assert {name: report["options"][name] for name in expected} == expected
    assert effective(cwd=tmp_path)["depth"] == ('"2"', "config file")
    assert credit(GOLDEN, cwd=tmp_path)["visits"].to_list() == [2, 2, 2, 1, 2, 1, 2, 2, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("discuont = 0.5", "discuont is no option"),
        ("logs = ['x']", "logs is no option"),
        ("[annotat]\ndepth = 1", "table [annotat] names no command"),
        ("[coverage]\nresume = true", "resume is no option"),
        ("discount = ", "is not TOML"),
        ("discount = 'much'", "--discount"),
        ("discount = 2", "--discount 2.0 is outside [0, 1]"),
    ],
)
def test_a_file_that_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "crbc.toml"
    path.write_text(text)
    assert said in crbc("annotate", GOLDEN, "-o", "-", "--to", "csv", cwd=tmp_path).refused()
    command = "coverage" if "[coverage]" in text else "annotate"
    assert said in crbc("config", command, cwd=tmp_path).refused()


def test_named_file_that_is_not_there(tmp_path: Path) -> None:
    line = crbc("--config", tmp_path / "gone.toml", "coverage", GOLDEN).refused()
    assert "gone.toml: config file cannot be read" in line
    assert "'x' is no command" in crbc("config", "x").refused()


@pytest.mark.parametrize("command", LOG_COMMANDS)
def test_what_config_prints_is_a_config_file(command: str, tmp_path: Path) -> None:
    """It says what the surroundings said, in types a config file may hold, and no default more."""
    env = {
        "CRBC_MASK": r'"\d+"',
        "CRBC_ANCHOR": "observation,a",
        "CRBC_KEY": "é\x7f",
        "CRBC_GROUP_STRIDE": "3",
        "CRBC_ALLOW_UNEVEN": "1",
    }
    ended = crbc("config", command, "--show-origin", env=env)
    expected = {
        "mask": [r'"\d+"'],
        "anchor": ["observation", "a"],
        "key": ["é\x7f"],
        "group_stride": 3,
        "allow_uneven": True,
    }
    assert tomllib.loads(ended.text) == {command: expected}
    everything = "\n".join(line.removeprefix("# ") for line in ended.text.splitlines())
    (tmp_path / "crbc.toml").write_text(everything, "utf-8")
    again = crbc("config", command, cwd=tmp_path)
    assert tomllib.loads(again.text) == tomllib.loads(everything)


def test_every_option_has_an_environment_variable() -> None:
    """CRBC_ and the option's name, and `crbc config` shows what it does."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name in LOG_COMMANDS:
        for option in commands[name].params:
            if option.param_type_name != "option" or option.name == "help":
                continue
            flags = [flag.strip("-").replace("-", "_").upper() for flag in option.opts]
            known = {f"CRBC_{part}{flag}" for flag in flags for part in ("", f"{name.upper()}_")}
            assert option.envvar in known, option.name
    env = {"CRBC_DEPTH": "0", "CRBC_SINGLETON": "raw", "CRBC_MAP": "reward=reward success=done"}
    assert effective(env=env)["singleton"] == ('"raw"', "environment CRBC_SINGLETON")
    ended = crbc("explain", GOLDEN, "--json", env=env | {"CRBC_STEP": "t0:0"})
    assert ended.json["step"]["step"] == 0
    asked = {"depth": 0, "singleton": "raw", "map": ["reward=reward", "success=done"]}
    assert {name: ended.json["options"][name] for name in asked} == asked
    assert "depth 'deep'" in crbc("annotate", GOLDEN, env={"CRBC_DEPTH": "deep"}).refused()
    assert "--force" in crbc("annotate", GOLDEN, env={"CRBC_FORCE": "perhaps"}).refused()


def test_library_and_command_line_share_defaults() -> None:
    """No flag at all means the dataclasses' own defaults."""
    assert resolved() == Settings().echo()
