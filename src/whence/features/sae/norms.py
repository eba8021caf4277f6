"""Normalization of all pre-activations of an activation together."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.dictionary import Shape
from whence.registry import Registry, Variant


class Norm(Variant, nn.Module):
    """Needs all features at once: what comes out of one depends on all others."""

    is_identity: ClassVar[bool] = False
    """It need not be computed."""

    def init_bias(self, bias: float) -> None:
        """bias: what pre-activations of variance 1 should start with, so that few are above 0."""

    def forward(self, scores: Tensor) -> Tensor:
        raise NotImplementedError


NORMS: Registry[Norm] = Registry(__name__, Norm)


class NoNorm(Norm):
    """Pre-activations as they are."""

    name = "none"
    is_identity = True

    def forward(self, scores: Tensor) -> Tensor:
        return scores


INITIAL_GAIN = 0.1
"""Gains begin small: normalised pre-activations have variance 1 each, and there are many more of them than of numbers
in a state."""


class LayerNorm(Norm):
    """All pre-activations of a state to mean 0 and variance 1, then a gain and a bias for each feature."""

    def __init__(
        self,
        shape: Shape,
        *,
        place: Annotated[
            Literal["before_relu", "after_relu"], Field(description="of the pre-activations, or of what is above 0")
        ] = "before_relu",
    ) -> None:
        super().__init__()
        self.place = place
        self.gain = nn.Parameter(torch.full((shape.d_sae,), INITIAL_GAIN))
        self.bias = nn.Parameter(torch.zeros(shape.d_sae))

    def init_bias(self, bias: float) -> None:
        if self.place == "before_relu":  # which takes off whatever the encoder's biases have in common
            nn.init.constant_(self.bias, INITIAL_GAIN * bias)

    def forward(self, scores: Tensor) -> Tensor:
        inputs = scores.relu() if self.place == "after_relu" else scores
        return nn.functional.layer_norm(inputs, self.gain.shape, self.gain, self.bias)
