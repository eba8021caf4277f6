"""What docs/add-a-task.md says, done as it says, in a copy of the project."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.calls import python
from tests.conftest import TINY_FLAGS
from whence.tasks import TASKS

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "add-a-task.md").read_text()
NEW_TASK = PAGE.split("```python\n")[1].split("```")[0]
NEW_FILE = Path(re.findall(r"`(src/whence/tasks/\w+\.py)`", PAGE)[0])


def test_the_page_adds_a_task(project_copy: Path) -> None:
    name = NEW_FILE.stem
    assert name not in TASKS.names()
    (project_copy / NEW_FILE).write_text(NEW_TASK)

    listed = python(project_copy, "-m", "whence", "tasks", "--json")
    assert listed.returncode == 0, listed.stderr
    tasks = {task["name"]: task for task in json.loads(listed.stdout)["tasks"]}
    assert set(tasks) == {name, *TASKS.names()}
    assert "this symbol" in [shortcut["name"] for shortcut in tasks[name]["shortcuts"]]
    assert tasks[name]["skill"]

    choice = re.findall(r"`--task (\S+)`", PAGE)[0]
    assert choice.startswith(name)
    trained = python(
        project_copy, "-m", "whence", "arena", "train", *TINY_FLAGS, "--task", choice, "--steps", "2", "--json"
    )
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["state"] == "finished"

    command = re.findall(rf"-m pytest (\S+) -k {name}", PAGE)[0]
    suite = python(project_copy, "-m", "pytest", "-vv", "-p", "no:cacheprovider", command, "-k", name)
    assert suite.returncode == 0, suite.stdout
    assert f"test_labels_are_the_truth[{name}" in suite.stdout
    assert "failed" not in suite.stdout
