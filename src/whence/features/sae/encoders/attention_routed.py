"""Which features are heard where, by attention between positions and features."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.encoders.base import Encoder, position_table, toward


class AttentionRouted(Encoder):
    """Positions ask, features answer: softmax over features, so that a position's weights are 1 on average."""

    positional = ("embedding", "query", "key")

    def __init__(
        self,
        width: int,
        size: int,
        context: int,
        *,
        rank: Annotated[int, Field(ge=1, description="numbers per query and key")] = 32,
    ) -> None:
        super().__init__(width, size, context)
        self.embedding = position_table(context, width)
        self.query = nn.Parameter(torch.empty(context, rank))
        self.key = nn.Parameter(torch.empty(size, rank))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for table, deviation in ((self.embedding, 0.02), (self.query, 1.0), (self.key, 1.0)):
            nn.init.normal_(table, std=deviation)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x + strength * self.embedding[positions]

    def scale(self, strength: float) -> Tensor:
        return toward(routed(self.query, self.key), strength)


def routed(query: Tensor, key: Tensor, prior: Tensor | None = None) -> Tensor:
    """(context, features), 1 on average over the features. prior: added to the logits."""
    logits = query @ key.mT / query.shape[1] ** 0.5
    return len(key) * (logits if prior is None else logits + prior).softmax(1)
