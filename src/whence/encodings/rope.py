"""Rotary position embedding, on a line or on a grid."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings._frequencies import Scaling, geometric, magnitude, scaled
from whence.encodings.base import Encoding, Shift, precise


class RoPE(Encoding):
    """Rotate pairs of query and key channels by angles proportional to position."""

    beyond = "angles go on; slow pairs enter unseen angles unless scaled"
    reference = "Su 2021; scaling: Chen 2023, bloc97 2023, Peng 2023; 2-D: Heo 2024"

    def __init__(
        self,
        head_dim: int,
        heads: int = 1,
        train_length: int = 2048,
        *,
        base: Annotated[float, Field(gt=1, description="b in θᵢ = b^(−2i/d)")] = 10_000.0,
        pairing: Annotated[
            Literal["adjacent", "halves"], Field(description="pairs (2i, 2i+1), or (i, i+d/2) as Llama has them")
        ] = "halves",
        scaling: Annotated[Scaling, Field(description="how frequencies are stretched past the training length")] = "none",
        factor: Annotated[float, Field(ge=1, description="the stretch; 1 changes nothing")] = 1.0,
        layout: Annotated[
            Literal["line", "axial", "mixed"],
            Field(description="1-D; 2-D with half the pairs per axis; 2-D with learned directions per pair"),
        ] = "line",
    ) -> None:
        super().__init__()
        multiple = 4 if layout == "axial" else 2
        if head_dim % multiple:
            raise ValueError(f"rope rotates channels in pairs: head_dim={head_dim} must be a multiple of {multiple} ({layout})")
        if layout != "line" and scaling != "none":
            raise ValueError(f"scaling={scaling!r} is defined on a line, not for layout={layout!r}; use scaling='none'")
        if scaling not in ("none", "linear") and head_dim <= 2:
            raise ValueError(f"scaling={scaling!r} needs head_dim > 2, got {head_dim}")
        self.head_dim, self.train_length = head_dim, train_length
        self.base, self.pairing, self.scaling, self.factor, self.layout = base, pairing, scaling, factor, layout
        self.axes = 1 if layout == "line" else 2
        if layout == "mixed":
            self.directions = nn.Parameter(torch.empty(2, heads, head_dim // 2))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Mixed layout: the usual magnitudes θᵢ, each pair pointing in a random direction of the plane."""
        if self.layout == "mixed":
            angle = torch.rand(self.directions.shape[1:], device=self.directions.device) * 2 * math.pi
            theta = geometric(self.head_dim, self.base).to(angle)
            with torch.no_grad():
                self.directions.copy_(torch.stack([theta * angle.cos(), theta * angle.sin()]))

    @property
    def shift(self) -> Shift:
        return "absolute" if self.scaling == "dynamic_ntk" else "invariant"

    def angles(self, positions: Tensor) -> Tensor:
        """(batch, 1 or heads, length, head_dim/2), one angle per pair."""
        p = precise(positions)
        if self.layout == "mixed":
            return torch.einsum("bla,ahi->bhli", p, self.directions.to(p.dtype))
        if self.layout == "axial":
            theta = geometric(self.head_dim // 2, self.base).to(p)
            return (p[..., None] * theta).flatten(-2)[:, None]
        theta = scaled(self.head_dim, self.base, self.scaling, self.factor, self.train_length, p.max() + 1).to(p.dtype)
        return p[:, None, :, None] * theta

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles, size = self.angles(positions), magnitude(self.scaling, self.factor)
        cos, sin = (angles.cos() * size).float(), (angles.sin() * size).float()
        return turn(q, cos, sin, self.pairing), turn(k, cos, sin, self.pairing)


def turn(x: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    """Rotate every pair of channels of x by the angle whose cos and sin are given."""
    # x·(cos, cos) + partner·(−sin, sin): two passes over x instead of the six that halves kept apart would need.
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if pairing == "halves":
        first, second = wide.chunk(2, dim=-1)
        partner = torch.cat([second, first], dim=-1)
        cos, sin = torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
    else:
        partner = wide.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        cos, sin = torch.stack([cos, cos], dim=-1).flatten(-2), torch.stack([-sin, sin], dim=-1).flatten(-2)
    return torch.addcmul(wide * cos, partner, sin).to(x.dtype)
