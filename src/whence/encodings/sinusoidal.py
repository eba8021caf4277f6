"""Sines and cosines of the position, added to the token embeddings."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.encodings._rotary import geometric
from whence.encodings.base import Count, Encoding, Shift, on_axes, precise


class Sinusoidal(Encoding):
    """Add sin(p·θᵢ), cos(p·θᵢ) in alternating channels to the token embeddings."""

    extrapolation = "defined everywhere; slow channels take values never seen in training"
    reference = "Vaswani et al., 2017"

    def __init__(
        self,
        d_model: Count,
        *,
        base: Annotated[float, Field(gt=1, le=1e12, description="base b of the frequencies θᵢ = b^(−2i/d)")] = 10_000.0,
    ) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"sinusoidal needs an even d_model, got {d_model}")
        self.d_model, self.base = d_model, base

    @property
    def shift(self) -> Shift:
        return "absolute"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        p = precise(on_axes(positions))
        angles = p[..., None] * geometric(self.d_model, self.base).to(p)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return (x.float() + waves.float()).to(x.dtype)
