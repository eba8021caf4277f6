"""The rotation of channel pairs that RoPE and xPos share."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

Pairing = Annotated[
    Literal["adjacent", "halves"], Field(description="pairs (2i, 2i+1), or (i, i+d/2) as Llama has them")
]


def require_pairs(head_dim: int, multiple: int = 2) -> None:
    """Refuse a head whose channels cannot be paired."""
    if head_dim % multiple:
        below = head_dim - head_dim % multiple
        nearest = " or ".join(str(n) for n in (below, below + multiple) if n)
        raise ValueError(
            f"head_dim: {head_dim} (d_model / heads) cannot be rotated in pairs. "
            f"Allowed: a multiple of {multiple}, nearest {nearest}."
        )


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
