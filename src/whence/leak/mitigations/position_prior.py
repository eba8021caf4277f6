"""Position where it belongs: in the open."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.encodings.base import Count
from whence.leak.mitigations.base import Mitigation


class PositionPrior(Mitigation):
    """An additive table of what is usual at each place, taken off before the model and put back behind it.

    It is estimated from the training data alone and shrunk towards zero by as much as its differences between places
    could be chance, so that on stationary data it vanishes. Switched off, it shows what the model says without it.
    """

    stops = "the need to learn position in hidden state, where place legitimately predicts"
    leaves = "whatever else the model does: it adds in the open and hides nothing; combine it with content_gated"

    table: Tensor

    def __init__(
        self,
        tokens: Count,
        features: Count,
        *,
        on: Annotated[bool, Field(description="false: keep it and leave it out of predictions")] = True,
    ) -> None:
        super().__init__()
        self.on = on
        self.register_buffer("table", torch.zeros(tokens, features))

    def fit(self, some: Tensor, others: Tensor) -> None:
        """What two halves of the recordings agree on is position; the rest of their means is chance."""
        one, two = (tokens.mean(0) - tokens.mean((0, 1)) for tokens in (some, others))
        usual = (one + two) / 2
        kept = ((one * two).mean(0) / usual.pow(2).mean(0).clamp(min=1e-12)).clamp(0, 1)
        self.table.copy_(kept * usual)

    def content(self, tokens: Tensor) -> Tensor:
        return tokens - self.table

    def restore(self, prediction: Tensor) -> Tensor:
        return prediction + self.table if self.on else prediction
