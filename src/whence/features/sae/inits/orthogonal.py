"""Directions at right angles."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.features.sae.inits.base import Start


class Orthogonal(Start):
    """As many directions as there are dimensions at right angles to each other, then as many again."""

    def directions(self, size: int, width: int) -> Tensor:
        blocks = [nn.init.orthogonal_(torch.empty(width, width)) for _ in range(-(-size // width))]
        return torch.cat(blocks)[:size]
