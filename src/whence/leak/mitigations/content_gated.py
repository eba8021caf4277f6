"""The fix that the source wished for: masked tokens take no part in the reading."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings.base import Count, Encoding
from whence.leak.masks import distances
from whence.leak.mitigations.base import Mitigation


class ContentGated(Mitigation):
    """Position relative to content, never absolute: masked tokens do not write, and know how far visible ones are.

    A masked token advances no state, enters no convolution and is no key of attention. Every token is told how many
    steps it is to the nearest visible one on either side, or that there is none. In deeper layers a masked token
    between two visible ones writes with a weight that falls with its distance to the nearer; outside them it never
    does, since how many tokens there are out to the edge would reveal where the edge is.
    """

    stops = "every absolute position: nothing but content, and the distance to it, reaches a prediction"
    leaves = (
        "what the arrangement of masked and visible tokens itself tells; data whose place matters need position_prior"
    )

    def __init__(
        self,
        d_model: Count,
        *,
        reach: Annotated[int, Field(ge=1, description="distances beyond this count as this")] = 32,
        spread: Annotated[
            float,
            Field(ge=0, description="deeper layers: distance over which writing fades; 0: masked tokens never write"),
        ] = 2.0,
    ) -> None:
        super().__init__()
        self.reach, self.spread = reach, spread
        self.before = nn.Embedding(reach + 1, d_model)
        self.after = nn.Embedding(reach + 1, d_model)

    def reset_parameters(self) -> None:
        for table in (self.before, self.after):
            nn.init.normal_(table.weight, std=0.5)

    def check(self, replacement: str, temporal: Encoding) -> None:
        if replacement == "noise":
            raise ValueError(
                "replacement: 'noise' makes masked tokens differ. Allowed with content_gated: zeros, learned."
            )
        if temporal.shift == "absolute" and set(temporal.hooks()) - {"embed"}:
            raise ValueError(
                f"temporal: {temporal.name} tells attention absolute positions. Allowed with content_gated: "
                "encodings that are relative, or added to tokens."
            )

    def encoding(self, vector: Tensor, masked: Tensor, axis: str) -> Tensor:
        return torch.zeros_like(vector) if axis == "time" else vector

    def embed(self, x: Tensor, visible: Tensor) -> Tensor:
        before, after = (distance.clamp(max=self.reach) for distance in distances(visible))
        return x + self.before(before) + self.after(after)

    def writes(self, visible: Tensor, layer: int) -> Tensor | None:
        if layer == 0 or not self.spread:
            return visible
        before, after = distances(visible)
        between = (before > 0) & (after > 0)
        fading = torch.exp(-torch.minimum(before, after) / self.spread)
        return torch.where(visible, 1.0, torch.where(between, fading, 0.0))
