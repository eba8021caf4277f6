"""Directions at random."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.features.sae.inits.base import Start


class Unit(Start):
    """Every direction on its own, uniformly over the sphere."""

    def directions(self, size: int, width: int) -> Tensor:
        return nn.functional.normalize(torch.randn(size, width), dim=1)
