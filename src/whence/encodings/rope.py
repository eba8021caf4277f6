"""Rotary position embedding, on a line or on a grid."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings._rotary import Pairing, Scaling, geometric, magnitude, require_pairs, scaled, turn
from whence.encodings.base import Count, Encoding, Shift, on_axes, precise


class RoPE(Encoding):
    """Rotate pairs of query and key channels by angles proportional to position."""

    extrapolation = "angles go on; slow pairs enter unseen angles unless scaled"
    reference = "Su et al., 2021; scaling: Chen et al., 2023; bloc97, 2023; Peng et al., 2023; 2-D: Heo et al., 2024"
    examples = (
        "pairing=adjacent",
        *(f"scaling={scaling},factor=4" for scaling in ("linear", "ntk", "dynamic_ntk", "yarn")),
        "layout=axial",
        "layout=mixed",
    )

    def __init__(
        self,
        head_dim: Count,
        heads: Count = 1,
        train_length: Count = 2048,
        *,
        base: Annotated[float, Field(gt=1, le=1e12, description="base b of the frequencies θᵢ = b^(−2i/d)")] = 10_000.0,
        pairing: Pairing = "halves",
        scaling: Annotated[Scaling, Field(description="scaling of the frequencies for longer sequences")] = "none",
        factor: Annotated[float, Field(ge=1, le=1e6, description="scaling factor; 1: no scaling")] = 1.0,
        layout: Annotated[
            Literal["line", "axial", "mixed"],
            Field(description="1-D; 2-D with half the pairs per axis; 2-D with learned directions per pair"),
        ] = "line",
    ) -> None:
        super().__init__()
        require_pairs(head_dim, multiple=4 if layout == "axial" else 2)
        if layout != "line" and scaling != "none":
            raise ValueError(f"scaling={scaling!r} is defined on a line, not for layout={layout!r}; use scaling='none'")
        if scaling not in ("none", "linear") and head_dim <= 2:
            raise ValueError(f"scaling={scaling!r} needs head_dim > 2, got {head_dim}")
        self.head_dim, self.train_length = head_dim, train_length
        self.base, self.pairing, self.factor, self.layout = base, pairing, factor, layout
        self.scaling: Scaling = scaling
        self.axes = 1 if layout == "line" else 2
        if layout == "mixed":
            self.directions = nn.Parameter(torch.empty(2, heads, head_dim // 2))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Mixed layout: magnitudes θᵢ as in 1-D, with a random direction in the plane for each pair."""
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
        p = precise(on_axes(positions, self.axes))
        if self.layout == "mixed":
            return torch.einsum("bla,ahi->bhli", p, self.directions.to(p.dtype))
        if self.layout == "axial":
            theta = geometric(self.head_dim // 2, self.base).to(p)
            return (p[..., None] * theta).flatten(-2)[:, None]
        p = p[:, None, :, None]
        reach = p.amax(2, keepdim=True) + 1  # of each row: other rows of the batch must not change it
        theta = scaled(self.head_dim, self.base, self.scaling, self.factor, self.train_length, reach)
        return p * theta.to(p.dtype)

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles, size = self.angles(positions), magnitude(self.scaling, self.factor)
        cos, sin = (angles.cos() * size).float(), (angles.sin() * size).float()
        return turn(q, cos, sin, self.pairing), turn(k, cos, sin, self.pairing)
