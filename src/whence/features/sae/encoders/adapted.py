"""A plain encoder over states that small networks have adapted to their range of positions."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.encoders.base import Encoder, position_table


class Adapted(Encoder):
    """x + gate · MLP(layer norm(x)), with an MLP and a gate for every range; then one set of weights."""

    positional = ("inward", "outward", "gates")

    def __init__(
        self,
        width: int,
        size: int,
        context: int,
        *,
        ranges: Annotated[int, Field(ge=1, description="ranges of positions")] = 4,
        hidden: Annotated[int, Field(ge=1, description="units of each MLP")] = 64,
    ) -> None:
        super().__init__(width, size, context)
        self.ranges = ranges
        self.inward = nn.Parameter(torch.empty(ranges, width, hidden))
        self.outward = nn.Parameter(torch.empty(ranges, hidden, width))
        self.gates = position_table(ranges)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.inward, std=self.width**-0.5)
        nn.init.zeros_(self.outward)  # nothing is adapted at first
        nn.init.zeros_(self.gates)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        normal = nn.functional.layer_norm(x, (self.width,))
        near = torch.nn.functional.one_hot(positions * self.ranges // self.context, self.ranges).to(x.dtype)
        hidden = torch.einsum("nw,rwh->nrh", normal, self.inward).relu()
        said = torch.einsum("nrh,nr,rhw->nw", hidden, near * self.gates.sigmoid(), self.outward)
        return x + strength * said
