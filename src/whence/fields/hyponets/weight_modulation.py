"""The tokens write weights: an MLP over the coordinate of which one layer belongs to the instance."""

from __future__ import annotations

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from whence.fields.hyponets.base import Encoded, FieldShape, Hyponet, cell_feature, waves
from whence.models.layers import Linear


class WeightModulation(Hyponet):
    """Instance pattern composer: the tokens compose one weight matrix of an MLP over Fourier features."""

    def __init__(
        self,
        shape: FieldShape,
        *,
        hidden: Annotated[int, Field(ge=1, description="width of the MLP")] = 128,
        rank: Annotated[int, Field(ge=1, description="patterns that the tokens compose")] = 64,
        bands: Annotated[
            int | None, Field(ge=1, description="half-cycles per axis; none: Nyquist of the input")
        ] = None,
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
        """The composed weights are the same everywhere: what differs is what they make of each coordinate."""
        return self._composed(encoded.lps, at, torch.zeros_like(at[..., :1]))

    def _composed(self, lps: Tensor, at: Tensor, size: Tensor) -> Tensor:
        """(rows, pixels, rank): what each composed pattern makes of coordinates and cells of that size."""
        attention = (self.ask @ self.key(lps).mT / math.sqrt(lps.shape[-1])).softmax(-1)
        x = F.gelu(self.enter(torch.cat([waves(at, self.bands), size], -1)))
        return x.expand(len(lps), -1, -1) @ (attention @ self.value(lps)).mT

    def forward(self, encoded: Encoded, at: Tensor, cell: Tensor, query: Tensor) -> Tensor:
        x = F.gelu(self.patterns(self._composed(encoded.lps, at, cell_feature(cell, at))))
        return self.out(F.gelu(self.middle(x)))
