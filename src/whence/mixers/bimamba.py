"""Bidirectional Mamba: the mean of a forward and a reverse scan."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from whence.encodings.base import Count
from whence.mixers import Kind, Mixer
from whence.mixers.mamba import ConvWidth, Expand, Mamba, Rank, State


class BiMamba(Mixer):
    """Selective state space in both directions, (forward + reverse) / 2: every token receives all others."""

    def __init__(
        self,
        d_model: Count,
        out_scale: float = 1.0,
        *,
        weights: Annotated[
            Literal["shared", "separate"], Field(description="one set of weights for both directions, or two")
        ] = "shared",
        d_state: State = 16,
        expand: Expand = 2,
        d_conv: ConvWidth = 4,
        dt_rank: Rank = None,
    ) -> None:
        super().__init__()
        self.weights = weights
        self.ahead = Mamba(d_model, out_scale, d_state=d_state, expand=expand, d_conv=d_conv, dt_rank=dt_rank)
        if weights == "separate":
            self.back = Mamba(d_model, out_scale, d_state=d_state, expand=expand, d_conv=d_conv, dt_rank=dt_rank)

    @classmethod
    def looks_ahead(cls, kind: Kind) -> bool:
        return True

    def forward(self, x: Tensor, valid: Tensor | None = None, /) -> Tensor:
        """valid: as in Mamba."""
        if self.weights == "separate":
            return (self.ahead(x, valid) + self.back(x, valid, reverse=True)) / 2
        # The projections and the gate are linear in what they act on, and shared: one of each serves both directions.
        u, gate = self.ahead.split(x, valid)
        both = self.ahead.mix(u, valid) + self.ahead.mix(u, valid, reverse=True)
        return self.ahead.out_proj(both * (gate / 2))
