"""`d_model=64,128;k=1,3,7`: values to try, written as one word and unfolded into settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from whence.arena.run import ArenaRun, Lengths
from whence.errors import UserError, not_allowed
from whence.models.sequence import Architecture
from whence.registry import Choice
from whence.tasks.base import Task
from whence.training.config import TrainingConfig

Grid = list[tuple[str, list[str]]]
TUNABLE = ("lr", "schedule", "warmup", "weight_decay", "clip", "dropout")
GROUPS = {"model": Architecture, "lengths": Lengths, "training": TrainingConfig}


def parse_grid(field: str, text: str, tasks: Sequence[Choice[Task]]) -> Grid:
    """Fields and the values to try, from the text that a user wrote.

    Tuning is of how a model is trained: models of other sizes, or trained for longer, are no longer compared alike.
    """
    options = {option for task in tasks for option in task.options()}
    known = [name for spec in GROUPS.values() for name in spec.model_fields] + sorted(options)
    if field == "tune":
        known = list(TUNABLE)
    grid: Grid = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, values = (piece.strip() for piece in part.partition("="))
        listed = [value.strip() for value in values.split(",")]
        if len(set(listed)) != len(listed):
            raise UserError(f"{field}: {part!r} names a value twice. Allowed: each once.", field=field)
        if not equals or "" in listed:
            raise UserError(f"{field}: {part!r} is not valid. Allowed: FIELD=VALUE,VALUE;FIELD=VALUE,…", field=field)
        if name not in known:
            raise not_allowed(field, name, known)
        if name in dict(grid):
            raise UserError(f"{field}: {name!r} is named twice. Allowed: once.", field=field)
        grid.append((name, listed))
    return grid


def group_of(name: str) -> str | None:
    """Which part of a run a field belongs to; None for an option of a task."""
    return next((group for group, spec in GROUPS.items() if name in spec.model_fields), None)


def unfold(grid: Grid, task: Choice[Task]) -> Iterator[dict[str, str]]:
    """Every setting that makes a difference to this task: options that it does not have are left out."""
    applies = [(name, values) for name, values in grid if group_of(name) or name in task.options()]
    for values in itertools.product(*(values for _, values in applies)):
        yield dict(zip((name for name, _ in applies), values, strict=True))


def apply(setting: dict[str, str], run: dict[str, Any]) -> ArenaRun:
    """A run's document with the setting written into it."""
    document = {key: dict(value) if isinstance(value, dict) else value for key, value in run.items()}
    for name, value in setting.items():
        group = group_of(name)
        document[group or "task"][name] = None if value == "none" else value
    return ArenaRun.read(document)
