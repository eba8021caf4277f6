"""What a norm is: something done to all pre-activations of a state together."""

from __future__ import annotations

from torch import Tensor, nn

from whence.registry import Variant


class Norm(Variant, nn.Module):
    """Needs all features at once: what comes out of one depends on all others."""

    nothing = False
    """It changes nothing, and need not be computed."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def start(self, bias: float) -> None:
        """bias: what pre-activations of variance 1 should start with, so that few are above 0."""

    def forward(self, scores: Tensor) -> Tensor:
        raise NotImplementedError
