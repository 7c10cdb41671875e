"""Data moves one way: a module imports only from layers above its own, and each layer has its own
vocabulary (tables, arrays, terminal)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import crbc_cli

PACKAGE = Path(crbc_cli.__file__).parent
LAYERS = (
    "errors",
    "tables",
    "options",
    "notes",
    "logs",
    "anchors",
    "rollouts",
    "process",
    "methods",
    "engine",
    "trainers",
    "report",
    "api",
    "cli",
)
VOCABULARY = {
    "polars": {"logs", "anchors", "rollouts", "engine", "trainers", "api"},
    "pyarrow": {"logs", "anchors", "rollouts", "engine", "trainers", "api"},
    "rich": {"report", "cli"},
    "vl_convert": {"report"},
    "fast_sugiyama": {"report"},
    "typer": {"cli"},
    "torch": {"trainers"},
    "ray": {"engine"},
    "verl": {"trainers"},
    "scipy": {"process", "methods"},
}
"""Library -> the layers that may import it."""


@dataclass(frozen=True)
class Import:
    """One import statement's target, wherever in the module it stands."""

    module: str  # the importing module, dotted
    line: int
    target: str  # dotted

    @property
    def layer(self) -> str:
        return self.module.split(".")[1]

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def imports() -> Iterator[Import]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if module in ("crbc_cli", "crbc_cli.__main__"):  # the facade and `python -m`
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield Import(module, node.lineno, name.name)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}:{node.lineno}: relative import"
                if node.module == "crbc_cli":
                    for name in node.names:
                        yield Import(module, node.lineno, f"crbc_cli.{name.name}")
                else:
                    yield Import(module, node.lineno, node.module or "")


ALL = tuple(imports())


def own_layer(target: str) -> str | None:
    """Layer of a target inside the package."""
    root, _, rest = target.partition(".")
    return rest.split(".")[0] if root == "crbc_cli" else None


def test_every_module_belongs_to_a_layer() -> None:
    assert len(ALL) > 100
    assert {entry.layer for entry in ALL} <= set(LAYERS)


def test_modules_import_only_from_layers_above() -> None:
    wrong = []
    for entry in ALL:
        target = own_layer(entry.target)
        if target is None or entry.target == "crbc_cli.__version__":
            continue
        if LAYERS.index(target) > LAYERS.index(entry.layer):
            wrong.append(str(entry))
    assert not wrong


@pytest.mark.parametrize("library", VOCABULARY)
def test_each_library_stays_in_its_layers(library: str) -> None:
    wrong = [
        str(entry)
        for entry in ALL
        if entry.target.split(".")[0] == library and entry.layer not in VOCABULARY[library]
    ]
    assert not wrong


@pytest.mark.parametrize("layer", ["process", "methods"])
def test_numerical_layers_know_arrays_only(layer: str) -> None:
    """No paths, no frames: numpy, scipy, string distances, the standard library and options."""
    standard = sys.stdlib_module_names - {"pathlib", "os", "io", "logging"}
    allowed = standard | {"numpy", "scipy", "rapidfuzz"}
    own = {"errors", "options", "process", "methods"}
    for entry in ALL:
        if entry.layer == layer:
            root = entry.target.split(".")[0]
            assert own_layer(entry.target) in own if root == "crbc_cli" else root in allowed, entry


def test_no_module_prints_but_the_terminal_layers() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if layer in ("cli", "report"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{path}:{node.lineno}"


def fresh(code: str) -> str:
    """Stdout of a program in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def loaded(statement: str, names: tuple[str, ...]) -> list[str]:
    """Which of `names` a new interpreter has imported after `statement`."""
    return fresh(
        f"import sys; {statement}; print(*(m for m in {names} if m in sys.modules))"
    ).split()


def test_starting_imports_nothing_heavy() -> None:
    """So that help and completion are instant."""
    heavy = ("polars", "scipy", "pyarrow", "numpy", "torch", "rich", "altair")
    assert loaded("import crbc_cli.cli.main", heavy) == []
    assert loaded("import crbc_cli", (*heavy, "msgspec", "typer")) == []


def test_computing_never_imports_the_terminal() -> None:
    assert loaded("import crbc_cli.api", ("rich", "altair", "torch", "typer")) == []


@pytest.mark.parametrize("first", ["annotate", "credit", "__version__"])
def test_public_names_are_callable_whatever_is_used_first(first: str) -> None:
    """No submodule takes the place of a public function of the same name."""
    used = f"import crbc_cli; crbc_cli.{first}"
    shown = fresh(
        f"{used}; print(*(n for n in crbc_cli.__all__ if callable(getattr(crbc_cli, n))))"
    )
    assert shown.split() == [name for name in crbc_cli.__all__ if name != "__version__"]
