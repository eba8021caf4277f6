"""What is released: one version, complete metadata, and a wheel that works alone in an empty environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import whence

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src" / "whence"
PYPROJECT: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())


def read_yaml(name: str) -> dict[Any, Any]:
    return yaml.safe_load((PROJECT / name).read_text())


def test_the_version_is_in_one_place() -> None:
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "src/whence/__init__.py"
    others = [PROJECT / name for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md")]
    others += [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    assert not [path for path in others if whence.__version__ in path.read_text()]


def test_there_is_a_citation_and_a_changelog() -> None:
    citation = read_yaml("CITATION.cff")
    assert {"cff-version", "message", "title", "abstract", "authors", "license"} <= citation.keys()
    assert citation["license"] == PYPROJECT["project"]["license"]
    assert "\n## [Unreleased]\n" in (PROJECT / "CHANGELOG.md").read_text()


def test_commits_and_ci_run_what_make_runs() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    steps = [step for job in read_yaml(".github/workflows/test.yml")["jobs"].values() for step in job["steps"]]
    called = {step["run"].split()[1] for step in steps if step.get("run", "").startswith("make ")}
    assert {"lint", "test", "test-fast", "wheel-test"} == called <= targets
    hooks = [hook for repo in read_yaml(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    lint = makefile.split("\nlint:")[1].split("\n\n")[0].replace("$(BIN)", ".venv/bin")
    for hook in hooks:
        assert hook["entry"].replace(" --force-exclude", "").removesuffix(" .") in lint.replace(" .\n", "\n")


# --- the wheel


def run(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """In an environment that does not lead back to this source tree. Builds take the pinned versions, too."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "WHENCE", "VIRTUAL_ENV"))}
    environment = {**kept, "PIP_CONSTRAINT": str(PROJECT / "constraints.txt"), "COLUMNS": "120"}
    arguments = [str(part) for part in command]
    done = subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, as `python -m build` does."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, PROJECT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and its core dependencies."""
    place = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", place, cwd=place)
    pip = (place / "bin" / "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, "torch", cwd=place)  # first, as the Makefile does
    run(*pip, wheel, cwd=place)
    return place / "bin"


@pytest.mark.slow
def test_the_wheel_holds_all_files_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    missing = {f"whence/{path.relative_to(PACKAGE)}" for path in files} - names
    assert not missing
    assert "whence/py.typed" in names
    forced = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"].get("force-include", {})
    for source, target in forced.items():
        assert {f"{target}/{path.name}" for path in (PROJECT / source).iterdir()} <= names
    assert f"whence-{whence.__version__}" in wheel.name


@pytest.mark.slow
def test_only_core_dependencies_are_installed(installed: Path) -> None:
    listed = run(installed / "pip", "list", "--format=freeze", cwd=installed).stdout
    names = {line.partition("==")[0].lower() for line in listed.splitlines()}
    assert {"whence", "torch", "numba", "plotly"} <= names
    assert not names & {"streamlit", "transformers", "pillow", "pytest", "scikit-learn", "scikit-image"}


SMALL = (
    "--steps 3 --batch-size 4 --evaluations 1 --seeds 2 --d-model 16 --heads 2 --layers 1 --train-length 16 "
    "--test-lengths 32 --test-sequences 16"
)
COMMANDS = {
    "whence --version": whence.__version__,
    "whence --help": "arena",
    "whence encodings": "rope",
    "whence tasks copy": "shortcuts",
    "whence arena presets": "source_encodings",
    "whence features presets": "plain_topk",
    f"whence arena compare --tasks copy --encodings rope none {SMALL}": "report",
    "whence runs list": "rope",
    "whence leak compare --data synthetic:steps=48,channels=2 --mitigations none --seeds 1 --steps 3": "report",
    "whence features compare --presets plain_topk --seeds 1 --steps 3": "report",
    "whence demo --quick": "index.html",
}


@pytest.mark.slow
def test_the_wheel_works_alone(installed: Path, tmp_path: Path) -> None:
    for command, expected in COMMANDS.items():
        program, *arguments = command.split()
        done = run(installed / program, *arguments, cwd=tmp_path)
        assert expected in done.stdout + done.stderr, command


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("whence app --no-browser", "pip install 'whence[app]'"),
        ("whence leak audit --model minilm", "pip install transformers"),
        ("whence fields train --data photos", "pip install"),
    ],
)
def test_what_is_missing_is_named(command: str, expected: str, installed: Path, tmp_path: Path) -> None:
    program, *arguments = command.split()
    done = run(installed / program, *arguments, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
