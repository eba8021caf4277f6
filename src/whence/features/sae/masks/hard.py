"""Hard binary masks."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.features.sae.masks.base import Mask, spread_centres


class Hard(Mask):
    """Each feature may speak at a share of the positions: random ones, or a stretch of them."""

    open: Tensor

    def __init__(
        self,
        context: int,
        size: int,
        *,
        share: Annotated[float, Field(gt=0, le=1, description="of positions that a feature may speak at")] = 0.5,
        together: Annotated[bool, Field(description="in one stretch, which every feature has elsewhere")] = False,
    ) -> None:
        super().__init__(context, size)
        self.share, self.together = share, together
        self.register_buffer("open", torch.empty(context, size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.together:
            away = (torch.arange(self.context)[:, None] - spread_centres(self.context, self.size)).abs()
            around = torch.minimum(away, self.context - away)  # the two ends of the context count as neighbours
            self.open.copy_((around < self.share * self.context / 2).float())
        else:
            self.open.copy_((torch.rand(self.context, self.size) < self.share).float())

    def table(self, progress: float) -> Tensor:
        return self.open
