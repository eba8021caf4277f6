"""What a hyponet is: from position tokens and coordinates to values."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from whence.models.layers import Linear
from whence.registry import Variant


class Hyponet(Variant, nn.Module):
    """f(c | LPs): a value at any coordinate."""

    kept: Tensor | None = None
    """After pruning: which tokens still stand. None: all."""

    def modulation(self, lps: Tensor, locations: Tensor, at: Tensor) -> Tensor:
        """What the tokens have to say at a coordinate, (rows, points, width).

        lps: (rows, M, d). locations: (rows or 1, M, k). at: (rows or 1, points, k), rows that share their points
        are faster.
        """
        raise NotImplementedError

    def forward(
        self, lps: Tensor, locations: Tensor, at: Tensor, cell: Tensor, heard_at: Tensor | None = None
    ) -> Tensor:
        """Values (rows, points, channels), averaged over cells of width `cell` (k,).

        heard_at: where the tokens are listened to, if that is not where the value is asked for.
        """
        raise NotImplementedError


class Nearness(nn.Module):
    """How much each token is heard at a coordinate: by its distance, sharply at first, and by which token it is.

    Not by its content: then the weights are the same for all rows of a batch that ask for the same points, and one
    matrix product serves them all.
    """

    reach: Tensor
    """(M,): by how much farther than `spacing` each token reaches"""

    def __init__(self, axes: int, lps: int, heads: int, spacing: float, points: int, width: int = 16) -> None:
        super().__init__()
        self.axes, self.heads, self.spacing, self.width = axes, heads, spacing, width
        self.bands = min(points, 8)
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

    def spacings(self, kept: Tensor | None = None) -> Tensor:
        """(M,)"""
        found = self.spacing * self.reach
        return found if kept is None else found[kept]

    def forward(self, locations: Tensor, at: Tensor, kept: Tensor | None = None) -> Tensor:
        """→ (rows or 1, heads, points, M), summing to 1 over the tokens. kept: which of them still stand."""
        squares = [(at[..., a, None] - locations[..., None, :, a]).square() for a in range(self.axes)]
        near = torch.stack(squares, 1) / self.spacings(kept).square()  # rows or 1, k, points, M
        bias = torch.einsum("ha,rapm->rhpm", self.sharpness.exp(), near)
        query = self.query(waves(at, self.bands)).unflatten(-1, (self.heads, self.width)).transpose(1, 2)
        key = self.key if kept is None else self.key[kept]
        return (query @ key.permute(1, 2, 0) - bias).softmax(-1)


class Attended(Hyponet):
    """Hears the tokens by their nearness; set up by whoever inherits."""

    nearness: Nearness

    def modulation(self, lps: Tensor, locations: Tensor, at: Tensor) -> Tensor:
        return heard(self.nearness(locations, at, self.kept), lps[:, None])


def heard(weights: Tensor, values: Tensor) -> Tensor:
    """weights (rows or 1, heads, points, M) @ values (rows, heads or 1, M, width) → (rows, points, heads · width)."""
    rows, heads = len(values), weights.shape[1]
    if len(weights) == 1 and rows > 1:  # one product for all rows
        columns = values.expand(-1, heads, -1, -1).permute(1, 2, 0, 3).flatten(2)  # heads, M, rows · width
        found = (weights[0] @ columns).unflatten(-1, (rows, -1)).permute(2, 1, 0, 3)
    else:
        found = (weights @ values).transpose(1, 2)
    return found.flatten(2)


def waves(at: Tensor, bands: int) -> Tensor:
    """Sines and cosines of 1/2, 1, … cycles across each axis, the last of them `bands` / 2: (…, 2·k·bands)."""
    cycles = 0.5 * torch.arange(1, bands + 1, device=at.device)
    angles = (2 * torch.pi * at[..., None] * cycles).flatten(-2)
    return torch.cat([angles.sin(), angles.cos()], -1)
