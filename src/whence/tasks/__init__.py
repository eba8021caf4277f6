"""Tasks: one file each. `TASKS.choose("k_back_recall:k=3")`."""

from __future__ import annotations

from typing import Annotated

from whence.registry import Choice, Registry
from whence.tasks.base import Task

TASKS: Registry[Task] = Registry(__name__, Task)
TaskChoice = Annotated[Choice[Task], TASKS]
