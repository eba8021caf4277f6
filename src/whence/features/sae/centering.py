"""What is subtracted from activations before they are encoded, and added again after decoding."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.dictionary import Shape
from whence.registry import Registry, Variant


class Centering(Variant, nn.Module):
    """Subtracted before encoding, and added after decoding."""

    table: Tensor
    """(context_size, d_in)"""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(shape.context_size, shape.d_in))

    def fit(self, sums: Tensor, counts: Tensor) -> None:
        """Fit to the sums of activations at each position (context_size, d_in), and their counts (context_size,)."""
        raise NotImplementedError

    def forward(self, positions: Tensor) -> Tensor:
        return self.table[positions]


CENTERINGS: Registry[Centering] = Registry(__name__, Centering)


class Mean(Centering):
    """The mean of all activations, independent of position."""

    def fit(self, sums: Tensor, counts: Tensor) -> None:
        self.table.copy_((sums.sum(0) / counts.sum()).expand_as(self.table))


class PositionMean(Centering):
    """The mean of the activations at each position, or its best low-rank approximation."""

    def __init__(
        self,
        shape: Shape,
        *,
        rank: Annotated[int, Field(ge=0, le=2**16, description="rank of the position-dependent part; 0: full")] = 0,
    ) -> None:
        super().__init__(shape)
        self.rank = rank

    def fit(self, sums: Tensor, counts: Tensor) -> None:
        """Positions without activations get the mean of all."""
        mean = sums.sum(0) / counts.sum()
        differs = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1) - mean, 0.0)
        if self.rank:
            weights = counts.sqrt()[:, None]  # the approximation is weighted by the number of activations
            u, s, v = torch.linalg.svd(weights * differs, full_matrices=False)
            least = (u[:, : self.rank] * s[: self.rank]) @ v[: self.rank]
            differs = torch.where(weights > 0, least / weights.clamp(min=1), 0.0)
        self.table.copy_(mean + differs)
