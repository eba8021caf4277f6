"""The rotation of channel pairs that RoPE and xPos share."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

Pairing = Annotated[
    Literal["adjacent", "halves"], Field(description="pairs (2i, 2i+1), or (i, i+d/2) as Llama has them")
]


def turn(x: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    """Rotate every pair of channels of x by the angle whose cos and sin are given."""
    if pairing == "halves":
        first, second = x.float().chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
    first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2).to(x.dtype)
