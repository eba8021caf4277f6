"""Being active costs, in proportion."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.features.sae.code import Code
from whence.features.sae.sparsity.base import Sparsity, active_ones, threshold_for

RATE = 0.02
"""How fast the coefficient follows, per step and unit of log(L0 / wanted)."""
STEERED = 2.0
"""Where a coefficient starts that is steered."""
SPARSE = 8
"""Features are named where no state has more than one in so many of them active: then that is faster."""


class L1(Sparsity):
    """A penalty on the sum of activations, each times the length of its direction. The coefficient is given, or steered
    to a wanted number of active features."""

    log_coefficient: Tensor

    def __init__(
        self,
        width: int,
        *,
        coefficient: Annotated[
            float, Field(gt=0, description="of the penalty; where it starts, if l0 is given")
        ] = 0.04,
        on: Annotated[
            Literal["masked", "raw"], Field(description="activations after the mask, or before it")
        ] = "masked",
        l0: Annotated[
            float, Field(ge=0, description="active features that the coefficient is steered to; 0: none")
        ] = 0,
    ) -> None:
        super().__init__()
        self.width, self.on, self.l0 = width, on, l0
        self.register_buffer("log_coefficient", torch.tensor(math.log(coefficient)))

    def first_bias(self, size: int) -> float:
        """Where a number of active features is wanted, about so many are from the first step on: getting there by the
        penalty alone would take most of training."""
        if not self.l0:
            return 0.0
        return -threshold_for(self.l0, size)

    def chosen(self, pre: Tensor, masked: Tensor) -> Tensor | None:
        if pre.device.type != "cpu":  # only there it is faster
            return None
        found = active_ones(pre if self.on == "raw" else masked)
        return found if found.shape[1] * SPARSE <= pre.shape[1] else None

    def penalty(self, code: Code, decoder: Tensor) -> Tensor:
        lengths = decoder.norm(dim=1)
        priced = code.raw if self.on == "raw" else code.values
        summed = (priced * (lengths if code.indices is None else lengths[code.indices])).sum(1).mean()
        price = self.log_coefficient.exp() * summed / self.width
        if self.training and self.l0:
            with torch.no_grad():
                l0 = (code.values > 0).sum(1, dtype=torch.float32).mean()
                step = RATE * (l0.clamp(min=0.1) / self.l0).log()
                self.log_coefficient.add_(step).clamp_(-12, 6)
        return price

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        return {"l0": l0, "coefficient": STEERED}
