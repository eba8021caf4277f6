"""The inner product of two sinusoidal encodings, as a bias."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.encodings._rotary import geometric
from whence.encodings.base import Count, Encoding, on_axes, precise


class Sandwich(Encoding):
    """Add Σᵢ cos((m−n)·θᵢ) minus its maximum, scaled per head: a decay with distance, like ALiBi, with ripples."""

    extrapolation = "the sum keeps decaying, roughly with the logarithm of the distance"
    reference = "Chi et al., 2023 (Sandwich)"

    def __init__(
        self,
        heads: Count,
        *,
        dim: Annotated[int, Field(ge=2, le=2**16, multiple_of=2, description="d̄: twice the number of cosines")] = 128,
        base: Annotated[float, Field(gt=1, le=1e12, description="b in θᵢ = b^(−2i/d̄)")] = 10_000.0,
    ) -> None:
        super().__init__()
        self.heads, self.dim, self.base = heads, dim, base

    def bias(self, positions_q: Tensor, positions_k: Tensor) -> Tensor:
        total = self._waves(positions_q) @ self._waves(positions_k).mT - self.dim / 2
        compression = torch.arange(1, self.heads + 1, device=total.device) * 8 / self.heads
        return total[:, None].float() / compression[:, None, None]

    def _waves(self, positions: Tensor) -> Tensor:
        """cos a·cos b + sin a·sin b = cos(a − b): a product of matrices, not length² × dim cosines."""
        p = precise(on_axes(positions))
        angles = p[..., None] * geometric(self.dim, self.base).to(p)
        return torch.cat([angles.cos(), angles.sin()], dim=-1)
