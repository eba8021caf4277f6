"""What an evaluation counts, and how counts of several lengths are added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from whence.models.layers import loss
from whence.tasks.base import Batch, Task

BINS = 64
"""Accuracy by position is kept in at most so many bins: long sequences must not make long files."""


class EvalCounts:
    """Counts over one evaluation set. In a task asked at every position, only those from `first` on count."""

    def __init__(self, task: Task, tokens: int, first: int = 0) -> None:
        self.task, self.first = task, first
        self.width = -(-tokens // BINS)
        self.correct = self.total = self.sequences = self.squares = self.exact = 0
        self.loss = 0.0
        bins = -(-tokens // self.width)
        self.by_position = torch.zeros(2, bins, dtype=torch.long)

    def add(self, batch: Batch, outputs: Tensor) -> None:
        counted = self.task.counted(batch, self.first)
        right = self.task.correct(outputs, batch.targets) & counted
        asked, known = (t.reshape(len(counted), -1).sum(1) for t in (counted, right))
        total = int(asked.sum())
        self.loss += loss(self.task.goal, outputs, batch.targets, counted).item() * total
        self.correct, self.total = self.correct + int(known.sum()), self.total + total
        self.sequences += len(counted)
        self.squares += int((known**2).sum())
        self.exact += int((known == asked).sum())
        if self.task.per == "token":
            places = (batch.positions[0] // self.width).cpu()
            everywhere = self.task.correct(outputs, batch.targets) & batch.scored
            for row, hits in enumerate((everywhere, batch.scored)):
                self.by_position[row].index_add_(0, places, hits.sum(0).cpu())

    def counts(self) -> dict[str, Any]:
        """`squares` (of the number right per sequence) tell how far answers within a sequence depend on each other."""
        names = ("correct", "total", "sequences", "squares", "exact")
        counts: dict[str, Any] = {name: getattr(self, name) for name in names}
        counts["loss"] = self.loss / self.total
        if self.task.per == "token":
            correct, total = self.by_position.tolist()
            counts["positions"] = {"width": self.width, "correct": correct, "total": total}
        return counts


def pool(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts of several sets as one."""
    names = ("correct", "total", "sequences", "squares", "exact")
    total = sum(part["total"] for part in parts)
    return {name: sum(part[name] for part in parts) for name in names} | {
        "loss": sum(part["loss"] * part["total"] for part in parts) / total
    }
