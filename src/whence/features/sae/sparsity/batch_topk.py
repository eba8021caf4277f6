"""The k · n largest of n states together."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.features.sae.sparsity.base import Sparsity, active_ones

MEMORY = 0.9
"""How much of the threshold is kept from step to step."""


class BatchTopK(Sparsity):
    """Of all states of a batch together, k times as many features as there are states. Used, one threshold stands for
    that: then what a state is encoded as does not depend on its neighbours."""

    threshold: Tensor
    selects = True

    def __init__(
        self, *, k: Annotated[int, Field(ge=1, description="active features per state, on average")] = 16
    ) -> None:
        super().__init__()
        self.k = k
        self.register_buffer("threshold", torch.tensor(-1.0))

    def chosen(self, pre: Tensor, masked: Tensor) -> Tensor:
        if self.training:
            kept = min(self.k * len(masked), masked.numel())
            least = masked.flatten().kthvalue(masked.numel() - kept + 1).values.clamp(min=0)
            self.threshold.copy_(least if self.threshold < 0 else MEMORY * self.threshold + (1 - MEMORY) * least)
            self.least = least
        else:
            self.least = self.threshold
        return active_ones(masked * (masked >= self.least))

    def settle(self, codes: Tensor) -> Tensor:
        return torch.where(codes >= self.least, codes, 0.0)

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        return {"k": l0}
