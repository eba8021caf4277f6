"""The source's fourth fix."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.leak.mitigations.base import Mitigation


class PermuteTokens(Mitigation):
    """In training the mixer reads the tokens in a random order, which is undone behind it."""

    stops = "what the order of reading tells"
    leaves = "additive encodings; and it takes away the order of the content, too"

    def __init__(
        self,
        *,
        prob: Annotated[float, Field(ge=0, le=1, description="the source's shuffle_sequences_prob")] = 1.0,
        always: Annotated[bool, Field(description="also when the model is used; false: in training only")] = False,
    ) -> None:
        super().__init__()
        self.prob, self.always = prob, always

    def order(self, x: Tensor) -> Tensor | None:
        if not (self.training or self.always):
            return None
        rows, tokens = x.shape[:2]
        shuffled = torch.rand(rows, tokens, device=x.device).argsort(1)
        chosen = torch.rand(rows, 1, device=x.device) < self.prob
        return torch.where(chosen, shuffled, torch.arange(tokens, device=x.device))
