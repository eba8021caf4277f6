"""Bells that come in as training goes on."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.masks.gaussian import Gaussian as Bells

STEEP = 4.0
"""The coefficient's logit goes from minus to plus this much, besides what it learns."""


class Progressive(Bells):
    """Gaussian bells mixed with no mask at all, by a coefficient that rises with training and can be learned."""

    def __init__(
        self,
        context: int,
        size: int,
        *,
        sigma: Annotated[float, Field(ge=1e-3, description="width of a bell, as a share of the context")] = 0.125,
    ) -> None:
        super().__init__(context, size, sigma=sigma)
        self.logit = nn.Parameter(torch.zeros(()))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.logit)

    def table(self, progress: float) -> Tensor:
        influence = (self.logit + STEEP * (2 * progress - 1)).sigmoid()
        return 1 - influence * (1 - self.bells)
