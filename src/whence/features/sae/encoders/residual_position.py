"""Position goes around the weights: into the scale of features, and straight into them."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.encoders.base import Encoder, position_table


class ResidualPosition(Encoder):
    """Features are scaled by position (1 + tanh), and get a gated shortcut from it.

    The two have embeddings of their own, so that neither's gradient moves the other.
    """

    positional = ("scaling", "scaled", "embedding", "mapping", "gates")

    def __init__(
        self,
        width: int,
        size: int,
        context: int,
        *,
        rank: Annotated[int, Field(ge=1, description="numbers per position embedding")] = 32,
        scaled: Annotated[bool, Field(description="position scales features")] = True,
    ) -> None:
        super().__init__(width, size, context)
        self.rank = rank
        self.scaling = nn.Parameter(torch.empty(context, rank)) if scaled else None
        self.scaled = nn.Parameter(torch.empty(rank, size)) if scaled else None
        self.embedding = nn.Parameter(torch.empty(context, rank))
        self.mapping = nn.Parameter(torch.empty(rank, size))
        self.gates = position_table(context, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for embedding, mapping in ((self.scaling, self.scaled), (self.embedding, self.mapping)):
            if embedding is not None and mapping is not None:
                nn.init.normal_(embedding, std=self.rank**-0.5)
                nn.init.zeros_(mapping)
        nn.init.zeros_(self.gates)

    def scale(self, strength: float) -> Tensor | None:
        if self.scaling is None or self.scaled is None:
            return None
        return 1 + strength * (self.scaling @ self.scaled).tanh()

    def shift(self, strength: float) -> Tensor:
        return strength * self.gates.sigmoid() * (self.embedding @ self.mapping)
