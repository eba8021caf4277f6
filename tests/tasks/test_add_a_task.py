"""What docs/add-a-task.md says, done as it says, in a copy of the project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TINY_FLAGS
from whence.tasks import TASKS

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "add-a-task.md").read_text()
NEW_TASK = PAGE.split("```python\n")[1].split("```")[0]
NEW_FILE = Path(re.findall(r"`(src/whence/tasks/\w+\.py)`", PAGE)[0])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for part in ("src", "tests"):
        shutil.copytree(PROJECT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    return tmp_path


def python(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(project / "src")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def test_the_page_adds_a_task(copy: Path) -> None:
    name = NEW_FILE.stem
    assert name not in TASKS.names()
    (copy / NEW_FILE).write_text(NEW_TASK)

    listed = python(copy, "-m", "whence", "tasks", "--json")
    assert listed.returncode == 0, listed.stderr
    tasks = {task["name"]: task for task in json.loads(listed.stdout)["tasks"]}
    assert set(tasks) == {name, *TASKS.names()}
    assert "this symbol" in tasks[name]["floors"]

    choice = re.findall(r"`--task (\S+)`", PAGE)[0]
    assert choice.startswith(name)
    trained = python(copy, "-m", "whence", "train", *TINY_FLAGS, "--task", choice, "--steps", "2", "--json")
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["state"] == "finished"

    command = re.findall(rf"-m pytest (\S+) -k {name}", PAGE)[0]
    suite = python(copy, "-m", "pytest", "-vv", "-p", "no:cacheprovider", command, "-k", name)
    assert suite.returncode == 0, suite.stdout
    assert f"test_labels_are_the_truth[{name}" in suite.stdout
    assert "failed" not in suite.stdout
