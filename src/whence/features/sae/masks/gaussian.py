"""Soft bells around fixed places."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from whence.features.sae.masks.base import Mask, spread_centres, windows


class Gaussian(Mask):
    """Each feature has its place in the context, and is damped away from it."""

    bells: Tensor

    def __init__(
        self,
        context: int,
        size: int,
        *,
        sigma: Annotated[float, Field(ge=1e-3, description="width of a bell, as a share of the context")] = 0.125,
    ) -> None:
        super().__init__(context, size)
        bells = windows(context, spread_centres(context, size), sigma * context)
        self.register_buffer("bells", bells, persistent=False)

    def table(self, progress: float) -> Tensor:
        return self.bells
