"""Tasks: one file each. `TASKS.choose("k_back_recall:k=3")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.registry import Choice, Registry
from whence.tasks.base import Task

TASKS: Registry[Task] = Registry(__name__, Task)

if TYPE_CHECKING:
    TaskChoice = Choice


def __getattr__(name: str) -> Any:
    if name == "TaskChoice":
        return TASKS.union()
    raise AttributeError(f"whence.tasks has no {name!r}")
