"""Errors count more, the later they are."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from whence.features.sae.losses.base import Loss


class PositionWeighted(Loss):
    """Squared errors times a weight that rises evenly along the context; on average 1, so that nothing else changes."""

    def __init__(
        self,
        context: int,
        *,
        first: Annotated[float, Field(gt=0, description="weight of the first position")] = 1.0,
        last: Annotated[float, Field(gt=0, description="weight of the last position")] = 2.0,
    ) -> None:
        super().__init__()
        self.context, self.first, self.last = context, first, last

    def weights(self, positions: Tensor) -> Tensor:
        along = positions / max(1, self.context - 1)
        return (self.first + (self.last - self.first) * along) / ((self.first + self.last) / 2)
