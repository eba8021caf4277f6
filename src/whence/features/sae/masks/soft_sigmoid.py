"""Soft masks, learned."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.masks.base import Mask


class SoftSigmoid(Mask):
    """A logit for every position and feature, through a sigmoid; trained with the rest."""

    def __init__(
        self,
        context: int,
        size: int,
        *,
        spread: Annotated[float, Field(ge=0, description="logits start uniformly within ± this")] = 1.0,
    ) -> None:
        super().__init__(context, size)
        self.spread = spread
        self.logits = nn.Parameter(torch.empty(context, size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.logits, -self.spread, self.spread)

    def table(self, progress: float) -> Tensor:
        return self.logits.sigmoid()
