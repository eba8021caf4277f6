"""A linear map that knows how large its weights should start."""

from __future__ import annotations

import math

from torch import nn


class Linear(nn.Linear):
    """nn.Linear whose weights start as N(0, scale²/fan_in): unit-variance inputs give outputs of deviation `scale`.

    The scale lives in the module because `initialise` resets every module on its own, knowing only its name.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, scale: float = 1.0) -> None:
        self.scale = scale  # nn.Linear's constructor already resets
        super().__init__(in_features, out_features, bias=bias)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.scale / math.sqrt(self.in_features))
        if self.bias is not None:
            nn.init.zeros_(self.bias)
