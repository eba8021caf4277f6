"""Normalization of all pre-activations of an activation together."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.dictionary import Shape
from whence.registry import Registry, Variant


class Norm(Variant, nn.Module):
    """Normalizes over all features, so that each output depends on all of them."""

    is_identity: ClassVar[bool] = False
    """Need not be computed"""

    def init_bias(self, bias: float) -> None:
        """bias: initial bias of pre-activations of variance 1, so that few are above 0."""

    def forward(self, scores: Tensor) -> Tensor:
        raise NotImplementedError


NORMS: Registry[Norm] = Registry(__name__, Norm)


class NoNorm(Norm):
    """No normalization."""

    name = "none"
    is_identity = True

    def forward(self, scores: Tensor) -> Tensor:
        return scores


INITIAL_GAIN = 0.1
"""Small, since normalized pre-activations have variance 1 each, and there are many more features than dimensions."""


class LayerNorm(Norm):
    """Layer norm over the pre-activations of an activation, with a gain and a bias per feature."""

    def __init__(
        self,
        shape: Shape,
        *,
        place: Annotated[
            Literal["before_relu", "after_relu"], Field(description="before or after the ReLU")
        ] = "before_relu",
    ) -> None:
        super().__init__()
        self.place = place
        self.gain = nn.Parameter(torch.full((shape.d_sae,), INITIAL_GAIN))
        self.bias = nn.Parameter(torch.zeros(shape.d_sae))

    def init_bias(self, bias: float) -> None:
        if self.place == "before_relu":  # layer norm removes the common part of the encoder's biases
            nn.init.constant_(self.bias, INITIAL_GAIN * bias)

    def forward(self, scores: Tensor) -> Tensor:
        inputs = scores.relu() if self.place == "after_relu" else scores
        return nn.functional.layer_norm(inputs, self.gain.shape, self.gain, self.bias)
