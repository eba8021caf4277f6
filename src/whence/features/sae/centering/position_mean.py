"""A mean for every position: what every positional mechanism has to beat."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.features.sae.centering.base import Centre


class PositionMean(Centre):
    """The mean of the states at each position, or the best table of a lower rank."""

    def __init__(
        self,
        context: int,
        width: int,
        *,
        rank: Annotated[int, Field(ge=0, description="of what differs between positions; 0: all of it")] = 0,
    ) -> None:
        super().__init__(context, width)
        self.rank = rank

    def fit(self, sums: Tensor, counts: Tensor) -> None:
        """Positions without states get the mean of all."""
        mean = sums.sum(0) / counts.sum()
        differs = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1) - mean, 0.0)
        if self.rank:
            weights = counts.sqrt()[:, None]  # the best table is the one that is least wrong where there are states
            u, s, v = torch.linalg.svd(weights * differs, full_matrices=False)
            least = (u[:, : self.rank] * s[: self.rank]) @ v[: self.rank]
            differs = torch.where(weights > 0, least / weights.clamp(min=1), 0.0)
        self.table.copy_(mean + differs)
