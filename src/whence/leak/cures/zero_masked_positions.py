"""The source's first fix."""

from __future__ import annotations

from torch import Tensor

from whence.leak.cures.base import Cure


class ZeroMaskedPositions(Cure):
    """Hidden tokens get no additive encoding."""

    stops = "additive encodings at hidden tokens"
    leaves = "the order in which a mixer reads: state, convolution edge, causal order; rotations and biases"

    def encoding(self, vector: Tensor, hidden: Tensor, axis: str) -> Tensor:
        return vector.masked_fill(hidden[..., None], 0)
