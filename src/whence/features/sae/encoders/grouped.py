"""A group of features for every position."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.encoders.base import Encoder, position_table, toward
from whence.features.sae.masks.static_slice import membership


class Grouped(Encoder):
    """Features in groups, each with its own positions and heard there alone; states carry a position embedding."""

    members: Tensor
    positional = ("embedding",)

    def __init__(
        self,
        width: int,
        size: int,
        context: int,
        *,
        groups: Annotated[int, Field(ge=0, description="of features; 0: one for every position")] = 0,
    ) -> None:
        super().__init__(width, size, context)
        groups = groups or context
        if groups > size:
            raise ValueError(f"size: {size} features make no {groups} groups")
        self.embedding = position_table(context, width)
        self.register_buffer("members", membership(context, size, groups), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.embedding, std=0.02)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x + strength * self.embedding[positions]

    def scale(self, strength: float) -> Tensor:
        return toward(self.members, strength)
