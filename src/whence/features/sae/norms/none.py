"""No norm."""

from __future__ import annotations

from torch import Tensor

from whence.features.sae.norms.base import Norm


class NoNorm(Norm):
    """Pre-activations as they are."""

    nothing = True

    def __init__(self, size: int) -> None:
        super().__init__(size)

    def forward(self, scores: Tensor) -> Tensor:
        return scores
