"""The tokens write weights: an MLP over the coordinate of which one layer belongs to the instance."""

from __future__ import annotations

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from whence.encodings.base import Count
from whence.fields.hyponets.base import Hyponet, waves
from whence.models.layers import Linear


class WeightModulation(Hyponet):
    """Instance pattern composer: the tokens compose one weight matrix of an MLP over Fourier features."""

    def __init__(
        self,
        d_model: Count,
        axes: Count,
        channels: Count,
        spacing: float,
        pixels: Count,
        *,
        hidden: Annotated[int, Field(ge=1, description="width of the MLP")] = 128,
        rank: Annotated[int, Field(ge=1, description="patterns that the tokens compose")] = 64,
        bands: Annotated[
            int | None, Field(ge=1, description="half-cycles per axis; none: Nyquist of the input")
        ] = None,
    ) -> None:
        super().__init__()
        self.bands, self.rank = bands or pixels, rank
        self.enter = Linear(2 * axes * self.bands + 1, hidden, scale=2**0.5)
        self.ask = nn.Parameter(torch.empty(rank, d_model))
        self.key = Linear(d_model, d_model, bias=False)
        self.value = Linear(d_model, hidden)
        self.patterns = Linear(rank, hidden)
        self.middle = Linear(hidden, hidden, scale=2**0.5)
        self.out = Linear(hidden, channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.ask)

    def modulation(self, lps: Tensor, locations: Tensor, at: Tensor) -> Tensor:
        """The composed weights are the same everywhere: what differs is what they make of each coordinate."""
        where = torch.cat([waves(at, self.bands), torch.zeros_like(at[..., :1])], -1)
        return F.gelu(self.enter(where)).expand(len(lps), -1, -1) @ self._weights(lps).mT

    def _weights(self, lps: Tensor) -> Tensor:
        """(rows, rank, hidden)"""
        attention = (self.ask @ self.key(lps).mT / math.sqrt(lps.shape[-1])).softmax(-1)
        return attention @ self.value(lps)

    def forward(
        self, lps: Tensor, locations: Tensor, at: Tensor, cell: Tensor, query_coordinates: Tensor | None = None
    ) -> Tensor:
        size = (cell.log().mean() / 5).expand(*at.shape[:-1], 1)
        x = F.gelu(self.enter(torch.cat([waves(at, self.bands), size], -1)))
        x = F.gelu(self.patterns(x.expand(len(lps), -1, -1) @ self._weights(lps).mT))
        return self.out(F.gelu(self.middle(x)))
