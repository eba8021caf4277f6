"""An MLP over Fourier features of the coordinate and the tokens attended to from there."""

from __future__ import annotations

import itertools
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from whence.fields.hyponets.base import Attended, Encoded, FieldShape, cell_feature, waves
from whence.models.layers import Linear


class FourierMLP(Attended):
    """Waves of the coordinate, up to what the input can hold, beside the attended tokens, through an MLP."""

    def __init__(
        self,
        shape: FieldShape,
        *,
        heads: Annotated[int, Field(ge=1, description="ways of weighing tokens by distance")] = 2,
        bands: Annotated[
            int | None, Field(ge=1, description="half-cycles per axis; none: Nyquist of the input")
        ] = None,
        hidden: Annotated[int, Field(ge=1, description="width of the MLP")] = 128,
        depth: Annotated[int, Field(ge=1, description="hidden layers")] = 3,
    ) -> None:
        super().__init__(shape, heads)
        self.bands = bands or shape.pixels
        sizes = [heads * shape.d_model + 2 * shape.axes * self.bands + 1, *[hidden] * depth]
        self.layers = nn.ModuleList(Linear(a, b, scale=2**0.5) for a, b in itertools.pairwise(sizes))
        self.out = Linear(hidden, shape.channels)

    def forward(self, encoded: Encoded, at: Tensor, cell: Tensor, query: Tensor) -> Tensor:
        features = self.modulation(encoded, query)
        where = waves(at, self.bands).expand(*features.shape[:-1], -1)
        x = torch.cat([features, where, cell_feature(cell, features)], -1)
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.out(x)
