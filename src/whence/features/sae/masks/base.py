"""What a mask is: a table of positions by features that activations are multiplied with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.registry import Variant


class Mask(Variant, nn.Module):
    """Lifted, a mask is not there at all: what features do without it is what they have learned."""

    def __init__(self, context: int, size: int) -> None:
        super().__init__()
        self.context, self.size = context, size

    def table(self, progress: float) -> Tensor | None:
        """(context, size), from 0 to 1; None: nothing is masked. progress: the share of training that is done."""
        raise NotImplementedError


def spread_centres(context: int, size: int) -> Tensor:
    """(size,): positions that features are bound to, evenly over the context, neighbours in different places."""
    return (torch.arange(size) * 0.6180339887498949 % 1) * context - 0.5


def windows(context: int, centres: Tensor, sigma: float) -> Tensor:
    """(context, features): a bell of height 1 around each feature's centre."""
    away = torch.arange(context, device=centres.device)[:, None] - centres
    return torch.exp(-(away**2) / (2 * sigma**2))
