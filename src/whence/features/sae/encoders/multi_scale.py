"""Local, medium and global features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.features.sae.encoders.base import Encoder, position_table, toward
from whence.features.sae.masks.base import spread_centres, windows

COARSE = 8
"""Positions that share a row of the coarse embedding."""
LOCAL, MEDIUM = 1 / 16, 1 / 4
"""Widths of bells, as shares of the context."""


class MultiScale(Encoder):
    """A third of the features in narrow bells, a third in wide ones, a third everywhere.

    The three have learned weights at every position; embeddings of positions and of blocks of them are added to states.
    """

    bells: Tensor
    positional = ("fine", "coarse", "attention")

    def __init__(self, width: int, size: int, context: int) -> None:
        super().__init__(width, size, context)
        self.fine = position_table(context, width)
        self.coarse = position_table(-(-context // COARSE), width)
        self.attention = position_table(context, 3)
        centres = spread_centres(context, size)
        kinds = [windows(context, centres, share * context) for share in (LOCAL, MEDIUM)]
        kinds.append(torch.ones(context, size))
        parts = self.parts()
        bells = torch.stack(kinds).gather(0, parts.expand(1, context, -1))[0]
        self.register_buffer("bells", bells, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.fine, std=0.02)
        nn.init.normal_(self.coarse, std=0.02)
        nn.init.zeros_(self.attention)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x + strength * (self.fine[positions] + self.coarse[positions // COARSE])

    def scale(self, strength: float) -> Tensor:
        weights = 3 * self.attention.softmax(1)
        return toward(self.bells * weights[:, self.parts()], strength)

    def parts(self) -> Tensor:
        """0 local, 1 medium, 2 global"""
        return torch.arange(self.size, device=self.weight.device) * 3 // self.size
