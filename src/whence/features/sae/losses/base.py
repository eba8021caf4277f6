"""What a loss is: weights on the errors of states, or a term of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from whence.features.sae.code import Code
from whence.registry import Variant


@dataclass(frozen=True)
class Batch:
    """States that were encoded, and what they are decoded with."""

    x: Tensor
    """(n, width), what is to be reconstructed"""
    positions: Tensor
    """(n,)"""
    code: Code
    decoded: Callable[[Tensor], Tensor]
    """Values of the code's features → (n, width)"""
    parts: Tensor | None
    """(size,): parts of the dictionary, where the encoder has them"""

    def error(self, values: Tensor | None = None) -> Tensor:
        """(n,): mean squares of what the code, or other values in its place, leave unexplained."""
        said = self.decoded(self.code.values if values is None else values)
        return (self.x - said).square().mean(1)


class Loss(Variant, nn.Module):
    """Overrides one of the two."""

    needs_parts = False
    """It is about parts of the dictionary, and needs an encoder that has them."""

    def weights(self, positions: Tensor) -> Tensor | float:
        """(n,), what squared errors are multiplied with."""
        return 1.0

    def term(self, batch: Batch) -> Tensor | float:
        return 0.0
