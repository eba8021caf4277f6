"""The source's first fix."""

from __future__ import annotations

from torch import Tensor

from whence.leak.mitigations.base import Mitigation


class ZeroMaskedPositions(Mitigation):
    """Masked tokens get no additive encoding of time. Which channel they belong to is part of the question."""

    stops = "additive encodings of time at masked tokens"
    leaves = "the order in which a mixer reads: state, convolution edge, causal order; rotations and biases"

    def encoding(self, vector: Tensor, masked: Tensor, axis: str) -> Tensor:
        return vector.masked_fill(masked[..., None], 0) if axis == "time" else vector
