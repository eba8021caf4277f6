"""Layer normalisation."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.norms.base import Norm

START = 0.1
"""Gains begin small: normalised pre-activations have variance 1 each, and there are many more of them than of numbers
in a state."""


class LayerNorm(Norm):
    """All pre-activations of a state to mean 0 and variance 1, then a gain and a bias for each feature."""

    def __init__(
        self,
        size: int,
        *,
        place: Annotated[
            Literal["before_relu", "after_relu"], Field(description="of the pre-activations, or of what is above 0")
        ] = "before_relu",
    ) -> None:
        super().__init__(size)
        self.place = place
        self.gain = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.gain, START)
        nn.init.zeros_(self.bias)

    def start(self, bias: float) -> None:
        if self.place == "before_relu":  # which takes off whatever the encoder's biases have in common
            nn.init.constant_(self.bias, START * bias)

    def forward(self, scores: Tensor) -> Tensor:
        known = scores.relu() if self.place == "after_relu" else scores
        return nn.functional.layer_norm(known, (self.size,), self.gain, self.bias)
