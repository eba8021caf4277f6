"""The default: coordinates attend to tokens, and read a small image that each of them holds of its surroundings."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from whence.fields.hyponets.base import Attended, Encoded, FieldShape, attend, cell_feature, products
from whence.models.layers import Linear

NEGLIGIBLE = 1e-7
"""A weight that changes no value, below float32's resolution of a sum of weights that is 1."""


class CrossAttention(Attended):
    """Attention from coordinates to tokens by learned distance; each token is a local cosine expansion.

    The cosines are averaged over the cell of the pixel in closed form, so that a coarse rendering is the
    average of a fine one, as far as one token reaches.
    """

    def __init__(
        self,
        shape: FieldShape,
        *,
        heads: Annotated[int, Field(ge=1, description="ways of weighing tokens by distance")] = 2,
        cosines: Annotated[
            int, Field(ge=1, le=16, description="per axis and token; k of them reach (k − 1)/2 cycles per spacing")
        ] = 5,
        width: Annotated[int, Field(ge=1, description="numbers that each head reads per pixel")] = 16,
        hidden: Annotated[int, Field(ge=0, description="width of the MLP behind it; 0: none")] = 64,
    ) -> None:
        super().__init__(shape, heads)
        self.heads, self.cosines, self.channels, self.hidden = heads, cosines, shape.channels, hidden
        self.width = width + shape.channels  # of each head, the first are values themselves
        self.values = Linear(shape.d_model, heads * cosines**shape.axes * self.width, scale=0.5)
        if hidden:
            self.up = Linear(heads * width + 1, hidden)
            self.down = Linear(hidden, shape.channels, scale=0.1)

    def forward(self, encoded: Encoded, at: Tensor, cell: Tensor, query: Tensor) -> Tensor:
        read = self._read(encoded, at, cell, query).unflatten(-1, (self.heads, self.width))
        direct = read[..., : self.channels].sum(-2)
        if not self.hidden:
            return direct
        rest = read[..., self.channels :].flatten(-2)
        return direct + self.down(F.gelu(self.up(torch.cat([rest, cell_feature(cell, rest)], -1))))

    def _read(self, encoded: Encoded, at: Tensor, cell: Tensor, query: Tensor) -> Tensor:
        """All tokens' expansions together, at the coordinates: (rows, pixels, heads · width)."""
        weights, spacings = self.nearness(encoded, query), self.nearness.spacings(encoded)
        lps, locations = encoded.lps, encoded.locations
        if not torch.is_grad_enabled():  # of pixels that lie together, most tokens have no weight at all
            near = (weights.amax((0, 1, 2)) > NEGLIGIBLE).nonzero().flatten()
            weights, locations, lps, spacings = weights[..., near], locations[:, near], lps[:, near], spacings[near]
        cosines = self._cosines(locations, at, cell, spacings)  # rows or 1, pixels, M, cosines^k
        values = self.values(lps).unflatten(-1, (self.heads, -1, self.width))  # rows, M, heads, cosines^k, width
        values = values.permute(0, 2, 1, 3, 4).flatten(2, 3)  # rows, heads, M · cosines^k, width
        return attend((weights[..., None] * cosines[:, None]).flatten(-2), values)

    def _cosines(self, locations: Tensor, at: Tensor, cell: Tensor, spacings: Tensor) -> Tensor:
        order = torch.arange(self.cosines, device=at.device)

        def along(axis: int) -> Tensor:
            near = ((at[..., axis, None] - locations[:, None, :, axis]) / spacings).clamp(-1.5, 1.5)
            over_cell = torch.sinc(order * (cell[axis] / spacings / 2)[:, None])
            return torch.cos(torch.pi * (near[..., None] + 0.5) * order) * over_cell

        return products(along(axis) for axis in range(at.shape[-1]))
