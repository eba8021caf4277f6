"""Imports go one way: kernels, encodings, tasks ← mixers, models ← training, store ← execution ← … ← cli, app."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import whence

LEVELS = [
    {"errors", "config", "registry", "system", "inputs", "recordings", "random", "formatting", "parsing", "stats"}
    | {"lazy"},
    {"kernels", "encodings", "tasks"},
    {"mixers", "models", "shortcuts"},
    {"training", "store"},
    {"execution"},
    {"report"},
    {"experiments"},
    {"arena", "leak", "features", "fields"},
    {"instruments"},
    {"api"},
    {"demo"},
    {"cli", "app", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
INSTRUMENTS = LEVELS[7]


def imported(tree: ast.Module, package: str) -> set[str]:
    """Every whence part named by an import, wherever in the file it stands."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{package}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in found if name.startswith("whence.")} & LEVEL.keys()


def test_imports_go_one_way(source: Path) -> None:
    files = [path for path in (source / "whence").rglob("*.py") if path != source / "whence" / "__init__.py"]
    assert len(files) > 30
    for path in files:
        part = path.relative_to(source / "whence").parts[0].removesuffix(".py")
        assert part in LEVEL, f"{path}: say in this test which level {part!r} belongs to"
        for other in imported(ast.parse(path.read_text()), part):
            allowed = LEVEL[other] < LEVEL[part] or other == part
            if part in INSTRUMENTS and other in INSTRUMENTS:
                allowed = other == part
            siblings = LEVEL[other] == LEVEL[part] and part not in INSTRUMENTS
            assert allowed or siblings, f"{path} imports whence.{other}, which is downstream of {part}"


def test_command_line_and_app_meet_only_where_the_server_is_started(source: Path) -> None:
    meeting = [
        str(path.relative_to(source / "whence"))
        for part, other in (("cli", "app"), ("app", "cli"))
        for path in (source / "whence" / part).rglob("*.py")
        if other in imported(ast.parse(path.read_text()), part)
    ]
    assert meeting == ["cli/app.py"]


DYNAMIC = {
    "training/config.py": "a stored run's kind names the package of its instrument",
    "lazy.py": "the public names of a package, which it is given",
    "registry.py": "a registry loads the variants of the place that it is given",
    "instruments.py": "the list of instruments, above all of them",
    "cli/main.py": "the module of a verb, in cli itself",
    "app/components.py": "the module of a page, in app itself",
    "app/main.py": "loads an instrument before it is needed",
}


def imports_by_name(tree: ast.Module) -> bool:
    """Whether a module of whence may be imported by a name that is put together or passed on."""
    loaders = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in ("import_module", "__import__"))
        or (isinstance(node, ast.Name) and node.id in ("import_module", "__import__"))
    ]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func in loaders]
    foreign = [
        call
        for call in calls
        if call.args and isinstance(call.args[0], ast.Constant) and not str(call.args[0].value).startswith("whence")
    ]
    return len(loaders) > len(foreign)


def test_modules_are_imported_by_name_only_where_there_is_a_reason(source: Path) -> None:
    package = source / "whence"
    files = [path for path in package.rglob("*.py") if path != package / "__init__.py"]
    dynamic = {str(path.relative_to(package)) for path in files if imports_by_name(ast.parse(path.read_text()))}
    assert dynamic <= DYNAMIC.keys()
    assert imports_by_name(ast.parse("importlib.import_module('whence.cli')"))
    assert not imports_by_name(ast.parse("importlib.import_module('mamba_ssm.ops')"))


def test_the_test_itself_can_fail() -> None:
    assert imported(ast.parse("from whence.cli import main\nimport whence.store.runs"), "x") == {"cli", "store"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["runs", "--help"],
        ["runs", "list", "--help"],
        ["report", "--help"],
        ["arena"],
        ["leak"],
        ["features"],
        ["fields"],
        ["arena", "presets", "--help"],
        ["arena", "show", "--help"],
        ["arena", "lst"],
        ["reproduce", "--help"],
        ["demo", "--help"],
        ["nonsense"],
    ],
)
def test_help_does_not_import_torch(arguments: list[str]) -> None:
    code = f"import sys; from whence.cli.main import run\nrun({arguments!r})\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_list_of_commands_is_printed_at_once() -> None:
    """Without pydantic it takes 30 ms, with it 170."""
    code = "import sys; from whence.cli.main import run\nrun(['--help'])\nassert 'pydantic' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there() -> None:
    code = "import sys, whence\nassert 'torch' not in sys.modules\nfor name in whence.__all__: getattr(whence, name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="it has arena, audit"):
        whence.nothing  # noqa: B018
