"""Imports go one way: kernels, encodings, tasks ← mixers, models ← training, store ← execution ← … ← cli, app."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

LEVELS = [
    {"errors", "config", "registry", "system", "recordings", "random", "formatting", "stats"},
    {"kernels", "encodings", "tasks"},
    {"mixers", "models", "shortcuts"},
    {"training", "store"},
    {"execution"},
    {"report"},
    {"experiments"},
    {"arena", "leak", "features", "fields"},
    {"instruments"},
    {"api"},
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
        ["nonsense"],
    ],
)
def test_help_does_not_import_torch(arguments: list[str]) -> None:
    code = f"import sys; from whence.cli.main import run\nrun({arguments!r})\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
