"""Shared by rotary and sinusoidal encodings: frequencies θᵢ = base^(−2i/d), their scaling, rotation of pairs."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

Scaling = Literal["none", "linear", "ntk", "dynamic_ntk", "yarn"]
Pairing = Annotated[
    Literal["adjacent", "halves"], Field(description="rotated pairs: (2i, 2i+1), or (i, i+d/2) as in Llama")
]


def geometric(dim: int, base: float) -> Tensor:
    """θᵢ for i < dim/2, in float64."""
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def scaled(dim: int, base: float, scaling: Scaling, factor: float, train_length: int, reach: Tensor) -> Tensor:
    """Frequencies stretched by `factor`, in the last dimension.

    `reach` is the farthest position in use plus one, (..., 1); dynamic_ntk answers with a row for each.
    """
    theta = geometric(dim, base).to(reach.device)
    if scaling == "none":
        return theta
    if scaling == "linear":
        return theta / factor
    exponent = torch.arange(0, dim, 2, dtype=torch.float64, device=reach.device) / (dim - 2)
    if scaling == "ntk":  # base·s^(d/(d−2)), folded into the exponent
        return theta * factor**-exponent
    if scaling == "dynamic_ntk":
        stretch = (factor * reach.to(torch.float64) / train_length - (factor - 1)).clamp(min=1.0)
        return theta * stretch**-exponent
    unscaled = _yarn_unscaled(dim, base, train_length, theta)
    return theta * unscaled + theta / factor * (1 - unscaled)


def _yarn_unscaled(dim: int, base: float, train_length: int, like: Tensor) -> Tensor:
    """1 for frequencies that turn often within the training length (kept), 0 for slow ones (interpolated)."""

    def pair_with_turns(turns: float) -> float:
        return dim * math.log(train_length / (2 * math.pi * turns)) / (2 * math.log(base))

    low = max(math.floor(pair_with_turns(32)), 0)
    high = min(math.ceil(pair_with_turns(1)), dim - 1)
    pairs = torch.arange(dim // 2, dtype=torch.float64, device=like.device)
    return 1 - ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)


def magnitude(scaling: Scaling, factor: float) -> float:
    """YaRN's factor on cos and sin, which sharpens attention over the longer context."""
    return 0.1 * math.log(factor) + 1 if scaling == "yarn" else 1.0


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
