"""What a centre is: a state for every position, fitted to the training states before training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.registry import Variant


class Centre(Variant, nn.Module):
    """Taken off before encoding, put back after decoding."""

    table: Tensor
    """(context, width)"""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(context, width))

    def fit(self, sums: Tensor, counts: Tensor) -> None:
        """From the sum of the states at each position (context, width), and their number (context,)."""
        raise NotImplementedError

    def forward(self, positions: Tensor) -> Tensor:
        return self.table[positions]
