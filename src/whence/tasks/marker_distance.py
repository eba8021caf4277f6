"""Measure the distance between two markers."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch, Task, line


class MarkerDistance(Task):
    """Regression of the distance between two markers among distractors, correct to the nearest position.

    . # . . # .  → 3
    """

    skill = "Measure the distance between two markers."
    per = "sequence"
    goal = "regression"
    shortest = 2
    examples = (("unit=1", [0, 4, 2, 1, 4, 3], [3.0]),)

    def __init__(
        self,
        *,
        distractors: Annotated[int, Field(ge=1, le=2**16, description="number of distractor symbols")] = 4,
        unit: Annotated[
            float, Field(gt=0, le=1e9, description="positions per unit of output, which keeps targets near 1")
        ] = 16.0,
    ) -> None:
        self.distractors, self.unit, self.symbols, self.outputs = distractors, unit, distractors + 1, 1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(self.distractors, (batch, length), generator=generator)
        marks = torch.rand(batch, length, generator=generator).topk(2, dim=1).indices
        inputs.scatter_(1, marks, self.distractors)
        distance = (marks[:, :1] - marks[:, 1:]).abs()
        return Batch(inputs, line(length), distance / self.unit, torch.ones(batch, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        first, second = (place for place, symbol in enumerate(inputs) if symbol == self.distractors)
        return [(second - first) / self.unit]

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (((outputs - targets) * self.unit).abs() < 0.5).squeeze(-1)
