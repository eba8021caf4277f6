"""What a hyponet is: from position tokens and coordinates to values."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from whence.models.layers import Linear
from whence.registry import Variant


class Hyponet(Variant, nn.Module):
    """f(c | LPs): a value at any coordinate."""

    selected: Tensor | None = None
    """After pruning: indices of the tokens that are left. None: all."""

    def modulation(self, lps: Tensor, locations: Tensor, at: Tensor) -> Tensor:
        """Features of the tokens at a coordinate, (rows, pixels, width).

        lps: (rows, M, d). locations: (rows or 1, M, k). at: (rows or 1, pixels, k), rows that share their
        coordinates are faster.
        """
        raise NotImplementedError

    def forward(
        self, lps: Tensor, locations: Tensor, at: Tensor, cell: Tensor, query_coordinates: Tensor | None = None
    ) -> Tensor:
        """Values (rows, pixels, channels), averaged over cells of width `cell` (k,).

        query_coordinates: where the tokens are attended to, if that is not at `at`.
        """
        raise NotImplementedError


class Nearness(nn.Module):
    """Attention of a coordinate to each token: by its distance, sharply at first, and by which token it is.

    Not by its content: then the weights are the same for all rows of a batch with the same coordinates, and one
    matrix product serves them all.
    """

    reach: Tensor
    """(M,): by how much farther than `spacing` each token reaches"""

    def __init__(self, axes: int, lps: int, heads: int, spacing: float, pixels: int, width: int = 16) -> None:
        super().__init__()
        self.axes, self.heads, self.spacing, self.width = axes, heads, spacing, width
        self.bands = min(pixels, 8)
        self.sharpness = nn.Parameter(torch.empty(heads, axes))
        self.query = Linear(2 * axes * self.bands, heads * width, scale=0.1)
        self.key = nn.Parameter(torch.empty(lps, heads, width))
        self.register_buffer("reach", torch.ones(lps), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        ends = torch.linspace(math.log(4.0), math.log(20.0), self.heads) if self.heads > 1 else torch.tensor([2.3])
        with torch.no_grad():
            self.sharpness.copy_(ends[:, None].expand_as(self.sharpness))
        nn.init.normal_(self.key, std=0.1)

    def spacings(self, selected: Tensor | None = None) -> Tensor:
        """(M,)"""
        spacings = self.spacing * self.reach
        return spacings if selected is None else spacings[selected]

    def forward(self, locations: Tensor, at: Tensor, selected: Tensor | None = None) -> Tensor:
        """→ (rows or 1, heads, pixels, M), summing to 1 over the tokens. selected: which of them are left."""
        squares = [(at[..., a, None] - locations[..., None, :, a]).square() for a in range(self.axes)]
        near = torch.stack(squares, 1) / self.spacings(selected).square()  # rows or 1, k, pixels, M
        bias = torch.einsum("ha,rapm->rhpm", self.sharpness.exp(), near)
        query = self.query(waves(at, self.bands)).unflatten(-1, (self.heads, self.width)).transpose(1, 2)
        key = self.key if selected is None else self.key[selected]
        return (query @ key.permute(1, 2, 0) - bias).softmax(-1)


class Attended(Hyponet):
    """Attends to the tokens by their nearness; set up by whoever inherits."""

    nearness: Nearness

    def modulation(self, lps: Tensor, locations: Tensor, at: Tensor) -> Tensor:
        return attend(self.nearness(locations, at, self.selected), lps[:, None])


def attend(weights: Tensor, values: Tensor) -> Tensor:
    """weights (rows or 1, heads, pixels, M) @ values (rows, heads or 1, M, width) → (rows, pixels, heads · width)."""
    rows, heads = len(values), weights.shape[1]
    if len(weights) == 1 and rows > 1:  # one product for all rows
        columns = values.expand(-1, heads, -1, -1).permute(1, 2, 0, 3).flatten(2)  # heads, M, rows · width
        attended = (weights[0] @ columns).unflatten(-1, (rows, -1)).permute(2, 1, 0, 3)
    else:
        attended = (weights @ values).transpose(1, 2)
    return attended.flatten(2)


def waves(at: Tensor, bands: int) -> Tensor:
    """Sines and cosines of 1/2, 1, … cycles across each axis, the last of them `bands` / 2: (…, 2·k·bands)."""
    cycles = 0.5 * torch.arange(1, bands + 1, device=at.device)
    angles = (2 * torch.pi * at[..., None] * cycles).flatten(-2)
    return torch.cat([angles.sin(), angles.cos()], -1)
