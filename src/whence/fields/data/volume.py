"""Volumes made up of soft blobs: the third dimension, where no recording is at hand."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.fields.baselines import grid
from whence.fields.data.base import FieldData, Split


class Volume(FieldData):
    """Random blobs of many sizes in a cube; every draw is new, so nothing is ever seen twice."""

    held_out_name = ""

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=8, le=32, description="pixels per side of the input")] = 16,
        factor: Annotated[int, Field(ge=1, le=4, description="how much finer the true signal is")] = 2,
        blobs: Annotated[int, Field(ge=1, le=64, description="per volume")] = 12,
    ) -> None:
        super().__init__(3, 1, size, factor)
        self.blobs = blobs

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        def luck(*shape: int) -> Tensor:
            return torch.rand(rows, self.blobs, *shape, generator=generator)

        middles, widths, heights = luck(3), 0.03 * 5 ** luck(1), luck()
        at = grid(self.true)
        values = []
        for middle, width, height in zip(middles, widths, heights, strict=True):  # one by one: they are large
            squares = torch.cdist(at, middle).square()  # pixels, blobs
            values.append((torch.exp(-squares / (2 * width.T.square())) * height).sum(-1))
        return torch.stack(values).clamp(max=1).view(rows, 1, *self.true)
