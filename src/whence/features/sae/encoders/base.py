"""What an encoder is: states, perhaps changed by their position, times weights, perhaps scaled and moved by position.

    pre-activations = scale(p) · (W · prepare(x, p) + b) + shift(p)

What was decoded goes through restore(x, p). An encoder overrides what it needs. Scales and shifts are tables of
positions by features, so that position costs little beside the product with the weights, and a top-k needs them only
at the features it keeps.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.kernels.sparse_code import ByFeature, gathered, scores
from whence.registry import Variant


class Encoder(Variant, nn.Module):
    """One set of weights; subclasses add what depends on position."""

    positional: tuple[str, ...] = ()
    """Parameters that are about position, which have a learning rate of their own."""

    def __init__(self, width: int, size: int, context: int) -> None:
        super().__init__()
        self.width, self.size, self.context = width, size, context
        self.weight = nn.Parameter(torch.empty(*self.copies(), size, width))
        self.bias = nn.Parameter(torch.empty(*self.copies(), size))

    def copies(self) -> tuple[int, ...]:
        """Of the weights."""
        return ()

    def start(self, directions: Tensor, bias: float) -> None:
        """All weights from the decoder's first directions (size, width), all biases from one number."""
        self.weight.data.copy_(directions.expand_as(self.weight))
        nn.init.constant_(self.bias, bias)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        """States as the weights see them. strength: how far position counts by now."""
        return x

    def linear(self, x: Tensor, positions: Tensor) -> Tensor:
        """(n, size); without gradients in memory that the next call uses again."""
        if torch.is_grad_enabled():
            return nn.functional.linear(x, self.weight, self.bias)
        return scores(x, self.weight, self.bias)

    def linear_at(self, x: Tensor, positions: Tensor, named: ByFeature, known: Tensor) -> Tensor:
        """(n, k): the same at some features only. known: all of them, computed without gradients."""
        return gathered(x, self.weight, self.bias, named.indices, dense=known, by_feature=named)

    def scale(self, strength: float) -> Tensor | None:
        """(context, size), which a lifted mask takes away; None: 1."""
        return None

    def shift(self, strength: float) -> Tensor | None:
        """(context, size); None: 0."""
        return None

    def restore(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        """The counterpart of `prepare`, of what was decoded."""
        return x

    def parts(self) -> Tensor | None:
        """(size,) numbers of the parts that the dictionary consists of; None: it has none."""
        return None


def toward(table: Tensor, strength: float) -> Tensor:
    """A multiplier that counts only so far: at strength 0 it is 1."""
    return table if strength == 1 else 1 + strength * (table - 1)


def position_table(rows: int, *columns: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(rows, *columns))
