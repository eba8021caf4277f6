"""One set of weights, and a small correction of states that depends on where they stand."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.encoders.base import Encoder, position_table


class Corrected(Encoder):
    """x + B · (c(p) ∘ A x): all positions share a few directions, each weighs them in its own way.

    The same form, with weights of its own, is applied to what was decoded: features can then mean different directions
    in different places.
    """

    positional = ("inward", "outward", "weights", "inward_after", "outward_after", "weights_after")

    def __init__(
        self,
        width: int,
        size: int,
        context: int,
        *,
        rank: Annotated[int, Field(ge=1, description="directions that are corrected")] = 32,
        everywhere: Annotated[bool, Field(description="control: one set of weights for all positions")] = False,
    ) -> None:
        super().__init__(width, size, context)
        self.inward, self.inward_after = (nn.Parameter(torch.empty(width, rank)) for _ in range(2))
        self.outward, self.outward_after = (nn.Parameter(torch.empty(rank, width)) for _ in range(2))
        self.rows = 1 if everywhere else context
        self.weights, self.weights_after = (position_table(self.rows, rank) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for map_ in (self.inward, self.outward, self.inward_after, self.outward_after):
            nn.init.normal_(map_, std=self.width**-0.5)
        nn.init.zeros_(self.weights)  # nothing is corrected at first
        nn.init.zeros_(self.weights_after)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x + strength * ((x @ self.inward) * self.weights[positions % self.rows]) @ self.outward

    def restore(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x + strength * ((x @ self.inward_after) * self.weights_after[positions % self.rows]) @ self.outward_after
