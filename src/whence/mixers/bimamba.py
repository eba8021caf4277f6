"""Mamba in both directions: the mean of a reading from the left and one from the right."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from whence.encodings.base import Count
from whence.mixers.base import Kind, Mixer
from whence.mixers.mamba import Expand, Mamba, Rank, State, Taps


class BiMamba(Mixer):
    """Selective state space read both ways, (forward + reverse) / 2: every token sees all others."""

    def __init__(
        self,
        d_model: Count,
        out_scale: float = 1.0,
        *,
        weights: Annotated[
            Literal["shared", "separate"], Field(description="one set of weights for both directions, or two")
        ] = "shared",
        state: State = 16,
        expand: Expand = 2,
        taps: Taps = 4,
        rank: Rank = None,
    ) -> None:
        super().__init__()
        self.weights = weights
        self.ahead = Mamba(d_model, out_scale, state=state, expand=expand, taps=taps, rank=rank)
        if weights == "separate":
            self.back = Mamba(d_model, out_scale, state=state, expand=expand, taps=taps, rank=rank)

    @classmethod
    def looks_ahead(cls, kind: Kind) -> bool:
        return True

    def forward(self, x: Tensor, keep: Tensor | None = None, /) -> Tensor:
        """keep: as in Mamba."""
        if self.weights == "separate":
            return (self.ahead(x, keep) + self.back(x, keep, reverse=True)) / 2
        # The projections and the gate are linear in what they act on, and shared: one of each serves both directions.
        u, gate = self.ahead.split(x, keep)
        both = self.ahead.mix(u, keep) + self.ahead.mix(u, keep, reverse=True)
        return self.ahead.out_proj(both * (gate / 2))
