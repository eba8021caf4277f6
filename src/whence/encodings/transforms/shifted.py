"""A random common offset in training, which removes absolute position."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.encodings.transforms import Transform, drawing_device, roomy


class Shifted(Transform):
    """In training, add one random offset from 0 to reach to all positions of a row; in evaluation, none.

    On a grid every axis has its own offset.
    """

    reference = "Kiyono et al., 2021 (SHAPE)"

    def __init__(
        self,
        *,
        reach: Annotated[int, Field(ge=1, le=2**20, description="largest offset")] = 500,
    ) -> None:
        self.reach = reach

    def __call__(self, positions: Tensor, *, training: bool, generator: torch.Generator | None = None) -> Tensor:
        positions = roomy(positions)
        if not training:
            return positions
        shape = (positions.shape[0], 1, *positions.shape[2:])
        device = drawing_device(positions, generator)
        offset = torch.randint(self.reach + 1, shape, generator=generator, device=device)
        return positions + offset.to(positions)

    def lengths(self, train_length: int, max_length: int) -> tuple[int, int]:
        return train_length + self.reach, max(train_length + self.reach, max_length)
