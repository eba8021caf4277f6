"""One set of weights, and a small correction of states that depends on where they stand."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.encoders.base import Encoder, position_table


class Corrected(Encoder):
    """x + B · (c(p) ∘ A x): all positions share a few directions, each weighs them in its own way."""

    positional = ("inward", "outward", "weights")

    def __init__(
        self,
        width: int,
        size: int,
        context: int,
        *,
        rank: Annotated[int, Field(ge=1, description="directions that are corrected")] = 32,
    ) -> None:
        super().__init__(width, size, context)
        self.inward = nn.Parameter(torch.empty(width, rank))
        self.outward = nn.Parameter(torch.empty(rank, width))
        self.weights = position_table(context, rank)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.inward, std=self.width**-0.5)
        nn.init.normal_(self.outward, std=self.width**-0.5)
        nn.init.zeros_(self.weights)  # nothing is corrected at first

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x + strength * ((x @ self.inward) * self.weights[positions]) @ self.outward
