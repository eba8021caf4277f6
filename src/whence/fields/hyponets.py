"""Hyponets: decoders from position tokens and a coordinate to values."""

from __future__ import annotations

import itertools
import math
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from whence.fields.attention import Attended, Encoded, FieldShape, Hyponet, attend, cell_feature, products, waves
from whence.models.layers import Linear
from whence.registry import Choice, Registry

HYPONETS: Registry[Hyponet] = Registry(__name__, Hyponet)
HyponetChoice = Annotated[Choice[Hyponet], HYPONETS]
HEADS = Field(ge=1, le=2**12, description="attention heads, each with its own decay with distance")
BANDS = Field(
    ge=1, le=2**16, description="Fourier frequencies per axis; none: up to the Nyquist frequency of the input"
)
NEGLIGIBLE = 1e-7
"""Attention weights below this are skipped: weights sum to 1, and float32 cannot resolve them."""


class CrossAttention(Attended):
    """Attention from coordinates to tokens by learned distance; each token is a local cosine expansion.

    The cosines are averaged over the cell of the pixel in closed form, so that a coarse rendering is the
    average of a fine one within the range of one token.
    """

    def __init__(
        self,
        shape: FieldShape,
        *,
        heads: Annotated[int, HEADS] = 2,
        cosines: Annotated[
            int,
            Field(
                ge=1, le=16, description="cosines per axis and token; k cosines resolve (k − 1)/2 cycles per spacing"
            ),
        ] = 5,
        width: Annotated[int, Field(ge=1, le=2**16, description="features that each head decodes per pixel")] = 16,
        hidden: Annotated[int, Field(ge=0, le=2**16, description="width of the MLP after attention; 0: no MLP")] = 64,
    ) -> None:
        super().__init__(shape, heads)
        self.heads, self.cosines, self.channels, self.hidden = heads, cosines, shape.channels, hidden
        self.width = width + shape.channels  # the first channels of each head are values themselves
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
        """The attended sum of all expansions at the coordinates: (rows, pixels, heads · width)."""
        weights, spacings = self.nearness(encoded, query), self.nearness.spacings(encoded)
        lps, locations = encoded.lps, encoded.locations
        if not torch.is_grad_enabled():  # for adjacent pixels most tokens have negligible weight
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


class FourierMLP(Attended):
    """An MLP over Fourier features of the coordinate, up to the Nyquist frequency of the input, and attended tokens."""

    def __init__(
        self,
        shape: FieldShape,
        *,
        heads: Annotated[int, HEADS] = 2,
        bands: Annotated[int | None, BANDS] = None,
        hidden: Annotated[int, Field(ge=1, le=2**16, description="width of the MLP")] = 128,
        depth: Annotated[int, Field(ge=1, le=64, description="hidden layers")] = 3,
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


class Siren(Attended):
    """Sine layers over the coordinate (Sitzmann et al. 2020), each modulated by the attended tokens."""

    def __init__(
        self,
        shape: FieldShape,
        *,
        heads: Annotated[int, HEADS] = 2,
        hidden: Annotated[int, Field(ge=1, le=2**16, description="width: sines per layer")] = 96,
        depth: Annotated[int, Field(ge=1, le=64, description="number of sine layers")] = 3,
    ) -> None:
        super().__init__(shape, heads)
        self.fastest = math.pi * shape.pixels  # radians across the field: Nyquist of the input
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


class WeightModulation(Hyponet):
    """Instance pattern composer (Kim et al. 2023): tokens compose one weight matrix of an MLP over Fourier features."""

    def __init__(
        self,
        shape: FieldShape,
        *,
        hidden: Annotated[int, Field(ge=1, le=2**16, description="width of the MLP")] = 128,
        rank: Annotated[int, Field(ge=1, le=2**16, description="rank of the composed weight matrix")] = 64,
        bands: Annotated[int | None, BANDS] = None,
    ) -> None:
        super().__init__()
        self.bands = bands or shape.pixels
        self.enter = Linear(2 * shape.axes * self.bands + 1, hidden, scale=2**0.5)
        self.ask = nn.Parameter(torch.empty(rank, shape.d_model))
        self.key = Linear(shape.d_model, shape.d_model, bias=False)
        self.value = Linear(shape.d_model, hidden)
        self.patterns = Linear(rank, hidden)
        self.middle = Linear(hidden, hidden, scale=2**0.5)
        self.out = Linear(hidden, shape.channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.ask)

    def modulation(self, encoded: Encoded, at: Tensor) -> Tensor:
        """Composed weights do not depend on the coordinate; these are their outputs at each coordinate."""
        return self._composed(encoded.lps, at, torch.zeros_like(at[..., :1]))

    def _composed(self, lps: Tensor, at: Tensor, size: Tensor) -> Tensor:
        """(rows, pixels, rank): the output of each composed pattern for coordinates and cells of that size."""
        attention = (self.ask @ self.key(lps).mT / math.sqrt(lps.shape[-1])).softmax(-1)
        x = F.gelu(self.enter(torch.cat([waves(at, self.bands), size], -1)))
        return x.expand(len(lps), -1, -1) @ (attention @ self.value(lps)).mT

    def forward(self, encoded: Encoded, at: Tensor, cell: Tensor, query: Tensor) -> Tensor:
        x = F.gelu(self.patterns(self._composed(encoded.lps, at, cell_feature(cell, at))))
        return self.out(F.gelu(self.middle(x)))
