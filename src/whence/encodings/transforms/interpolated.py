"""Position interpolation: positions of long sequences are scaled into the range seen in training."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.encodings.base import precise
from whence.encodings.transforms import Transform


class Interpolated(Transform):
    """Divide the positions so that the farthest is one that training has seen.

    First every position is divided by `factor`, in training and at test: the published method, for a model tuned
    at the longer length. Then, with `fit`, a row whose farthest position p still lies past the last trained one,
    train_length − 1, is multiplied by (train_length − 1)/p; rows within the training length stay as they are.
    The published ratio, length/longer length, differs by less than a position, but would overrun a table of
    train_length rows. Positions count from 0, so what decides is where a row ends, not how many tokens it has.
    """

    reference = "Chen et al., 2023"
    examples = ("factor=4,fit=false",)

    def __init__(
        self,
        train_length: Annotated[int, Field(ge=2)],
        *,
        factor: Annotated[float, Field(ge=1, le=1e6, description="divisor of all positions")] = 1.0,
        fit: Annotated[bool, Field(description="then scale rows that still exceed the training length")] = True,
    ) -> None:
        self.last, self.factor, self.fit = train_length - 1, factor, fit

    def __call__(self, positions: Tensor, *, training: bool, generator: torch.Generator | None = None) -> Tensor:
        positions = precise(positions) / self.factor
        if not self.fit:
            return positions
        if positions.ndim != 2:
            raise ValueError(
                f"interpolated: positions {tuple(positions.shape)} are a grid, and train_length says nothing about "
                "its sides; use fit=false with a factor"
            )
        farthest = positions.amax(1, keepdim=True)
        # Clamped, because rounding must not push the farthest past the last row of a table.
        squeezed = (positions * self.last / farthest).clamp(max=self.last)
        return torch.where(farthest > self.last, squeezed, positions)

    def lengths(self, train_length: int, max_length: int) -> tuple[int, int]:
        reach = math.ceil(max_length / self.factor)
        return train_length, train_length if self.fit else max(train_length, reach)
