"""Sines all the way: a SIREN whose waves are scaled and moved by the attended tokens."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.fields.hyponets.base import Attended, Encoded, FieldShape, cell_feature
from whence.models.layers import Linear


class Siren(Attended):
    """Layers of sines over the coordinate, each modulated by the attended tokens."""

    def __init__(
        self,
        shape: FieldShape,
        *,
        heads: Annotated[int, Field(ge=1, description="ways of weighing tokens by distance")] = 2,
        hidden: Annotated[int, Field(ge=1, description="sines per layer")] = 96,
        depth: Annotated[int, Field(ge=1, description="layers of sines")] = 3,
    ) -> None:
        super().__init__(shape, heads)
        self.fastest = math.pi * shape.pixels  # radians across the field: what the input's own pixels can hold
        self.first = nn.Parameter(torch.empty(shape.axes, hidden))
        self.modulate = nn.ModuleList(Linear(heads * shape.d_model + 1, 2 * hidden, scale=0.5) for _ in range(depth))
        self.layers = nn.ModuleList(Linear(hidden, hidden, scale=2**0.5) for _ in range(depth - 1))
        self.out = Linear(hidden, shape.channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.first, -1, 1)

    def forward(self, encoded: Encoded, at: Tensor, cell: Tensor, query: Tensor) -> Tensor:
        features = self.modulation(encoded, query)
        features = torch.cat([features, cell_feature(cell, features)], -1)
        x = (at - 0.5) @ (self.fastest * self.first)
        for depth, modulate in enumerate(self.modulate):
            scale, move = modulate(features).chunk(2, -1)
            x = torch.sin(x * (1 + scale) + move)
            x = self.layers[depth](x) if depth < len(self.layers) else x
        return self.out(x)
