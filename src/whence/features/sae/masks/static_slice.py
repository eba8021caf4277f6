"""Slices: the baseline that the source compares its masks with."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.features.sae.masks.base import Mask


class StaticSlice(Mask):
    """The context in ranges, the features in as many slices: each slice speaks in its own range only."""

    slices: Tensor

    def __init__(
        self,
        context: int,
        size: int,
        *,
        ranges: Annotated[int, Field(ge=1, description="slices of the context and of the dictionary")] = 4,
    ) -> None:
        super().__init__(context, size)
        self.register_buffer("slices", membership(context, size, ranges), persistent=False)

    def table(self, progress: float) -> Tensor:
        return self.slices


def membership(context: int, size: int, ranges: int) -> Tensor:
    """(context, size): 1 where a feature's slice and a position's range have the same number."""
    of_position = torch.arange(context) * ranges // context
    of_feature = torch.arange(size) * ranges // size
    return (of_position[:, None] == of_feature).float()
