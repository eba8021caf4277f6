"""The default: coordinates attend to tokens, and read a small image that each of them holds of its surroundings."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from whence.encodings.base import Count
from whence.fields.hyponets.base import Attended, Nearness, attend
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
        d_model: Count,
        axes: Count,
        lps: Count,
        channels: Count,
        spacing: float,
        pixels: Count,
        *,
        heads: Annotated[int, Field(ge=1, description="ways of weighing tokens by distance")] = 2,
        cosines: Annotated[
            int, Field(ge=1, le=16, description="per axis and token; k of them reach (k − 1)/2 cycles per spacing")
        ] = 5,
        width: Annotated[int, Field(ge=1, description="numbers that each head reads per pixel")] = 16,
        hidden: Annotated[int, Field(ge=0, description="width of the MLP behind it; 0: none")] = 64,
    ) -> None:
        super().__init__()
        self.axes, self.spacing, self.heads, self.cosines, self.channels = axes, spacing, heads, cosines, channels
        self.width = width + channels  # of each head, the first are values themselves
        self.nearness = Nearness(axes, lps, heads, spacing, pixels)
        self.values = Linear(d_model, heads * cosines**axes * self.width, scale=0.5)
        self.has_mlp = hidden > 0
        if hidden:
            self.up = Linear(heads * width + 1, hidden)
            self.down = Linear(hidden, channels, scale=0.1)

    def forward(
        self, lps: Tensor, locations: Tensor, at: Tensor, cell: Tensor, query_coordinates: Tensor | None = None
    ) -> Tensor:
        read = self.read(lps, locations, at, cell, query_coordinates).unflatten(-1, (self.heads, self.width))
        direct = read[..., : self.channels].sum(-2)
        if not self.has_mlp:
            return direct
        rest = read[..., self.channels :].flatten(-2)
        size = (cell.log().mean() / 5).expand(*rest.shape[:-1], 1)
        return direct + self.down(F.gelu(self.up(torch.cat([rest, size], -1))))

    def read(
        self, lps: Tensor, locations: Tensor, at: Tensor, cell: Tensor, query_coordinates: Tensor | None = None
    ) -> Tensor:
        """All tokens' expansions together, at the coordinates: (rows, pixels, heads · width)."""
        weights = self.nearness(locations, at if query_coordinates is None else query_coordinates, self.selected)
        spacings = self.nearness.spacings(self.selected)
        if not torch.is_grad_enabled():  # of pixels that lie together, most tokens have no weight at all
            near = (weights.amax((0, 1, 2)) > NEGLIGIBLE).nonzero().flatten()
            weights, locations, lps, spacings = weights[..., near], locations[:, near], lps[:, near], spacings[near]
        cosines = self._cosines(locations, at, cell, spacings)  # rows or 1, pixels, M, cosines^k
        values = self.values(lps).unflatten(-1, (self.heads, -1, self.width))  # rows, M, heads, cosines^k, width
        values = values.permute(0, 2, 1, 3, 4).flatten(2, 3)  # rows, heads, M · cosines^k, width
        return attend((weights[..., None] * cosines[:, None]).flatten(-2), values)

    def _cosines(self, locations: Tensor, at: Tensor, cell: Tensor, spacings: Tensor) -> Tensor:
        order = torch.arange(self.cosines, device=at.device)
        product = None
        for a in range(self.axes):
            near = ((at[..., a, None] - locations[..., None, :, a]) / spacings).clamp(-1.5, 1.5)
            over_cell = torch.sinc(order * (cell[a] / spacings / 2)[:, None])
            wave = torch.cos(torch.pi * (near[..., None] + 0.5) * order) * over_cell
            product = wave if product is None else (product[..., :, None] * wave[..., None, :]).flatten(-2)
        assert product is not None
        return product
