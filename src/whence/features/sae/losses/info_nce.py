"""Codes should tell where they are."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.losses.base import Batch, Loss


class InfoNCE(Loss):
    """Contrastive: a code, projected, must be more like the embedding of its own position than like all others'."""

    positional = ("projection", "embedding")

    def __init__(
        self,
        size: int,
        context: int,
        *,
        weight: Annotated[float, Field(gt=0, description="of the term")] = 0.1,
        temperature: Annotated[float, Field(gt=0, description="of the similarities")] = 0.1,
        rank: Annotated[int, Field(ge=1, description="numbers that codes are projected to")] = 32,
    ) -> None:
        super().__init__()
        self.weight, self.temperature = weight, temperature
        self.projection = nn.Parameter(torch.empty(size, rank))
        self.embedding = nn.Parameter(torch.empty(context, rank))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.projection)
        nn.init.normal_(self.embedding)

    def term(self, batch: Batch) -> Tensor:
        told = nn.functional.normalize(batch.code.times(self.projection), dim=1)
        places = nn.functional.normalize(self.embedding, dim=1)
        return self.weight * nn.functional.cross_entropy(told @ places.mT / self.temperature, batch.positions)
