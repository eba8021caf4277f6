"""Global features, and features of places, mixed by gates."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.encoders.attention_routed import routed
from whence.features.sae.encoders.base import Encoder, position_table
from whence.features.sae.masks.base import spread_centres, windows


class Hierarchical(Encoder):
    """A share of the features is global; the others are routed by attention with a bell around their place as prior.

    A learned gate per position mixes the two kinds.
    """

    bells: Tensor
    positional = ("embedding", "query", "key", "gates")

    def __init__(
        self,
        width: int,
        size: int,
        context: int,
        *,
        share: Annotated[float, Field(gt=0, lt=1, description="of features that are global")] = 0.5,
        rank: Annotated[int, Field(ge=1, description="numbers per query and key")] = 32,
    ) -> None:
        super().__init__(width, size, context)
        self.everywhere = max(1, min(size - 1, round(share * size)))
        bound = size - self.everywhere
        self.embedding = position_table(context, width)
        self.query = nn.Parameter(torch.empty(context, rank))
        self.key = nn.Parameter(torch.empty(bound, rank))
        self.gates = position_table(context, 2)
        bells = windows(context, spread_centres(context, bound), context / 8)
        self.register_buffer("bells", bells.clamp(min=1e-6).log(), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for table, deviation in ((self.embedding, 0.02), (self.query, 1.0), (self.key, 1.0)):
            nn.init.normal_(table, std=deviation)
        nn.init.zeros_(self.gates)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x + strength * self.embedding[positions]

    def scale(self, strength: float) -> Tensor:
        """At strength 0 there are global features only."""
        gates = 1 + strength * (2 * self.gates.sigmoid() - 1)
        bound = strength * gates[:, 1:] * routed(self.query, self.key, self.bells)
        return torch.cat([gates[:, :1].expand(-1, self.everywhere), bound], 1)

    def parts(self) -> Tensor:
        return (torch.arange(self.size, device=self.weight.device) >= self.everywhere).long()
