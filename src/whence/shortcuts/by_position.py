"""Baselines per position, for tasks with an answer per token."""

from __future__ import annotations

import functools

import torch

from whence.shortcuts.answers import Answers
from whence.shortcuts.classes import CLASSES
from whence.shortcuts.fit import look_up
from whence.shortcuts.search import expressed_by
from whence.tasks.base import Task

SEQUENCES = 4096
CLASSES_BY_POSITION = ("majority", "declared", "last tokens", "window sums", "variety")
"""Not the first tokens: seen from one position, each of them stands at a fixed distance."""


def baseline_by_position(task: Task, length: int) -> dict[int, float]:
    """The highest accuracy of a shortcut at each position that is scored.

    Lookup tables on a few cheap feature classes only, fitted at each position separately: a lower bound of what a full
    search at each position would find. Measured once per process.
    """
    return dict(_measured(task, length))


@functools.lru_cache(maxsize=256)
def _measured(task: Task, length: int) -> dict[int, float]:
    batch = task.sample(torch.Generator().manual_seed(0), SEQUENCES, length)
    declared, half = task.shortcuts(batch), SEQUENCES // 2
    functions = [keys for name in CLASSES_BY_POSITION if name not in expressed_by(task) for keys in CLASSES[name].keys]
    result: dict[int, float] = {}
    for at in batch.scored.all(0).nonzero().flatten().tolist():
        answers = Answers(
            task,
            length,
            torch.where(torch.arange(batch.inputs.shape[1]) <= at, batch.inputs, task.symbols),
            torch.full((SEQUENCES,), at),
            batch.targets[:, at],
            torch.arange(SEQUENCES),
            {name: feature[:, at] for name, feature in declared.items()},
        )
        known, asked = answers.targets[:half], answers.targets[half:]
        tables = [feature for keys in functions for feature in keys(answers).values()]
        right = [(look_up(f[:half], known, f[half:]) == asked).double().mean().item() for f in tables]
        result[at] = max(1 / task.outputs, *right)
    return result
