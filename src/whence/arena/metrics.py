"""Counts of correct answers of an evaluation, and how counts of several lengths are pooled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Self

import pydantic
import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from whence import stats
from whence.config import Config
from whence.models.layers import loss
from whence.store.records import Count
from whence.tasks import Batch, Task
from whence.training.config import Metrics

Part = Literal["id", "ood"]
"""In distribution: at the training length. Out of distribution: beyond it."""
PARTS: tuple[Part, ...] = ("id", "ood")
BINS = 64
"""Maximum number of bins of accuracy by position, which bounds the size of stored files."""


class PositionCounts(Config):
    """Counts of answers by position, in bins of equal width."""

    width: int = Field(ge=1)
    correct: tuple[int, ...]
    total: tuple[int, ...]

    @pydantic.model_validator(mode="after")
    def _fit_together(self) -> Self:
        pairs = zip(self.correct, self.total, strict=False)
        if len(self.correct) != len(self.total) or not all(0 <= part <= whole for part, whole in pairs):
            raise ValueError("expected as many counts of correct answers as of all answers, and none above them")
        return self


class EvalCounts(Config):
    """Counts over one evaluation set, or pooled over several."""

    model_config = ConfigDict(allow_inf_nan=True)

    correct: Count
    total: Count
    sequences: Count
    squares: Count
    """Sum over sequences of the squared number of correct answers, from which their dependence is estimated"""
    exact: Count
    """Sequences in which every answer is correct"""
    loss: float
    positions: PositionCounts | None = None
    """For tasks with an answer per token, at a single length"""

    @pydantic.model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.correct > self.total or self.exact > self.sequences:
            raise ValueError("expected at most as many correct answers as answers, and as exact matches as sequences")
        return self

    @property
    def accuracy(self) -> float:
        return self.correct / self.total

    @property
    def effective(self) -> float:
        """Effective number of independent answers."""
        return stats.effective(correct=self.correct, total=self.total, sequences=self.sequences, squares=self.squares)


class ArenaMetrics(Metrics):
    """Counts at every length, and pooled over the lengths of each part."""

    id: EvalCounts
    ood: EvalCounts | None = None
    lengths: dict[int, EvalCounts]
    validation: EvalCounts | None = None
    """At the training length, on data for choosing hyperparameters only; computed at the end of training"""
    seen_in_training: Count = 0
    """Test sequences of the training length that also occur in training; computed at the end of training"""

    def part(self, name: Part) -> EvalCounts | None:
        return self.id if name == "id" else self.ood


def pool(parts: Sequence[EvalCounts]) -> EvalCounts:
    """The pooled counts of several evaluation sets."""
    total = sum(part.total for part in parts)
    return EvalCounts(
        correct=sum(part.correct for part in parts),
        total=total,
        sequences=sum(part.sequences for part in parts),
        squares=sum(part.squares for part in parts),
        exact=sum(part.exact for part in parts),
        loss=sum(part.loss * part.total for part in parts) / total,
    )


def count(task: Task, answered: Iterable[tuple[Batch, Tensor]], tokens: int, first: int = 0) -> EvalCounts:
    """Counts of one evaluation set.

    Args:
        answered: batches with the outputs of the model.
        tokens: number of tokens per sequence.
        first: first scored position in tasks with an answer at every position. Counts by position include all
            positions.
    """
    width = -(-tokens // BINS)
    by_position = torch.zeros(2, -(-tokens // width), dtype=torch.long)
    parts = []
    for batch, outputs in answered:
        right, counted = task.correct(outputs, batch.targets), task.counted(batch, first)
        asked, known = (t.reshape(len(counted), -1).sum(1) for t in (counted, right & counted))
        part = EvalCounts(
            correct=int(known.sum()),
            total=int(asked.sum()),
            sequences=len(counted),
            squares=int((known**2).sum()),
            exact=int((known == asked).sum()),
            loss=loss(task.goal, outputs, batch.targets, counted).item(),
        )
        parts.append(part)
        if task.per == "token":
            places = (batch.positions[0] // width).cpu()
            for row, hits in enumerate((right & batch.scored, batch.scored)):
                by_position[row].index_add_(0, places, hits.sum(0).cpu())
    if task.per != "token":
        return pool(parts)
    correct, total = map(tuple, by_position.tolist())
    return pool(parts).model_copy(update={"positions": PositionCounts(width=width, correct=correct, total=total)})
