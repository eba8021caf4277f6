"""Shared by hyponets: a signal encoded as position tokens, and attention from coordinates to them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from whence.models.layers import Linear
from whence.registry import Variant


@dataclass(frozen=True)
class Encoded:
    """A signal as position tokens."""

    lps: Tensor
    """(rows, M, d_model)"""
    locations: Tensor
    """(1, M, k): the coordinates of each token"""
    selected: Tensor | None = None
    """After pruning: indices of the remaining tokens. None: all"""

    def swapped(self) -> Encoded:
        """Every row with the tokens of another row."""
        return replace(self, lps=self.lps.roll(1, 0))


@dataclass(frozen=True)
class FieldShape:
    """What a hyponet connects: `lps` tokens of width `d_model`, and values of `channels` on k `axes`."""

    d_model: int
    lps: int
    axes: int
    channels: int
    pixels: int
    """Of the input, on its longest axis"""

    @property
    def spacing(self) -> float:
        """Distance between evenly spread position tokens."""
        return self.lps ** (-1 / self.axes)


class Hyponet(Variant, nn.Module):
    """f(c | LPs): a value at any coordinate. Coordinates are (rows or 1, pixels, k); shared by all rows is faster."""

    def modulation(self, encoded: Encoded, at: Tensor) -> Tensor:
        """Features of the tokens at a coordinate, (rows, pixels, width)."""
        raise NotImplementedError

    def forward(self, encoded: Encoded, at: Tensor, cell: Tensor, query: Tensor) -> Tensor:
        """Values (rows, pixels, channels), averaged over cells of width `cell` (k,).

        query: where the tokens are attended to; the same as `at`, except in analyses.
        """
        raise NotImplementedError


class Nearness(nn.Module):
    """Attention of a coordinate to each token, by distance (sharp at init) and by token index.

    Weights do not depend on the content of tokens. They are therefore the same for all rows of a batch with the same
    coordinates, and one matrix product serves all rows.
    """

    WIDTH = 16
    reach: Tensor
    """(M,): range of each token, as a multiple of the spacing"""

    def __init__(self, shape: FieldShape, heads: int) -> None:
        super().__init__()
        self.spacing, self.bands = shape.spacing, min(shape.pixels, 8)
        self.sharpness = nn.Parameter(torch.empty(heads, shape.axes))
        self.query = Linear(2 * shape.axes * self.bands, heads * self.WIDTH, scale=0.1)
        self.key = nn.Parameter(torch.empty(shape.lps, heads, self.WIDTH))
        self.register_buffer("reach", torch.ones(shape.lps), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        heads = len(self.sharpness)
        ends = torch.linspace(math.log(4.0), math.log(20.0), heads) if heads > 1 else torch.tensor([2.3])
        with torch.no_grad():
            self.sharpness.copy_(ends[:, None].expand_as(self.sharpness))
        nn.init.normal_(self.key, std=0.1)

    def spacings(self, encoded: Encoded) -> Tensor:
        """(M,)"""
        return self.spacing * (self.reach if encoded.selected is None else self.reach[encoded.selected])

    def forward(self, encoded: Encoded, at: Tensor) -> Tensor:
        """→ (rows or 1, heads, pixels, M), summing to 1 over the tokens."""
        axes = zip(at.unbind(-1), encoded.locations.unbind(-1), strict=True)
        squares = torch.stack([(a[..., None] - b[:, None]).square() for a, b in axes], 1)
        near = squares / self.spacings(encoded).square()  # rows or 1, k, pixels, M
        bias = torch.einsum("ha,rapm->rhpm", self.sharpness.exp(), near)
        query = self.query(waves(at, self.bands)).unflatten(-1, (-1, self.WIDTH)).transpose(1, 2)
        key = self.key if encoded.selected is None else self.key[encoded.selected]
        return (query @ key.permute(1, 2, 0) - bias).softmax(-1)


class Attended(Hyponet):
    """Attends to the tokens by their nearness."""

    def __init__(self, shape: FieldShape, heads: int) -> None:
        super().__init__()
        self.nearness = Nearness(shape, heads)

    def modulation(self, encoded: Encoded, at: Tensor) -> Tensor:
        return attend(self.nearness(encoded, at), encoded.lps[:, None])


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


def products(factors: Iterable[Tensor]) -> Tensor:
    """Products of each entry of one factor with each entry of the next, on the last axis."""
    return functools.reduce(lambda a, b: (a[..., :, None] * b[..., None, :]).flatten(-2), factors)


def cell_feature(cell: Tensor, features: Tensor) -> Tensor:
    """(…, 1): the width of a cell, as one more feature."""
    return (cell.log().mean() / 5).expand(*features.shape[:-1], 1)
